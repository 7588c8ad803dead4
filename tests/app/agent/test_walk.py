"""With a model the walk is the one of the rules: told again from the messages, never moved by the model."""

from __future__ import annotations

from dataclasses import replace

from tests.app.agent.conftest import MakeQuestion

from firstfault.agent.answerer import AgentAnswerer, walk_of
from firstfault.conversation.answerer import Exchange
from firstfault.incidents.events import AnswerPart
from firstfault.investigation.diagnosis import PhaseName


def test_a_repeated_turn_says_the_same(answerer: AgentAnswerer, ask: MakeQuestion) -> None:
    first = replace(ask("we already checked the memory"), incident="i", turn=2)
    parts = [p.text for p in answerer.answer(first) if isinstance(p, AnswerPart)]
    again = [p.text for p in answerer.answer(first) if isinstance(p, AnswerPart)]
    assert parts
    assert again == parts


def test_what_was_said_before_stands_in_the_walk(ask: MakeQuestion) -> None:
    earlier = (Exchange("we already checked the memory", "Noted."),)
    walk = walk_of(replace(ask("And why?"), earlier=earlier))
    assert [s.text for s in walk.statements] == ["we already checked the memory"]
    back = walk_of(replace(ask("go back to localize"), earlier=earlier))
    assert back.current is PhaseName.LOCALIZE
