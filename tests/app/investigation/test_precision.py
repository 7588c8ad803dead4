"""Confirmed needs counts: of the kind, and of a family with enough sources."""

from __future__ import annotations

from tests.rows import each_row

from firstfault.investigation.precision import (
    CONFIRMED_FROM,
    LEAST_SOURCES,
    PrecisionTable,
    Tried,
    name_family,
    weigh_precision,
)
from firstfault.investigation.verdict import Judgement
from firstfault_tools.findings import Confidence, Finding, Json, Level, Verdict

N = LEAST_SOURCES


@each_row(
    ("kind", "family", "sure"),
    [
        (Tried(), Tried(N, N, N), True),  # carried by its family
        (Tried(1, 1, 1), Tried(N, N, N), True),
        (Tried(1, 1, 1), Tried(N - 1, N - 1, N - 1), False),  # too few to say anything
        (Tried(), Tried(), False),
        (Tried(1, 0.5, 1), Tried(N, N, N), False),  # half right once
        (Tried(3, 3, 3), Tried(N, N, N - 2), False),  # of a family that errs
        (Tried(400, 400, 400), Tried(500, 490, 490), True),  # enough of its own
        (Tried(60, 60, 58), Tried(500, 500, 500), False),
    ],
)
def test_confirmed_from_counts(kind: Tried, family: Tried, sure: bool) -> None:
    table = PrecisionTable({"tool.x": kind}, {"tool": family})
    assert (table.precision("tool.x", "tool") >= CONFIRMED_FROM) is sure
    finding = Finding("tool.x", "x", Level.CAUSE)
    told = weigh_precision(Judgement(Verdict.FAULT, finding, Confidence.CONFIRMED), table)
    assert told.confidence is (Confidence.CONFIRMED if sure else Confidence.LIKELY)


@each_row("confidence", [Confidence.LIKELY, Confidence.POSSIBLE])
def test_nothing_becomes_surer(confidence: Confidence) -> None:
    table = PrecisionTable({}, {"tool": Tried(N, N, N)})
    judgement = Judgement(Verdict.FAULT, Finding("tool.x", "x", Level.CAUSE), confidence)
    assert weigh_precision(judgement, table) is judgement


@each_row(
    ("kind", "facts", "family"),
    [
        ("hardware.xid", {"raised": True}, "tool"),
        ("signature.a", {"raised": True, "captured": 2}, "line, raised"),
        ("signature.a", {"raised": False, "captured": 2}, "line, captured"),
        ("signature.a", {"captured": 0}, "line, bare"),
    ],
)
def test_family(kind: str, facts: dict[str, Json], family: str) -> None:
    assert name_family(Finding(kind, "x", Level.CAUSE, facts=facts)) == family
