"""Steps of a Megatron-style model and of FSDP2 on real GPUs: does the estimate of every rank meet the peak?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from evals.device.split_plans import Plan, predict_rank
from tests.rows import each_row

from firstfault_tools.memory.check import score_rows
from firstfault_tools.memory.sizes import GIB

FILES = sorted((Path(__file__).parents[3] / "evals/results").glob("device-*/split-*.json"))
ROWS: list[dict[str, Any]] = [row for file in FILES for row in json.loads(file.read_text())["rows"]]
SPLIT = [row for row in ROWS if "ranks" in row]
SHARDED = [row for row in ROWS if row.get("parallel") == "fsdp"]


def test_there_are_rows() -> None:
    assert len(SPLIT) >= 4
    assert len(SHARDED) >= 3


@each_row("row", SPLIT, ids=range(len(SPLIT)))
def test_every_rank_of_a_split_step(row: dict[str, Any]) -> None:
    plan = Plan(**{name: value for name, value in row.items() if name != "ranks"})
    for measured in row["ranks"]:
        terms = predict_rank(plan, measured["rank"] // plan.tensor)
        assert sum(terms.values()) / GIB == pytest.approx(measured["measured_gib"], rel=0.03)


@each_row("row", SHARDED, ids=range(len(SHARDED)))
def test_a_sharded_step(row: dict[str, Any]) -> None:
    (scored,) = score_rows([row])["rows"]
    for measured in row["all_ranks_gib"]:
        assert scored["predicted_gib"] == pytest.approx(measured, rel=0.03)
