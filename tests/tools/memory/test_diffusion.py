"""Diffusion transformers against measured steps, and their adapters against diffusers' own counts."""

import json
from pathlib import Path

from tests.rows import each_row

from firstfault_tools.memory.check import read_row, score_rows
from firstfault_tools.memory.configuration import Draft, build_run
from firstfault_tools.memory.configuration_huggingface import read_huggingface
from firstfault_tools.memory.eager_diffusion import is_adapted
from firstfault_tools.memory.states import count_lora
from firstfault_tools.memory.verdict import estimate_step

ROOT = Path(__file__).resolve().parents[3]
ROWS = [
    json.loads(line)
    for line in (ROOT / "evals" / "truth" / "memory_diffusion.jsonl").read_text().splitlines()
]
FLUX = {
    "_class_name": "FluxTransformer2DModel", "num_layers": 19, "num_single_layers": 38,
    "attention_head_dim": 128, "num_attention_heads": 24, "guidance_embeds": True,
}  # fmt: skip


def test_peaks():
    """Against measured steps: https://github.com/huggingface/diffusers models on an H200."""
    result = score_rows(ROWS)
    assert result["rows_failed"] == 0
    assert result["worst_error"] <= 0.03


@each_row("row", ROWS, ids=lambda row: f"{row['model']}-{row.get('lora')}")
def test_adapters_are_counted(row):
    run = read_row(row)
    if row.get("lora"):
        assert count_lora(run.shape, run.setup) == row["trainable"]
        assert run.shape.parameters + row["trainable"] == row["params"]
    else:
        assert run.shape.parameters == row["params"]


@each_row(
    ("targets", "name", "adapted"),
    [
        ("all-linear", "attn.to_q", True),
        ("all-linear", "attn.add_q_proj", False),
        ("attn.to_q,ff.net.2", "ff.net.2", True),
        ("attn.to_q,ff.net.2", "ff_context.net.2", False),
        ("to_out.0", "attn2.to_out.0", True),
    ],
)
def test_targets_are_ends_of_module_names(targets, name, adapted):
    assert is_adapted(targets, name) is adapted


def test_frozen_base_keeps_less_than_full_training_and_recomputation_least():
    def peak(**setup):
        draft = read_huggingface(FLUX).merge(Draft({}, {"sequence": 4096, **setup}))
        run = build_run(draft)
        assert not run.shape.partial
        return estimate_step(run.shape, run.setup).peak.terms["activations"]

    full, adapter = peak(), peak(lora_rank=16)
    assert peak(lora_rank=16, recompute="full") < adapter / 5 < full / 5
    assert peak(lora_rank=16, text_tokens=128) < adapter


def test_what_the_text_takes_is_said():
    run = build_run(read_huggingface(FLUX))
    assert any("512 text tokens" in line for line in run.assumed)
    assert run.setup.sequence == 4096


@each_row(
    "config",
    [
        {"_class_name": "WanTransformer3DModel", "num_attention_heads": 40, "attention_head_dim": 128,
         "num_layers": 40, "ffn_dim": 13824, "added_kv_proj_dim": 5120, "image_dim": 1280},
        {"_class_name": "HunyuanVideoTransformer3DModel", "num_attention_heads": 24,
         "attention_head_dim": 128, "num_layers": 20},
    ],
)  # fmt: skip
def test_blocks_that_are_not_spelled_out_stay_a_range(config):
    run = build_run(read_huggingface(config))
    assert run.shape.partial
    assert estimate_step(run.shape, run.setup).upward_error > 0.5


def test_adapters_are_said_to_stand_in_the_base_type():
    from firstfault_tools.answers import answer_calculation

    told = answer_calculation("memory", {"model": "flux.1-dev", "lora_rank": 16}).result
    assert "moments in 16-bit" in told["precision_means"]
    told = answer_calculation("memory", {"model": "llama-3-8b", "lora_rank": 16}).result
    assert "moments in fp32" in told["precision_means"]
