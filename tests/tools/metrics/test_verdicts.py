"""Is each sick run named, each healthy one left alone, and is every quoted line and step real?"""

import math
import re
from pathlib import Path

from evals.simulated_runs import judge_lines as judge
from evals.simulated_runs import megatron_line as megatron
from tests.rows import each_row

from firstfault_tools.findings import Category, Level
from firstfault_tools.knowledge.pack import read_yaml
from firstfault_tools.metrics.series import StepSeries
from firstfault_tools.metrics.sources.steps import parse_steps

CASES = Path(__file__).parents[4] / "shared" / "cases"
PAGES = Path(__file__).parents[3] / "knowledge" / "pages"
SOURCE = Path(__file__).parents[3] / "tools" / "firstfault_tools" / "metrics"
ALARMING = (Level.CAUSE, Level.FAILURE, Level.SYMPTOM)
COLOUR = re.compile(r"\x1b\[[0-9;]*m")

# case -> kinds that must be reported, words the titles must hold
EXPECTED = {
    "mem-08-dataloader-ram-creep": ("host_memory_growth", ["61.2", "249.9", "copy-on-write"]),
    "mem-15-megatron-ds-loss-column-missing": ("nan_loss", ["40207", "18.402", "40206", "cannot"]),
    "mem-19-lora-lr-divergence": ("divergence", ["1540", "LoRA", "learning rate"]),
    "mem-28-dataloader-stall-every-workers": ("dataloader_stall", ["Every 8th", "num_workers"]),
    "mem-33-tracker-file-missing-restart-from-zero": (
        "restarted_from_scratch",
        ["iteration 1", "latest_checkpointed_iteration.txt"],
    ),
    "mem-50-healthy-loss-scale-warmup": ("loss_scale_warmup", ["8 loss-scale", "normal"]),
    "mem-51-healthy-epoch-stairs": ("epoch_stairs", ["epoch 0.89", "memorises", "stable"]),
    "mem-54-healthy-pp-loss-minus-one": ("pipeline_loss_minus_one", ["last stage"]),
    "nan": ("nan_after_lr_jump", ["3000", "0.0001", "iteration 4"]),
}


def kinds(lines: list[str]) -> set[str]:
    return {f.kind.removeprefix("metrics.") for f in judge(lines)}


def alarms(lines: list[str]) -> list[str]:
    return [f.kind for f in judge(lines) if f.level in ALARMING]


def shared_logs() -> list[tuple[str, list[str]]]:
    logs = []
    for path in sorted((CASES / "public").glob("*.yaml")):
        logs.append((path.stem, read_yaml(path.read_text())["log"]))
    for path in sorted((CASES / "lab").glob("*/log.txt")):
        logs.append((path.parent.name, path.read_text(errors="replace")))
    return [(name, [COLOUR.sub("", line) for line in text.split("\n")]) for name, text in logs]


@each_row(("name", "lines"), shared_logs(), ids=[n for n, _ in shared_logs()])
def test_shared_cases(name: str, lines: list[str]) -> None:
    findings = judge(lines)
    for finding in findings:
        assert finding.evidence
        for quoted in finding.evidence:
            assert lines[quoted.line - 1].strip().startswith(quoted.text[:500])
        quoted_text = " ".join(q.text for q in finding.evidence)
        for step in re.findall(r"(?:step|iteration) (\d+)", finding.title):
            assert re.search(rf"\b{step}\b", "\n".join(lines))
            if finding.level in ALARMING:
                assert step in quoted_text
    alarming = [f for f in findings if f.level in ALARMING]
    if name not in EXPECTED:
        assert not alarming
        return
    kind, words = EXPECTED[name]
    named = next(f for f in findings if f.kind == f"metrics.{kind}")
    for word in words:
        assert word in named.title
    if "healthy" in name:
        assert not alarming
        assert named.level is Level.BENIGN
    else:
        assert alarming == [named]
        assert named.level is Level.CAUSE


