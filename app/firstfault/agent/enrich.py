"""What does a model add to one diagnosis from the command line? One turn, no incident on record."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from firstfault.agent.answerer import write_message
from firstfault.agent.assessment import Assessment, assess, say_removed
from firstfault.agent.context import Search, TurnContext, open_context
from firstfault.agent.correction import correct
from firstfault.agent.failures import EndpointAway
from firstfault.agent.graph import Conversation, Outcome
from firstfault.agent.judge import Ruling
from firstfault.agent.preview import Preview, make_preview
from firstfault.agent.verdict import apply, decide, say
from firstfault.agent.view import read_prompt
from firstfault.conversation.answerer import Question
from firstfault.conversation.rules import search_lexically
from firstfault.conversation.walk import begin
from firstfault.errors import ModelUnavailable
from firstfault.grounding.items import Item
from firstfault.investigation.diagnosis import Citation, Diagnosis
from firstfault_tools.dataclass import dataclass

if TYPE_CHECKING:
    from firstfault.agent.model import Model
    from firstfault.investigation.knowledge import Knowledge


@dataclass(frozen=True)
class Enriched:
    """`diagnosis` with what the model may add; `text` is its checked explanation, '' when it has none.

    problem: why there is none, in a sentence. The deterministic diagnosis stands in every case.
    away: the endpoint was not there or let nobody in, so nothing is known of the model.
    """

    diagnosis: Diagnosis
    text: str = ""
    citations: tuple[Citation, ...] = ()
    removed: str = ""
    problem: str = ""
    away: bool = False
    assessment: Assessment | None = None
    outcome: Outcome | None = None
    ruling: Ruling | None = None
    items: Mapping[str, Item] = field(default_factory=dict)
    """Evidence that the model was shown, by id."""


def make_question(
    diagnosis: Diagnosis, artefacts: Mapping[str, Path], knowledge: Knowledge, text: str = ""
) -> Question:
    """Question of a turn without an incident."""
    return Question("", 0, text, diagnosis, artefacts, (), knowledge)


def enrich(
    question: Question,
    model: Model,
    *,
    with_tools: bool = True,
    grounded: bool = True,
    earned: bool = False,
    search: Search = search_lexically,
    show: Callable[[str], None] = lambda _text: None,
) -> Enriched:
    """Ask the model once. Never raises for what the endpoint does.

    earned: it has passed its exam, so its explanation may lead.
    """
    diagnosis = question.diagnosis
    assert diagnosis is not None
    context, message = _begin(question, model, search)
    conversation = Conversation(model, context, with_tools=with_tools)
    try:
        for progress in chain(
            conversation.start(message), correct(conversation, earned=earned, grounded=grounded)
        ):
            show(f"{progress.step}: {progress.detail}")
        assert conversation.outcome.reply is not None
        reply = conversation.outcome.reply
        assessment = assess(reply, context, earned=earned, grounded=grounded)
    except ModelUnavailable as error:
        noted = {
            "name": model.endpoint.name,
            "state": "deterministic answer only",
            "why": str(error),
        }
        tools = {**diagnosis.tools, "model": noted}
        away = isinstance(error, EndpointAway)
        return Enriched(replace(diagnosis, tools=tools), problem=str(error), away=away)
    ruling = decide(context, assessment, earned=earned)
    text, citations = say(assessment, ruling, context)
    merged = apply(ruling, assessment, diagnosis, context)
    outcome = conversation.outcome
    noted_all = {
        "name": model.endpoint.name,
        "state": "answered",
        "explanation": text,
        "citations": [_row(c) for c in citations],
        "statements": assessment.proposed,
        "grounded": assessment.kept,
        "removed": dict(assessment.removed),
        "passed_exam": earned,
        "ruling": list(ruling.why),
        "calls": outcome.calls,
        "tokens_sent": outcome.sent_tokens,
        "tokens_received": outcome.received_tokens,
    }
    return Enriched(
        replace(merged, tools={**diagnosis.tools, "model": noted_all}),
        text,
        citations,
        say_removed(assessment),
        assessment=assessment,
        outcome=outcome,
        ruling=ruling,
        items=dict(context.book.items),
    )


def preview(question: Question, model: Model, search: Search = search_lexically) -> Preview:
    """What `enrich` would send first."""
    context, message = _begin(question, model, search)
    return make_preview(context, message)


def _begin(question: Question, model: Model, search: Search) -> tuple[TurnContext, str]:
    private = (read_prompt("system"), read_prompt("final"))
    context = open_context(question, model.endpoint, search, private=private)
    task = "answer" if question.text.strip() else "explain"
    return context, write_message(context, begin(question.diagnosis), task)


def _row(citation: Citation) -> dict[str, object]:
    return {
        "n": citation.n, "kind": citation.kind.value, "quote": citation.quote, "file": citation.file,
        "line": citation.line, "page": citation.page, "heading": citation.heading, "url": citation.url,
    }  # fmt: skip
