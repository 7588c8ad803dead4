"""Single pieces of the model against what one GPU showed: attention's score matrix, AdamW's temporaries."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.rows import each_row

from firstfault_tools.memory.setup import OPTIMIZERS

ROWS = json.loads(
    (Path(__file__).parents[3] / "evals/results/device-2026-11-28/memory.json").read_text()
)


@each_row(
    ("mode", "name"),
    [
        ({"fused": True}, "adamw_fused"),
        ({"foreach": True}, "adamw_foreach"),
        ({"foreach": False}, "adamw_loop"),
    ],
)
def test_temporaries_of_the_step(mode: dict[str, bool], name: str) -> None:
    (row,) = [r for r in ROWS if r.get("question") == "adamw" and mode.items() <= r.items()]
    optimizer = OPTIMIZERS[name]
    modelled = optimizer.step_lists + optimizer.step_tensors / row["tensors"]
    assert modelled == pytest.approx(row["temporaries_share"], abs=1e-6)


def test_only_fp32_attention_with_grouped_heads_writes_the_scores_out() -> None:
    rows = [r for r in ROWS if r.get("question") == "attention"]
    assert len(rows) == 4
    for row in rows:
        grouped = row["kv_heads"] != row["heads"]
        kept = row["kept_mib"] >= row["fp32_score_matrix_mib"]
        assert kept == (grouped and row["dtype"] == "float32")
