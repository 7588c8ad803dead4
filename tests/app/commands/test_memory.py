import json
import subprocess
import sys

import pytest
from click.testing import CliRunner
from rich.console import Console
from tests.rows import each_row

from firstfault.commands import memory
from firstfault.commands.checkpoint import COMMAND as CHECKPOINT
from firstfault.commands.memory import COMMAND as MEMORY
from firstfault.errors import InputUnreadable, UsageError
from firstfault_tools.registry import calculators

LLAMA = ["--model", "llama-3-8b", "--sequence", "8192"]
ROW = {
    "arch": "gpt2", "hidden": 256, "layers": 2, "heads": 4, "kv_heads": 4, "ffn": 1024,
    "vocab": 1000, "tied": True, "precision": "amp", "attn": "sdpa", "recompute": "none",
    "seq": 128, "mbs": 1, "parallel": "none", "optimizer": "sgd", "world": 1,
    "measured": {"peak_allocated": 0.1},
}  # fmt: skip
OOM = (
    "[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.91 GiB. GPU 1 has a "
    "total capacity of 79.11 GiB of which 1.02 GiB is free. Including non-PyTorch memory, this "
    "process has 78.08 GiB memory in use. Of the allocated memory 75.10 GiB is allocated by PyTorch, "
    "and 0.60 GiB is reserved by PyTorch but unallocated."
)


def run(command, *arguments, stdin=None):
    return CliRunner().invoke(command, list(arguments), input=stdin)


def test_json_answer():
    result = run(MEMORY, *LLAMA, "--card", "H100-80GB", "--json")
    assert result.exit_code == 0
    answer = json.loads(result.stdout)
    assert answer["schema"] == "firstfault.memory/1"
    assert answer["fit"] == "does not fit"


def test_tables():
    text = " ".join(run(MEMORY, *LLAMA, "--card", "H100-80GB").stdout.split())
    for word in ("does not fit", "peak in the", "single change", "full activation recomputation"):
        assert word in text


def test_check(tmp_path):
    path = tmp_path / "rows.jsonl"
    bare = {key: value for key, value in ROW.items() if key != "measured"}
    path.write_text(json.dumps(ROW) + "\n" + json.dumps(bare) + "\n")
    answer = json.loads(run(MEMORY, "--check", str(path), "--json").stdout)
    first, second = answer["rows"]
    assert first["measured_gib"] == 0.1
    assert first["error"] == pytest.approx(first["predicted_gib"] / 0.1 - 1, abs=1e-3)
    assert second["measured_gib"] is None
    assert second["predicted_gib"] == first["predicted_gib"]
    assert answer["mean_error"] == answer["worst_error"]
    assert "mean" in run(MEMORY, "--check", str(path)).stdout


def test_message_alone_and_with_a_model():
    alone = json.loads(run(MEMORY, "-", "--json", stdin=OOM).stdout)
    assert alone["books"]["bucket"] == "allocated"
    assert alone["estimate"] is None
    known = json.loads(run(MEMORY, "-", *LLAMA, "--json", stdin=OOM).stdout)
    assert known["tensor"][0]["name"].startswith("fp32 logits")
    assert "what broke" in run(MEMORY, "-", *LLAMA, stdin=OOM).stdout


def test_files_then_flags(tmp_path):
    config = tmp_path / "config.json"
    config.write_text(
        json.dumps(
            {
                "model_type": "llama",
                "hidden_size": 256,
                "num_hidden_layers": 2,
                "num_attention_heads": 4,
                "intermediate_size": 512,
                "vocab_size": 1000,
            }
        )
    )
    answer = json.loads(
        run(MEMORY, str(config), "--layers", "4", "--tied", "--json", "--no-changes").stdout
    )
    assert answer["changes"] == []
    assert answer["source"] == "config.json, parameters"


@each_row(
    ("arguments", "error"),
    [
        ([*LLAMA, "--tensor", "3", "--world", "3"], UsageError),
        ([*LLAMA, "--card", "abacus"], UsageError),
        (["--hidden", "64"], UsageError),
        (["/nowhere/config.json"], InputUnreadable),
        (["--check", "/nowhere.jsonl"], InputUnreadable),
    ],
)
def test_errors(arguments, error):
    assert isinstance(run(MEMORY, *arguments).exception, error)


def test_unknown_flag_is_usage():
    assert run(MEMORY, "--bogus").exit_code == 2