def test_pages_of_findings_exist() -> None:
    pages = {path.stem for path in PAGES.rglob("*.md")}
    used = set()
    for module in SOURCE.rglob("*.py"):
        used |= set(re.findall(r'page\s*=\s*"([a-z0-9-]+)"', module.read_text()))
    assert used
    assert used <= pages


# -- NaN and the lost column -----------------------------------------------------------------------
def test_nan_names_its_first_step_and_the_checkpoint_before() -> None:
    lines = []
    for step in range(900, 1100):
        lines.append(
            megatron(step, 2.0 if step < 1050 else math.nan, 0.5 if step != 1049 else 90.0)
        )
        if step in (950, 1000, 1060):
            lines.append(f"  successfully saved checkpoint from iteration {step:7d} to /ckpt")
    found = next(f for f in judge(lines) if f.kind == "metrics.nan_loss")
    assert found.facts["first_bad_step"] == 1050
    assert found.facts["last_clean_checkpoint_step"] == 1000
    assert found.facts["grad_norm_spike"] == 90.0
    assert found.facts["counters_contradict"] is True
    assert found.category is Category.NUMERICAL


def test_loss_column_lost_without_any_nan_is_a_failure() -> None:
    lines = [megatron(s, 2.0 if s < 30 else None) for s in range(1, 50)]
    found = judge(lines)
    assert [f.kind for f in found] == ["metrics.loss_missing"]
    assert "iteration 30" in found[0].title


def test_evaluation_rows_without_loss_are_no_lost_column() -> None:
    lines = []
    for step in range(1, 60):
        lines.append(megatron(step, 2.0))
        if step % 10 == 0:
            lines.append(f" validation loss at iteration {step} | lm loss value: 2.1E+00 | ")
    assert not alarms(lines)


def test_log_that_ends_in_another_format_is_no_lost_column() -> None:
    lines = [megatron(s, 2.0) for s in range(1, 30)]
    lines += [
        f"[Rank 0] step={s}, skipped=0, lr=[0.0001], mom=[[0.9, 0.95]]" for s in range(30, 40)
    ]
    assert not alarms(lines)


def test_single_overflow_under_loss_scaling_is_benign() -> None:
    lines = [
        f"step {s} loss 2.0 grad_norm {'inf' if s in (5, 40) else '1.0'} loss_scale {4096.0 if s < 40 else 2048.0}"
        for s in range(60)
    ]
    assert not alarms(lines)


@each_row(
    "line",
    [
        "{{'loss': {loss}, 'grad_norm': {grad}, 'learning_rate': 1e-05, 'epoch': {epoch:.2f}}}",
        "step {step} | loss {loss} | grad_norm {grad}",
        '{{"step": {step}, "loss": {loss}, "grad_norm": {grad}}}',
        "iter {step}: loss {loss}, time 12.00ms, mfu 1.00%",
    ],
)
def test_nan_in_every_format(line: str) -> None:
    lines = [
        line.format(
            step=s,
            loss="nan" if s >= 12 else f"{2 - s / 100:.4f}",
            grad="nan" if s >= 12 else "1.0",
            epoch=s / 10,
        )
        for s in range(20)
    ]
    assert "nan_loss" in kinds(lines)


def test_filtered_nan_shows_as_zero_loss() -> None:
    lines = [
        f"{{'loss': {1.8 if s < 10 else 0.0}, 'grad_norm': {'1.0' if s < 10 else 'nan'}, "
        f"'learning_rate': 1e-05, 'epoch': {s / 10:.2f}}}"
        for s in range(20)
    ]
    assert {"nan_loss", "loss_zero"} & kinds(lines)


# -- learning rate ---------------------------------------------------------------------------------
def test_rate_zero_from_the_start() -> None:
    lines = [
        f"{{'loss': 2.{s % 3}1, 'learning_rate': 0, 'epoch': {s / 10:.2f}}}" for s in range(1, 9)
    ]
    found = next(f for f in judge(lines) if f.kind == "metrics.lr_zero")
    assert found.level is Level.CAUSE


