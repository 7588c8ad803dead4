"""Restart here, without a node, or stop: what the kind of fault and the attempts before decide."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from evals.cases import load_cases
from tests.conftest import ROOT

from firstfault.incidents.records import Related
from firstfault.incidents.restart import STAYS, Attempt, Decision, decide_restart
from firstfault.investigation.diagnosis import Diagnosis
from firstfault.workspace import Workspace
from firstfault_tools.findings import Category, Confidence, Verdict


@pytest.fixture(scope="module")
def blank(tmp_path_factory: pytest.TempPathFactory) -> Diagnosis:
    path: Path = tmp_path_factory.mktemp("blank") / "a.log"
    path.write_text("hello\n")
    return replace(Workspace().diagnose_paths([path]), verdict=Verdict.FAULT, fixes=())


def attempt(number: int, host: str | None = None, step: int | None = None, kind: Category | None = None) -> Attempt:  # fmt: skip
    return Attempt(number, Verdict.FAULT, "s", host, "x", step, kind)


HERE, WITHOUT, STOP = Decision.HERE, Decision.WITHOUT, Decision.STOP
CODE, XID, NET, END = Category.CODE_BUG, Category.HARDWARE, Category.COMMUNICATION, Category.SCHEDULER  # fmt: skip
SURE, LIKELY, OPEN = Confidence.CONFIRMED, Confidence.LIKELY, Confidence.UNKNOWN
AGAIN_HERE = Related("i", "t", 1.0, "x", True, True, False)


@pytest.mark.parametrize(
    ("category", "confidence", "host", "before", "related", "met", "decision", "without"),
    [
        (CODE, SURE, "a", [], [], 0, STOP, ()),
        (CODE, LIKELY, "a", [], [], 0, HERE, ()),
        (CODE, LIKELY, "a", [attempt(1, "a")], [], 0, STOP, ()),
        (CODE, LIKELY, "a", [], [], 1, STOP, ()),
        (XID, SURE, "a", [], [], 0, WITHOUT, ("a",)),
        (XID, SURE, "b", [attempt(1, "a", kind=XID)], [], 0, WITHOUT, ("a", "b")),
        (NET, LIKELY, "a", [], [AGAIN_HERE], 0, WITHOUT, ("a",)),
        (NET, LIKELY, "c", [attempt(1, "a"), attempt(2, "b")], [], 0, STOP, ()),
        (NET, LIKELY, None, [], [], 2, STOP, ()),
        (NET, LIKELY, None, [attempt(1, "a", kind=XID)], [], 0, WITHOUT, ("a",)),
        (NET, LIKELY, None, [], [], 0, HERE, ()),
        (END, SURE, None, [attempt(n) for n in (1, 2, 3)], [], 3, HERE, ()),
        (None, OPEN, None, [], [], 0, HERE, ()),
        (END, SURE, None, [attempt(1, step=40), attempt(2, step=40)], [], 0, STOP, ()),
    ],
)  # fmt: skip
def test_decision(
    blank: Diagnosis, category: Category | None, confidence: Confidence, host: str | None, before: list[Attempt],
    related: list[Related], met: int, decision: Decision, without: tuple[str, ...],
) -> None:  # fmt: skip
    diagnosis = replace(blank, category=category, confidence=confidence, host=host, signature="s")
    step = before[-1].step if before else None
    this = Attempt(len(before) + 1, Verdict.FAULT, "s", host, "x", step, category)
    advice = decide_restart(diagnosis, [*before, this], related, met)
    assert (advice.decision, advice.without) == (decision, without), advice.reason


def test_what_is_open_or_well_is_never_stopped_at_first(blank: Diagnosis) -> None:
    for verdict in (Verdict.UNKNOWN, Verdict.HEALTHY, Verdict.WARNING):
        found = replace(blank, verdict=verdict, category=CODE, confidence=SURE)
        assert decide_restart(found, [attempt(1)]).decision is HERE


def test_no_case_that_may_start_again_is_stopped_by_its_first_attempt() -> None:
    """Over the accepted answers of all cases: who is stopped at once has a cause that stays."""
    text = (ROOT / "evals" / "baseline.jsonl").read_text(encoding="utf-8")
    answers = {row["case"]: row for row in map(json.loads, text.splitlines())}
    stopped, wrong = 0, []
    for case in load_cases():
        row = answers.get(case.id)
        if row is None or (row["verdict"], row["confidence"]) != ("fault", "confirmed"):
            continue
        if row["category"] in {c.value for c in STAYS}:
            stopped += 1
            if not STAYS & {case.expect.category, *case.expect.accept_categories}:
                wrong.append(case.id)
    print(f"{stopped} stopped at their first attempt, {len(wrong)} of them wrongly")
    assert stopped > 10, "confirmed is rare, and stopping at once asks for it"
    assert not wrong
