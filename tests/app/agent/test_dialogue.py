"""The phases move only for a reason; corrections and going back open what rested on them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.app.agent.conftest import MakeQuestion

from firstfault.agent.answerer import AgentAnswerer
from firstfault.agent.dialogue import (
    ORDER,
    Asked,
    Dialogue,
    Move,
    PhaseState,
    ask,
    begin,
    categories_in,
    show_question,
    take,
)
from firstfault.agent.guided import ask_whys, list_hypotheses, write_board
from firstfault.incidents.events import AnswerPart
from firstfault.investigation.diagnosis import NextArtefact, PhaseName, PhaseStatus
from firstfault_tools.findings import Category, Confidence

DONE, OPEN = PhaseStatus.DONE, PhaseStatus.OPEN


def state(*statuses: PhaseStatus, category: Category | None = Category.COMMUNICATION) -> Dialogue:
    phases = tuple(PhaseState(n, s, "x") for n, s in zip(ORDER, statuses, strict=True))
    asked = Asked(PhaseName.ISOLATE, "What changed?", "Nothing.", True)
    return Dialogue(phases, asked, verdict_category=category)


IN_ISOLATE = state(DONE, DONE, OPEN, OPEN, OPEN)


@pytest.mark.parametrize(
    ("text", "move", "current"),
    [
        ("The data set was replaced yesterday", Move.ANSWERED, PhaseName.ROOT_CAUSE),
        ("What is a watchdog timeout?", Move.ASKED, PhaseName.ISOLATE),
        ("Show me line 40", Move.ASKED, PhaseName.ISOLATE),
        ("I don't know", Move.UNANSWERED, PhaseName.ISOLATE),
        ("not sure", Move.UNANSWERED, PhaseName.ISOLATE),
        ("we already checked the network", Move.CORRECTED, PhaseName.ISOLATE),
        ("It is not the GPU", Move.CORRECTED, PhaseName.ISOLATE),
        ("the network is fine", Move.CORRECTED, PhaseName.ISOLATE),
        ("go back to localize", Move.ROLLED_BACK, PhaseName.LOCALIZE),
        ("Let's return to triage please", Move.ROLLED_BACK, PhaseName.TRIAGE),
        ("no, it was rank 5, not rank 3", Move.CORRECTED, PhaseName.LOCALIZE),
    ],
)
def test_moves(text: str, move: Move, current: PhaseName) -> None:
    after = take(IN_ISOLATE, text)
    assert after.last is move
    assert after.current is current


def test_a_correction_of_the_verdict_opens_isolation_again() -> None:
    settled = state(DONE, DONE, DONE, DONE, DONE)
    after = take(replace(settled, asked=None), "we already ruled out the network")
    assert [p.status for p in after.phases] == [DONE, DONE, OPEN, OPEN, OPEN]
    assert after.corrections[0].categories[0] is Category.COMMUNICATION
    other = take(replace(settled, asked=None), "we already checked the dataset")
    assert other.current is None


def test_a_question_that_was_not_shown_is_not_answered_by_chance() -> None:
    hidden = replace(IN_ISOLATE, asked=replace(IN_ISOLATE.asked, shown=False))  # type: ignore[type-var]
    assert take(hidden, "The data set was replaced").last is Move.ASKED
    text, shown = show_question(hidden)
    assert "If you do not know: Nothing." in text
    assert take(shown, "The data set was replaced").last is Move.ANSWERED


def test_a_model_cannot_ask_for_another_phase() -> None:
    assert ask(IN_ISOLATE, Asked(PhaseName.RESOLVE, "?", "")) == IN_ISOLATE
    asked = ask(IN_ISOLATE, Asked(PhaseName.ISOLATE, "Which driver?", "550")).asked
    assert asked is not None
    assert asked.text == "Which driver?"


@settings(deadline=None)
@given(
    st.lists(
        st.text(max_size=60)
        | st.sampled_from(["go back to triage", "it failed", "we checked the network"]),
        max_size=8,
    )
)
def test_never_skips_a_phase(texts: list[str]) -> None:
    dialogue = IN_ISOLATE
    for text in texts:
        before = dialogue
        dialogue = take(show_question(dialogue)[1], text)
        closed = [
            p.name for p, q in zip(dialogue.phases, before.phases, strict=True)
            if p.status is DONE and q.status is OPEN
        ]  # fmt: skip
        assert closed in ([], [before.current])
        assert (dialogue.last is Move.ANSWERED) is bool(closed)


def test_topics() -> None:
    assert categories_in("the InfiniBand fabric and the disk") == (
        Category.COMMUNICATION,
        Category.CHECKPOINT,
    )


def test_state_is_kept_between_turns_and_a_repeated_turn_starts_afresh(
    answerer: AgentAnswerer, ask: MakeQuestion
) -> None:
    first = replace(ask("we already checked the memory"), incident="i", turn=2)
    parts = [p.text for p in answerer.answer(first) if isinstance(p, AnswerPart)]
    assert "open again" in parts[0]
    again = [p.text for p in answerer.answer(first) if isinstance(p, AnswerPart)]
    assert again == parts
    kept = answerer.store.dialogue_before("i", 3)
    assert kept is not None
    assert len(kept.corrections) == 1
    assert answerer.store.dialogue_before("other", 3) is None


def test_the_board_has_for_against_test_and_what_was_said(ask: MakeQuestion) -> None:
    question = ask()
    assert question.diagnosis is not None
    dialogue = take(
        begin(question.diagnosis), "memory was already checked, we have ruled out memory"
    )
    rows = list_hypotheses(question.diagnosis, dialogue)
    assert rows[0].for_
    assert rows[0].test
    assert "ruled out" in rows[0].said
    assert "you said" in write_board(question.diagnosis, dialogue, question.knowledge)


def test_whys_stop_where_the_evidence_stops(ask: MakeQuestion) -> None:
    question = ask()
    assert question.diagnosis is not None
    ask_for = (NextArtefact("the memory snapshot", "it names the tensor", "python dump.py"),)
    whys = ask_whys(replace(question.diagnosis, next_artefacts=ask_for), question.knowledge)
    assert 2 <= len(whys) <= 5
    assert all(w.citations for w in whys[:-1])
    assert whys[-1].open
    assert "memory snapshot" in whys[-1].answer
    known = {c.n for c in question.diagnosis.citations}
    assert {n for w in whys for n in w.citations} <= known
    unsure = replace(question.diagnosis, hypotheses=(replace(question.diagnosis.hypotheses[0], confidence=Confidence.POSSIBLE),))  # fmt: skip
    assert len(ask_whys(unsure, question.knowledge)) < len(whys) + 1