def test_rate_zero_too_early() -> None:
    lines = [megatron(s * 10, 2.0, lr=max(0.0, 1e-4 * (1 - s / 100))) for s in range(1, 200)]
    found = next(f for f in judge(lines) if f.kind == "metrics.lr_zero")
    assert found.facts["first_zero"] == "iteration 1000"


def test_rate_zero_at_the_end_is_the_schedule() -> None:
    lines = [megatron(s * 100, 2.0, lr=max(0.0, 1e-4 * (1 - s / 98))) for s in range(1, 101)]
    assert not alarms(lines)


def test_rate_that_starts_at_zero_is_warm_up() -> None:
    lines = [megatron(s, 9.0 - s / 100, lr=1e-5 * max(0, s - 3)) for s in range(60)]
    assert not alarms(lines)


# -- loss shape ------------------------------------------------------------------------------------
def test_divergence_wants_to_last() -> None:
    spike = [2.0 - s / 200 for s in range(60)]
    spike[30:33] = [5.0, 4.0, 3.0]
    lines = [megatron(s, v) for s, v in enumerate(spike)]
    assert not alarms(lines)
    assert "loss_spike_fast_recovery" in kinds(lines)


def test_small_batches_scatter() -> None:
    values = [
        0.9,
        2.1,
        0.3,
        1.4,
        0.2,
        1.9,
        0.7,
        2.6,
        0.4,
        1.1,
        2.2,
        0.6,
        1.7,
        2.4,
        0.8,
        1.3,
        2.0,
        2.3,
    ]
    assert not alarms([megatron(s, v) for s, v in enumerate(values)])


def test_overfitting() -> None:
    lines = []
    for epoch in range(1, 9):
        lines += [
            f"{{'loss': {1.5 / (epoch + part):.4f}, 'learning_rate': 1e-05, 'epoch': {epoch - 1 + part}}}"
            for part in (0.2, 0.5, 0.8)
        ]
        lines.append(f"{{'eval_loss': {1.0 + 0.08 * abs(epoch - 3):.4f}, 'epoch': {epoch}.0}}")
    found = next(f for f in judge(lines) if f.kind == "metrics.overfitting")
    assert found.facts["best_at"] == "epoch 3"


def test_never_learning_at_the_entropy_of_the_vocabulary() -> None:
    lines = [megatron(s * 20, 10.82 + (s % 5) * 0.003) for s in range(80)]
    assert "never_learning" in kinds(lines)


def test_placeholder_on_first_stage_beside_real_loss_on_the_last() -> None:
    lines = []
    for step in range(1, 12):
        lines.append(f"[rank0]: step: {step}  loss: -1.0000  memory: 44.62GiB(56.40%)  tps: 5,611")
        lines.append(
            f"[rank7]: step: {step}  loss: {9 - step / 10:.4f}  memory: 50.1GiB(60.00%)  tps: 5,611"
        )
    assert not alarms(lines)
    found = next(f for f in judge(lines) if f.kind == "metrics.pipeline_loss_minus_one")
    assert found.facts["ranks"] == [0]


def test_inflated_loss() -> None:
    lines = ["gradient_accumulation_steps=8"]
    for s in range(1, 30):
        lines.append(
            f"{{'loss': {16.0 - s / 20:.3f}, 'learning_rate': 1e-05, 'epoch': {s / 30:.2f}}}"
        )
    lines.append("{'eval_loss': 1.85, 'epoch': 1.0}")
    found = next(f for f in judge(lines) if f.kind == "metrics.loss_inflated")
    assert found.level is Level.BENIGN


# -- found on variants that are not among the shared cases ------------------------------------------
def test_divergence_by_less_than_half_with_exploding_gradients() -> None:
    lines = [megatron(s, 5.0 if s < 40 else 6.2, 60.0 if s == 40 else 0.5) for s in range(80)]
    assert "metrics.divergence" in alarms(lines)
    assert not alarms([megatron(s, 5.0 if s < 40 else 6.2) for s in range(80)])


