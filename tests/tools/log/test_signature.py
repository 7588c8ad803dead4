"""A signature file says what it means, and what it may account for where somebody complains."""

from __future__ import annotations

from typing import Any

import pytest
from tests.rows import each_row

from firstfault_tools.errors import UnreadableArtefact
from firstfault_tools.findings import Complaint, Finding, Level
from firstfault_tools.log.signature import parse_signature

ROW: dict[str, Any] = {
    "id": "few-workers", "title": "Few workers", "category": "performance", "level": "context",
    "rank": "none", "patterns": ["does not have many workers"], "root_cause": "few workers", "page": "p",
}  # fmt: skip


def test_complaints_it_explains() -> None:
    signature = parse_signature({**ROW, "explains": {"slow": 0.6}}, "few-workers")
    assert signature.explains == {Complaint.SLOW: 0.6}
    assert parse_signature(ROW, "few-workers").explains == {}


@each_row("told", [{"tired": 0.5}, {"slow": "much"}])
def test_complaints_that_do_not_exist(told: dict[str, Any]) -> None:
    with pytest.raises(UnreadableArtefact, match="few-workers"):
        parse_signature({**ROW, "explains": told}, "few-workers")


@each_row(
    ("told", "weight"),
    [({"slow": 0.6}, 0.6), ({Complaint.SLOW: 1}, 1.0), ({"stalled": 0.6}, 0.0), (None, 0.0), ("slow", 0.0)],
)  # fmt: skip
def test_weight_of_a_finding(told: Any, weight: float) -> None:
    facts = {} if told is None else {"explains": told}
    finding = Finding(kind="k", title="t", level=Level.CONTEXT, facts=facts)
    assert finding.explains(Complaint.SLOW) == weight
