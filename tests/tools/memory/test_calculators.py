import json

import jsonschema
import pytest
from tests.growth import count_calls
from tests.rows import each_row

from firstfault_tools.checkpoint import folder_calculator, interval_calculator, size_calculator
from firstfault_tools.errors import InvalidParameter, ToolError
from firstfault_tools.memory import memory_calculator, oom_calculator
from firstfault_tools.memory.check import read_rows, score_row, score_rows
from firstfault_tools.memory.configuration import build_run
from firstfault_tools.memory.memory_calculator import run_memory
from firstfault_tools.memory.models import find_model
from firstfault_tools.memory.report import split_fields
from firstfault_tools.memory.verdict import estimate_step, judge

MOST_CALLS = 5_000
CALCULATORS = [
    module.CALCULATOR
    for module in (
        memory_calculator, oom_calculator, size_calculator, interval_calculator, folder_calculator,
    )
]  # fmt: skip
LLAMA = {
    "hidden": 4096, "layers": 32, "heads": 32, "kv_heads": 8, "ffn": 14336, "vocab": 128256,
    "sequence": 8192,
}  # fmt: skip


@each_row("calculator", CALCULATORS, ids=lambda c: c.name)
def test_schema_is_valid_and_named(calculator):
    jsonschema.Draft202012Validator.check_schema(calculator.parameters)
    assert calculator.name in (
        "memory", "memory_oom", "checkpoint_size", "checkpoint_interval", "checkpoint_folder",
    )  # fmt: skip
    assert len(calculator.summary) > 40


def test_registry_finds_them():
    from firstfault_tools.registry import calculators

    assert {calculator.name for calculator in CALCULATORS} <= {c.name for c in calculators()}


def test_every_key_carries_its_unit_and_all_is_json():
    result = run_memory(card="H100", **LLAMA)
    again = json.loads(json.dumps(result))
    for key in ("allocated_gib", "needed_gib", "outside_pytorch_gib"):
        assert set(again[key]) == {"low", "expected", "high"}
    assert again["fit"] == "does not fit"
    assert again["dominant_term"] == "activations"
    assert sum(again["terms_gib"].values()) == pytest.approx(
        again["allocated_gib"]["expected"], abs=0.01
    )
    assert again["changes"][0]["fits"]


def test_stage_and_phase_are_named():
    result = run_memory(
        framework="megatron", attention="flash", pipeline=4, tensor=8, world=64,
        sequence_parallel=True, distributed_optimizer=True, micro_batches=64, card="H100",
        **{**LLAMA, "hidden": 8192, "layers": 80, "heads": 64, "ffn": 28672},
    )  # fmt: skip
    assert result["stage"] == 0
    assert result["phase"]
    assert {phase["stage"] for phase in result["phases"]} == {0, 1, 3}


def test_observed_peak_recalibrates():
    result = run_memory(observed_peak_gib=110.0, **LLAMA)
    assert result["allocated_gib"]["expected"] == pytest.approx(110.0, abs=0.01)
    assert result["calibration"]["plausible"]


def test_configuration_text_and_override():
    config = json.dumps({"model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32,
                         "num_attention_heads": 32, "num_key_value_heads": 8,
                         "intermediate_size": 14336, "vocab_size": 128256,
                         "tie_word_embeddings": False})  # fmt: skip
    assert run_memory(configuration=config, configuration_name="config.json",
                      sequence=2048)["parameters"] == 8030261248  # fmt: skip


@each_row("bad", [{"hidden": -1}, {"tensor": 3, "world": 3}, {"what": 1}])
def test_bad_fields_raise(bad):
    with pytest.raises(InvalidParameter):
        run_memory(**{**LLAMA, **bad})


ROW = {
    "arch": "llama", "hidden": 256, "layers": 2, "heads": 4, "kv_heads": 2, "ffn": 512,
    "vocab": 1000, "tied": False, "precision": "bf16", "attn": "sdpa", "recompute": "none",
    "seq": 128, "mbs": 1, "parallel": "none", "optimizer": "sgd", "world": 1,
}  # fmt: skip


def test_check_with_and_without_measurement():
    plain = score_rows([ROW])["rows"][0]
    assert plain["error"] is None
    predicted = plain["predicted_gib"]
    result = score_rows([
        {**ROW, "measured": {"peak_allocated": predicted / 1.1}},
        {**ROW, "measured": {"peak_allocated": predicted / 0.95}},
        ROW,
    ])  # fmt: skip
    assert result["rows_measured"] == 2
    assert result["worst_error"] == pytest.approx(0.1, abs=1e-3)
    assert result["mean_error"] == pytest.approx(0.075, abs=1e-3)
    assert [row["predicted_gib"] for row in result["rows"]] == [predicted] * 3


@each_row(
    "change",
    [
        {"precision": "int9"}, {"attn": "psychic"}, {"parallel": "magic"}, {"seq": None},
        {"optimizer": "hope"}, {"heads": 3}, {"hidden": "wide"},
    ],
)  # fmt: skip
def test_a_bad_row_names_its_field_and_never_helps_the_score(change):
    measured = {"measured": {"peak_allocated": 1.0}}
    with pytest.raises(ToolError):
        score_row({**ROW, **change})
    result = score_rows([ROW, {**ROW, **measured, **change}])
    assert result["rows_failed"] == 1
    assert next(iter(change)) in result["rows"][1]["problem"] or "heads" in change
    assert result["worst_error"] == 1.0
    assert result["rows"][0]["predicted_gib"] > 0


@each_row("text", ["{", "[1]", '"x"'])
def test_bad_lines(text):
    with pytest.raises(ToolError, match="line 1"):
        read_rows(text, "rows.jsonl")


@each_row(
    ("parallel", "optimizer", "precision", "attn"),
    [
        (parallel, optimizer, precision, attn)
        for parallel in ("none", "ddp", "zero1", "zero2", "fsdp")
        for optimizer in ("adamw_fused", "adamw_foreach", "adamw_8bit", "sgd", "sgd_momentum")
        for precision, attn in (("bf16", "sdpa"), ("amp", "eager"), ("fp32", "sdpa"),
                                ("bf16_master", "flash_attention_2"), ("fp16_amp", "sdpa"))
    ],
)  # fmt: skip
def test_every_combination_of_a_row_is_answered(parallel, optimizer, precision, attn):
    row = {**ROW, "parallel": parallel, "optimizer": optimizer, "precision": precision,
           "attn": attn, "world": 2}  # fmt: skip
    (found,) = score_rows([row])["rows"]
    assert found["predicted_gib"] > 0.06


def test_one_call_costs_little_work():
    """The page recomputes while a slider moves; its speed is a row of `evals.bench`."""
    runs = [
        build_run(find_model("llama-3-8b").merge(split_fields(fields)))
        for fields in (
            {"sequence": 4096, "micro_batch": 2},
            {"sequence": 4096, "precision": "amp", "attention": "eager", "recompute": "full"},
            {"sequence": 8192, "framework": "megatron", "tensor": 2, "pipeline": 4, "world": 16},
        )
    ]
    judge(estimate_step(runs[0].shape, runs[0].setup), runs[0].setup)
    for run in runs:
        calls = count_calls(lambda run=run: judge(estimate_step(run.shape, run.setup), run.setup))
        assert calls < MOST_CALLS