def test_divergence_that_ends_in_nan_is_one_fault() -> None:
    loss = [2.0 + (s % 3) / 50 for s in range(30)] + [9.0 + s for s in range(8)] + [math.nan] * 6
    found = judge([megatron(s, v) for s, v in enumerate(loss)])
    assert [f.kind for f in found if f.level is Level.CAUSE] == ["metrics.nan_loss"]
    assert found[0].facts["loss_jump_at"] == "iteration 30"


def test_stairs_with_rows_at_whole_epochs() -> None:
    lines = [
        f"{{'loss': {(1.3, 1.3, 0.85, 0.5)[-(-s // 20)] + (s % 3) / 100:.4f}, 'learning_rate': 1e-05, "
        f"'epoch': {s / 20:.2f}}}"
        for s in range(1, 61)
    ]
    assert "epoch_stairs" in kinds(lines)
    assert not alarms(lines)


def test_loss_scale_search_seen_in_the_column_only() -> None:
    lines = [
        megatron(s, None if s < 15 else 9.0).replace(
            "loss scale: 1.0", f"loss scale: {max(2.0**32 / 2**s, 131072.0)}"
        )
        for s in range(1, 40)
    ]
    assert "loss_scale_warmup" in kinds(lines)
    assert not alarms(lines)


def test_other_trainers_words_for_an_overflow() -> None:
    lines = [
        f"Gradient overflow.  Skipping step, loss scaler 0 reducing loss scale to {2.0 ** (15 - i)}"
        for i in range(5)
    ]
    lines += [f"iter {s}: loss {4 - s / 200:.4f}, time 120.00ms" for s in range(30)]
    assert "loss_scale_warmup" in kinds(lines)
    assert not alarms(lines)


def test_schedule_as_written_against_as_logged() -> None:
    lines = [
        "learning_rate: 0.0002  warmup_steps: 100",
        *[megatron(s, 2.0, lr=2e-3) for s in range(1, 200)],
    ]
    assert {"lr_overridden", "warmup_missing"} <= kinds(lines)
    assert not alarms(lines)


@each_row("spreads", [True, False])
def test_nan_names_the_rank_on_which_it_came_first(spreads: bool) -> None:
    lines = []
    for s in range(40):
        for rank in range(4):
            bad = (rank == 2 and s >= 20) or (spreads and s >= 22)
            lines.append(f"[rank{rank}] step {s} loss {'nan' if bad else 2.0} grad_norm 1.0")
    found = next(f for f in judge(lines) if f.kind == "metrics.nan_loss")
    assert found.rank == 2
    assert found.facts["first_bad_step"] == 20
    assert "first on rank 2" in found.title
    assert all(e.rank == 2 for e in found.evidence)


def test_nan_on_all_ranks_at_once_names_none() -> None:
    lines = [
        f"[rank{rank}] step {s} loss {'nan' if s >= 20 else 2.0}"
        for s in range(40)
        for rank in range(4)
    ]
    assert next(f for f in judge(lines) if f.kind == "metrics.nan_loss").rank is None


def test_evaluation_nan() -> None:
    lines = []
    for epoch in range(1, 5):
        lines += [
            f"{{'loss': {2 - epoch / 10:.3f}, 'learning_rate': 1e-05, 'epoch': {epoch - 1 + p}}}"
            for p in (0.3, 0.6, 0.9)
        ]
        lines.append(f"{{'eval_loss': {'nan' if epoch > 2 else 2.0}, 'epoch': {epoch}.0}}")
    assert "metrics.nan_evaluation" in alarms(lines)


def test_learned_by_heart_is_no_dead_gradient() -> None:
    lines = [
        f"step {s} loss {max(0.0, 1.5 - s / 20):.4f} grad_norm {max(0.0, 1 - s / 30):.4f}"
        for s in range(60)
    ]
    assert not alarms(lines)


def test_empty_and_tiny_logs_say_nothing() -> None:
    assert judge([]) == ()
    assert judge(["step 1 loss 2.0"]) == ()
    assert isinstance(parse_steps([]), StepSeries)