def test_importing_the_command_is_light():
    code = (
        "import sys; import firstfault.commands.memory; "
        "print([m for m in ('rich', 'yaml', 'numpy', 'pydantic') if m in sys.modules])"
    )
    path = ":".join(sys.path)
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True,
        env={"PYTHONPATH": path},
    )  # fmt: skip
    assert done.stdout.strip() == "[]"


def test_checkpoint_size_and_interval():
    size = json.loads(run(CHECKPOINT, "size", "--model", "llama-3-8b", "--json").stdout)
    assert size["total_gb"] == pytest.approx(112.4, abs=0.1)
    plan = run(CHECKPOINT, "interval", "--save-seconds", "60", "--mtbf-hours", "24")
    assert "daly_s" in plan.stdout


def test_checkpoint_folder_on_disk(tmp_path):
    rank = tmp_path / "iter_0000100" / "mp_rank_00"
    rank.mkdir(parents=True)
    (rank / "model_optim_rng.pt").write_bytes(b"never opened")
    (tmp_path / "latest_checkpointed_iteration.txt").write_text("200")
    answer = json.loads(run(CHECKPOINT, "folder", str(tmp_path), "--json").stdout)
    assert answer["resume_from"] == "iter_0000100"
    assert answer["tracker"]["status"] == "dangling"
    assert "A restart as it stands fails" in run(CHECKPOINT, "folder", str(tmp_path)).stdout


def test_checkpoint_errors():
    assert isinstance(run(CHECKPOINT, "size", "--parameters", "0").exception, UsageError)
    assert isinstance(run(CHECKPOINT, "folder", "-", stdin="").exception, InputUnreadable)


@each_row(
    ("arguments", "said"),
    [([*LLAMA, "--sequence", "0"], "--sequence: must be at least 1"), ([], "--model llama-3-8b")],
)
def test_no_default_takes_the_place_of_what_is_missing_or_impossible(arguments, said):
    done = run(MEMORY, *arguments)
    assert isinstance(done.exception, UsageError)
    assert said in str(done.exception)


@each_row(
    ("written", "count"),
    [("8B", 8e9), ("8e9", 8e9), ("1.5T", 1.5e12), ("8_030_261_248", 8030261248)],
)
def test_parameters_as_people_write_them(written, count):
    done = run(CHECKPOINT, "size", "--parameters", written, "--content", "weights", "--json")
    assert json.loads(done.stdout)["parameters"] == count


def test_a_checkpoint_with_a_problem_is_no_success(tmp_path):
    (tmp_path / "notes.txt").write_text("nothing of a known layout")
    assert run(CHECKPOINT, "folder", str(tmp_path)).exit_code == 1
    assert run(CHECKPOINT, "size", "--parameters", "8x").exit_code == 2


@each_row(
    ("arguments", "fields"),
    [
        (["--model", "qwen3-8b", "--world", "8", "--sharding", "fsdp"],
         {"model": "qwen3-8b", "world": 8, "sharding": "fsdp"}),
        (["--model", "llama-3-70b", "--framework", "megatron", "--tensor", "8", "--pipeline", "6", "--world", "96",
          "--precision", "mxfp8"],
         {"model": "llama-3-70b", "framework": "megatron", "tensor": 8, "pipeline": 6, "world": 96,
          "precision": "mxfp8"}),
        (["--model", "flux", "--lora-rank", "16"], {"model": "flux", "lora_rank": 16}),
    ],
)  # fmt: skip
def test_command_and_tool_give_one_answer(arguments, fields):
    """The page, questions and the MCP tool run the calculator; the command says the same in the same words."""
    tool = next(c for c in calculators() if c.name == "memory")
    told = json.loads(run(MEMORY, *arguments, "--card", "H200", "--json").stdout)
    asked = json.loads(json.dumps(tool.run(**fields, card="H200")))
    assert told["sentence"] == asked["sentence"]
    assert {**told, "source": ""} == {**asked, "source": ""}


def test_the_answer_comes_first_and_is_read_whole_in_80_columns(monkeypatch):
    monkeypatch.setattr(memory, "_console", lambda: Console(highlight=False, width=80))
    text = run(MEMORY, *LLAMA, "--card", "H100-80GB").stdout
    assert text.startswith("Does not fit: ")
    assert "…" not in text
    assert "full activation recomputation: saves GiB +" in text
    assert "side effects: results unchanged" in " ".join(text.split())
    assert run(MEMORY, *LLAMA, "--world", "64", "--sharding", "fsdp", "--recompute", "full", "--card", "H100-80GB").stdout.startswith("Fits: ")  # fmt: skip
