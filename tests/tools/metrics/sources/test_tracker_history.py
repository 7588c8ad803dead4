"""Histories as the interfaces of Weights & Biases and MLflow return them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.rows import each_row

from firstfault_tools.errors import UnreadableArtefact
from firstfault_tools.metrics.sources.tracker_history import READER
from firstfault_tools.registry import Artefact

BEGIN = 1_795_947_000


def loss(step: int) -> float | str:
    return 3.5 - 0.001 * step if step < 400 else "NaN"


ROWS = [{"_step": s, "_timestamp": BEGIN + s, "_runtime": s, "train/loss": loss(s), "note": "x"} for s in range(0, 500, 10)]  # fmt: skip
POINTS = {"metrics": [{"key": "train_loss", "value": loss(s), "timestamp": 1000 * (BEGIN + s), "step": str(s)} for s in range(0, 500, 10)]}  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [json.dumps(ROWS), "\n".join(json.dumps(r) for r in ROWS), json.dumps(POINTS), json.dumps([POINTS]),
     "\n".join(json.dumps(r) for r in ROWS) + '\n{"_step": 500, "_times'],
    ids=["list", "lines", "points", "answers", "cut"],
)  # fmt: skip
def test_the_step_at_which_the_loss_is_no_number(text: str, tmp_path: Path) -> None:
    path = tmp_path / "history.json"
    path.write_text(text)
    assert READER.recognise(path.name, path.read_bytes()[:65536])
    reading = READER.read((Artefact(path.name, path),))
    assert [f.kind for f in reading.findings] == ["metrics.nan_loss"]
    assert "400" in reading.findings[0].title


@each_row(
    "content",
    [{"_step": 1}, {"metrics": [{"key": "a"}]}, [1, 2], {"train_loss": 3.0}],
)
def test_other_json_is_not_taken(content: Any) -> None:
    assert not READER.recognise("x.json", json.dumps(content).encode())


def test_a_line_that_is_no_json_is_named(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    path.write_text('{"_step": 1, "_timestamp": 2}\noops\n{"_step": 2}\n')
    with pytest.raises(UnreadableArtefact, match="line 2"):
        READER.read((Artefact(path.name, path),))
