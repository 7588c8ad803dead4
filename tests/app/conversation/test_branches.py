"""Do suggestions fit what was asked before, and does a question that came with the files get the incident's answer?"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from firstfault.conversation.answerer import Exchange, Question
from firstfault.conversation.branches import branch_chips
from firstfault.conversation.rules import RuleAnswerer
from firstfault.incidents.events import AnswerPart
from firstfault.investigation.diagnosis import Diagnosis, Hypothesis
from firstfault.investigation.next_action import choose_action
from firstfault.workspace import Workspace
from firstfault_tools.findings import Category, Confidence, Verdict

WORKSPACE = Workspace()
KNOWN = WORKSPACE.knowledge
LOG = (
    "[rank11]: 2026-11-27 03:21:00 INFO step 4120 loss 2.19\n"
    "[rank11]: 2026-11-27 03:22:00 ERROR OSError: [Errno 116] Stale file handle: '/mnt/nfs/shard-00918.tar'\n"
)
DIAGNOSIS = WORKSPACE.diagnose_text("a.log", LOG.encode())


def ask(*said: str, diagnosis: Diagnosis = DIAGNOSIS) -> AnswerPart:
    earlier = tuple(Exchange(text, "") for text in said[:-1])
    question = Question("", len(said) + 1, said[-1], diagnosis, {}, earlier, KNOWN)
    part = next(RuleAnswerer().answer(question))
    assert isinstance(part, AnswerPart)
    return part


def test_after_the_check_its_outcomes_come_first() -> None:
    shown, not_shown = branch_chips(choose_action(DIAGNOSIS, KNOWN.pages))
    chips = ask("What do I run next?").suggestions
    assert chips[:2] == (shown, not_shown)
    assert ask("What do I run next?", shown).text.startswith("Then it is this: Stale file handle")
    told = ask("What do I run next?", f"{not_shown}.")
    assert told.kind == "incident.branch"
    assert "check next: the same `stat`" in told.text


RIVAL = Hypothesis("A switch drops packets.", Category.COMMUNICATION, Confidence.POSSIBLE, (), ())


@pytest.mark.parametrize(
    ("change", "said", "ruled_out", "now"),
    [
        ({}, ["It does not"], True, ""),
        ({"hypotheses": (*DIAGNOSIS.hypotheses, RIVAL)}, ["It does not."], True, RIVAL.root_cause),
        ({}, ["It does not", "we checked the storage, it is fine"], True, ""),
        ({}, ["It does"], False, ""),
        ({}, ["what else could it be?"], False, ""),
        # no check stands next: the words are no outcome of one
        ({"verdict": Verdict.HEALTHY}, ["It does not"], False, ""),
    ],
)
def test_an_outcome_against_it_rules_the_first_cause_out(
    change: dict[str, Any], said: list[str], ruled_out: bool, now: str
) -> None:
    part = ask("What do I run next?", *said, diagnosis=replace(DIAGNOSIS, **change))
    assert part.walk is not None
    ruled = part.walk.ruled_out
    assert (ruled is not None) is ruled_out
    if ruled is not None:
        assert (ruled.cause, ruled.now) == (DIAGNOSIS.root_cause, now)
        assert part.walk.board[-1].state == "ruled out by you"


def test_what_a_line_proves_is_not_ruled_out_by_an_outcome() -> None:
    lead = replace(DIAGNOSIS.hypotheses[0], confidence=Confidence.CONFIRMED)
    part = ask("What do I run next?", "It does not", diagnosis=replace(DIAGNOSIS, hypotheses=(lead,)))  # fmt: skip
    assert part.walk is not None
    assert part.walk.ruled_out is None
    assert "My conclusion did not change" in part.text


def test_what_was_asked_is_not_suggested_again() -> None:
    chips = ask("Why did it happen?", "What do I run next?", "What else could it be?").suggestions
    assert not {"Why did it happen?", "What do I run next?", "What else could it be?"} & set(chips)
    assert "How do I verify the fix?" in chips
    assert "The code" not in chips


@pytest.mark.parametrize("text", ["Throughput fell. Why?", "Is our setup any good for this? Why?"])
def test_what_came_with_the_files_is_answered_by_the_incident(text: str) -> None:
    question = Question("", 1, text, DIAGNOSIS, {}, (), KNOWN)
    part = next(RuleAnswerer().explain(question))
    assert part.kind.startswith("incident.")


def test_marks_of_a_page_are_words_in_an_answer() -> None:
    text = ask("how do I free a node with a stale mount?").text
    assert "[changes state]" not in text
