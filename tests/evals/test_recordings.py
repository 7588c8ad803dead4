"""What readers said stays weighed as it was: recordings replayed through the checker and the judge."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from evals.relay.recording import replay

from firstfault.investigation.diagnosis import LedBy
from firstfault.workspace import Workspace

FOLDER = Path(__file__).parent.parent.parent / "evals" / "recordings"
ROWS = [
    (file.stem, row)
    for file in sorted(FOLDER.glob("*.json"))
    for row in json.loads(file.read_text("utf-8"))
]


@pytest.fixture(scope="module")
def workspace() -> Workspace:
    return Workspace()


@pytest.mark.parametrize(("name", "row"), ROWS, ids=[f"{n}-{r['number']}" for n, r in ROWS])
def test_the_same_replies_are_weighed_the_same(
    name: str, row: dict[str, Any], tmp_path: Path, workspace: Workspace
) -> None:
    enriched = replay(row, tmp_path, workspace.knowledge)
    shown, after = enriched.assessment, enriched.diagnosis
    assert shown is not None, enriched.problem
    outcome = {
        "led_by": after.led_by.value, "disputed": after.disputed, "verdict": after.verdict.value,
        "category": after.category.value if after.category else None, "rank": after.first_failing_rank,
        "kept": shown.kept, "proposed": shown.proposed,
    }  # fmt: skip
    assert outcome == row["outcome"]
    unearned = replay(row, tmp_path, workspace.knowledge, earned=False).diagnosis
    assert unearned.led_by is LedBy.RULE
    assert unearned.root_cause == row["reading"]["root_cause"]
