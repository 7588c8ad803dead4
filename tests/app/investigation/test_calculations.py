"""A diagnosis shows the memory books and the bubble of the run it is about, from its own files."""

from __future__ import annotations

from pathlib import Path

from tests.tools.memory.test_oom_settings import ARGUMENTS, CONFIG, MESSAGE

from firstfault.workspace import Workspace

WORKSPACE = Workspace()


def test_an_out_of_memory_log_beside_a_config_file(tmp_path: Path) -> None:
    log, config = tmp_path / "train.log", tmp_path / "config.json"
    log.write_text(f"INFO world_size=4\n{ARGUMENTS}[rank2]: {MESSAGE}\n")
    config.write_text(CONFIG)
    row = WORKSPACE.diagnose_paths([log, config]).to_json()
    assert (row["category"], row["first_failing_rank"]) == ("oom", 2)
    assert "fp32 logits" in row["explanation"]
    assert row["tools"]["memory_oom"]["estimate"]["changes"]


def test_a_slow_pipeline_shows_its_bubble(tmp_path: Path) -> None:
    lines = [
        "------------------------ arguments ------------------------",
        "  world_size ...................................... 16",
        "  tensor_model_parallel_size ...................... 2",
        "  pipeline_model_parallel_size .................... 8",
        "  micro_batch_size ................................ 1",
        "  global_batch_size ............................... 8",
        "-------------------- end of arguments ---------------------",
    ]
    for step in range(1, 200):
        slow = 1000 if step < 100 else 2400
        lines.append(
            f" iteration {step:8d}/ 1000 | consumed samples: {step * 8:12d} | elapsed time per iteration "
            f"(ms): {slow + step % 7:.1f} | learning rate: 2.0E-05 | lm loss: {3 - step / 400:.6E} |"
        )
    log = tmp_path / "train.log"
    log.write_text("\n".join(lines))
    row = WORKSPACE.diagnose_paths([log]).to_json()
    assert row["category"] == "performance"
    # seven of fifteen slots are idle: (p-1)/(m+p-1)
    assert abs(row["tools"]["bubble"]["fraction_of_total"] - 7 / 15) < 1e-9
