"""What is next where a person has ruled the first cause out: of what is left, never of what was ruled out."""

from __future__ import annotations

import pytest
from evals.cases import find_case

from firstfault.investigation.diagnosis import Diagnosis
from firstfault.investigation.headline import name_ruled_out
from firstfault.investigation.next_action import ActionKind, choose_action, choose_next, leave_out
from firstfault.workspace import Workspace
from firstfault_tools.findings import Confidence, Verdict

WORKSPACE = Workspace()
PAGES = WORKSPACE.knowledge.pages
CASES = ["comm-ib-port-flap", "lab-oom_one_rank", "public-comm-27-per-rank-continue-skips-backward"]


def diagnose(case: str) -> Diagnosis:
    folder = find_case(case)
    return WORKSPACE.diagnose_paths([p for p in sorted(folder.iterdir()) if p.name != "case.yaml"])


@pytest.mark.parametrize("case", CASES)
def test_there_is_a_next_check_and_no_fix_of_what_was_ruled_out(case: str) -> None:
    diagnosis = diagnose(case)
    first, *others = diagnosis.hypotheses
    before = choose_action(diagnosis, PAGES)
    action = choose_next(diagnosis, PAGES, [first.root_cause])
    assert action is not None
    assert before is not None
    assert action.kind is ActionKind.CHECK
    assert action.what != before.what
    assert action.what
    left = leave_out(diagnosis, [first.root_cause])
    assert not left.fixes
    assert [h.root_cause for h in left.hypotheses] == [h.root_cause for h in others if h.for_]
    page = PAGES.get(left.hypotheses[0].page) if left.hypotheses else None
    if page is not None and any(c.command for c in page.checks):
        assert action.what in [c.text for c in page.checks], "the check of the first that is left"


@pytest.mark.parametrize("case", CASES)
def test_where_all_are_ruled_out_what_is_missing_is_asked_for(case: str) -> None:
    diagnosis = diagnose(case)
    causes = [h.root_cause for h in diagnosis.hypotheses]
    left = leave_out(diagnosis, causes)
    assert (left.verdict, left.confidence) == (Verdict.UNKNOWN, Confidence.UNKNOWN)
    action = choose_next(diagnosis, PAGES, causes)
    assert action is None or action.kind is ActionKind.CHECK


@pytest.mark.parametrize(
    ("cause", "now", "title"),
    [
        ("disk full on node-3", "", "Ruled out: disk full on node-3; open"),
        ("disk full on node-3", "A slow link", "Ruled out: disk full on node-3; now a slow link"),
    ],
)
def test_the_title_says_how_it_stands(cause: str, now: str, title: str) -> None:
    assert name_ruled_out(cause, now) == title
    assert len(name_ruled_out("a long cause " * 20, "another one " * 20)) <= 110
