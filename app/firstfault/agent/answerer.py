"""Who answers in an incident where a model may help? Rules first, the model beside them, checked.

What rules can say is said at once. The model's part comes after it, holds only what evidence says, and
its absence costs nothing but itself.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from firstfault.agent.assessment import Assessment, assess, say, say_removed
from firstfault.agent.context import Search, TurnContext, open_context
from firstfault.agent.dialogue import (
    Asked,
    Dialogue,
    Move,
    ask,
    begin,
    describe,
    refresh,
    show_question,
    take,
)
from firstfault.agent.failures import TurnStopped
from firstfault.agent.graph import Conversation
from firstfault.agent.guided import write_board
from firstfault.agent.model import Model
from firstfault.agent.preview import Preview, make_preview, say_preview
from firstfault.agent.probe import OnceOnly, ProbeRunner, describe_request
from firstfault.agent.store import AgentStore, Decision, PendingProbe, open_checkpoints
from firstfault.agent.view import read_prompt, write_view
from firstfault.conversation.answerer import Question
from firstfault.conversation.rules import RuleAnswerer, search_lexically
from firstfault.errors import ModelUnavailable
from firstfault.incidents.events import AnswerPart, Progress
from firstfault.investigation.diagnosis import Diagnosis
from firstfault_tools.expressions import expression

if TYPE_CHECKING:
    from firstfault.incidents.records import Related
    from firstfault.settings import Settings

log = logging.getLogger(__name__)
History = Callable[[str, Diagnosis], "tuple[Related, ...]"]
Part = AnswerPart | Progress
_REJECT = expression(r"(?is)^/?reject(?:\s*[:,]\s*(?P<reason>.{0,400}))?$")


@dataclass
class AgentAnswerer:
    """Answers by rule, keeps the dialogue's state, and asks the model where there is one."""

    settings: Settings
    store: AgentStore
    model: Model | None = None
    search: Search = search_lexically
    history: History = lambda _incident, _diagnosis: ()
    run_probe: ProbeRunner | None = None
    rules: RuleAnswerer = field(default_factory=RuleAnswerer)

    @property
    def repeatable(self) -> bool:
        """Without a model the same question gives the same parts."""
        return self.model is None

    @property
    def explains(self) -> bool:
        """With a model there is something to say after the verdict."""
        return self.model is not None

    def explain(self, question: Question) -> Iterator[Part]:
        """The model's part after a verdict, or what to do to get it."""
        before = self.store.dialogue_before(question.incident, question.turn)
        dialogue = begin(question.diagnosis)
        if before is not None:
            dialogue = refresh(before, question.diagnosis)
        self._save(question, dialogue)
        if self.model is None:
            return
        if not self._may_send(question.incident):
            preview = self.preview(question)
            yield Progress("consent", say_preview(preview))
            yield AnswerPart(
                f"A model is configured and has not been asked: {say_preview(preview)}. "
                "Reply `/preview` to read it all, `/send` to let it go."
            )
            return
        yield from self._ask_model(question, dialogue, "explain")

    def answer(self, question: Question) -> Iterator[Part]:
        """Rules, then the model. Commands are exact words, so that no sentence is taken for one."""
        decided = self._decision(question)
        if decided is not None:
            yield from self._resume(question, *decided)
            return
        word = question.text.strip().lower()
        if word in ("/preview", "/send") and self.model is not None:
            yield from self._handle_consent(question, word)
            return
        before = self.store.dialogue_before(question.incident, question.turn)
        dialogue = take(before or begin(question.diagnosis), question.text)
        self._save(question, dialogue)
        moved = dialogue.last in (Move.CORRECTED, Move.ROLLED_BACK, Move.ANSWERED)
        if moved:
            yield self._say_state(question, dialogue)
        if dialogue.last in (Move.ASKED, Move.UNANSWERED):
            yield from self.rules.answer(question)
        if self.model is not None and self._may_send(question.incident):
            yield from self._ask_model(question, dialogue, "answer")
        elif moved or dialogue.last is Move.UNANSWERED:
            yield from self._ask_phase(question, dialogue)

    def preview(self, question: Question) -> Preview:
        """Exactly what the first request of a turn would hold."""
        assert self.model is not None
        dialogue = self.store.dialogue_before(question.incident, question.turn + 1)
        context = self._context(question, self._thread(question))
        message = write_message(context, dialogue or begin(question.diagnosis), "explain")
        return make_preview(context, message)

    def pending(self, incident: str) -> PendingProbe | None:
        """A probe that waits for a person."""
        return self.store.pending(incident)

    def allow_sending(self, incident: str) -> None:
        """A person has seen the preview and lets it go, for this incident and endpoint."""
        if self.model is not None:
            self.store.give_consent(incident, self.model.endpoint.url)

    def _may_send(self, incident: str) -> bool:
        assert self.model is not None
        endpoint = self.model.endpoint
        return not endpoint.needs_consent or self.store.has_consent(incident, endpoint.url)

    def _handle_consent(self, question: Question, word: str) -> Iterator[Part]:
        if word == "/preview":
            preview = self.preview(question)
            fence = "~~~~"
            yield AnswerPart(
                f"{say_preview(preview)}. Tools it may call: {', '.join(preview.tools)}.\n\n"
                f"{fence}text\n[system]\n{preview.system}\n\n[user]\n{preview.message}\n{fence}"
            )
            return
        self.allow_sending(question.incident)
        dialogue = self.store.dialogue_before(question.incident, question.turn)
        dialogue = dialogue or begin(question.diagnosis)
        self._save(question, dialogue)
        yield from self._ask_model(question, dialogue, "explain")

    def _decision(self, question: Question) -> tuple[PendingProbe, Decision, str] | None:
        rejected = _REJECT.match(question.text.strip())
        reason = (rejected["reason"] or "") if rejected is not None else ""
        earlier = self.store.decided_in(question.incident, question.turn)
        if earlier is not None:
            return (*earlier, reason)
        approved = question.text.strip().lower() in ("/approve", "approve")
        if not approved and rejected is None:
            return None
        probe = self.store.pending(question.incident)
        decision = Decision.APPROVE if approved else Decision.REJECT
        if probe is None or not self.store.decide(probe.thread, decision, question.turn):
            return None
        return probe, decision, reason

    def _resume(
        self, question: Question, probe: PendingProbe, decision: Decision, reason: str
    ) -> Iterator[Part]:
        dialogue = self.store.dialogue_before(question.incident, question.turn)
        dialogue = dialogue or begin(question.diagnosis)
        self._save(question, dialogue)
        if self.model is None:
            yield AnswerPart("No model is configured any more, so nothing waits for this.")
            return
        yield Progress("probe", f"{decision.value}: {describe_request(probe.request['args'])}")
        context = self._context(question, probe.thread)
        # the ids that the first part of the turn gave out must mean the same again
        write_message(context, dialogue, "answer")
        yield from self._converse(question, dialogue, context, lambda c: c.resume(decision, reason))

    def _ask_model(self, question: Question, dialogue: Dialogue, task: str) -> Iterator[Part]:
        context = self._context(question, self._thread(question))
        message = write_message(context, dialogue, task)
        yield Progress("model", say_preview(make_preview(context, message)))
        yield from self._converse(question, dialogue, context, lambda c: c.start(message))

    def _converse(
        self,
        question: Question,
        dialogue: Dialogue,
        context: TurnContext,
        run: Callable[[Conversation], Iterator[Progress]],
    ) -> Iterator[Part]:
        assert self.model is not None
        try:
            with open_checkpoints(self.settings) as checkpoints:
                conversation = Conversation(self.model, context, checkpoints)
                yield from run(conversation)
                outcome = conversation.outcome
        except TurnStopped:
            return
        except ModelUnavailable as error:
            log.warning("model: %s", error)
            yield Progress("model", f"deterministic answer only: {error}")
            yield from self._ask_phase(question, dialogue)
            return
        if outcome.waiting is not None:
            self.store.ask_approval(question.incident, context.thread, outcome.waiting)
            yield Progress("approval", json.dumps(outcome.waiting))
            yield AnswerPart(
                f"The model asks to measure this node: {describe_request(outcome.waiting['args'])}. "
                "Nothing runs before you reply `/approve`; `/reject: reason` goes on without it.",
                source="model",
            )
            return
        assert outcome.reply is not None
        assessment = assess(outcome.reply, context)
        dialogue = adopt_question(dialogue, assessment)
        yield from self._show(question, dialogue, context, assessment)
        yield Progress(
            "cost",
            f"{outcome.calls} call(s) of the model, {outcome.sent_tokens} tokens sent, "
            f"{outcome.received_tokens} received" + self._price(outcome.sent_tokens, outcome.received_tokens),
        )  # fmt: skip

    def _show(
        self,
        question: Question,
        dialogue: Dialogue,
        context: TurnContext,
        assessment: Assessment,
    ) -> Iterator[Part]:
        removed = say_removed(assessment)
        if removed:
            yield Progress("grounding", removed)
        shown = replace(assessment, question=None)
        text, citations = say(shown, context)
        if text:
            yield AnswerPart(text, citations, source="model")
        else:
            yield Progress("grounding", "the model said nothing that the evidence says; see above")
        yield from self._ask_phase(question, dialogue)

    def _ask_phase(self, question: Question, dialogue: Dialogue) -> Iterator[Part]:
        text, dialogue = show_question(dialogue)
        self._save(question, dialogue)
        if text:
            yield Progress("phase", describe(dialogue))
            yield AnswerPart(text)

    def _say_state(self, question: Question, dialogue: Dialogue) -> AnswerPart:
        text = f"{_HEADS[dialogue.last]}\n\n{describe(dialogue)}"
        if question.diagnosis is None:
            return AnswerPart(text)
        board = write_board(question.diagnosis, dialogue, question.knowledge)
        return AnswerPart(f"{text}\n\n{board}", question.diagnosis.citations)

    def _context(self, question: Question, thread: str) -> TurnContext:
        assert self.model is not None
        diagnosis = question.diagnosis
        related = self.history(question.incident, diagnosis) if diagnosis is not None else ()
        probe = OnceOnly(self.store, self.run_probe) if self.run_probe is not None else None
        private = (read_prompt("system"), read_prompt("final"))
        return open_context(
            question, self.model.endpoint, self.search, related, probe, private, thread
        )

    def _thread(self, question: Question) -> str:
        return f"{question.incident}:{question.turn}"

    def _save(self, question: Question, dialogue: Dialogue) -> None:
        self.store.save_dialogue(question.incident, question.turn, dialogue)

    def _price(self, sent: int, received: int) -> str:
        assert self.model is not None
        endpoint = self.model.endpoint
        price = (sent * endpoint.price_in + received * endpoint.price_out) / 1e6
        return f", {price:.4f} in the currency of the price list" if price else ""


_HEADS = {
    Move.CORRECTED: "Noted; what rested on it is open again.",
    Move.ROLLED_BACK: "Back to that phase; what came after it is open again.",
    Move.ANSWERED: "Noted as your answer.",
}


def write_message(context: TurnContext, dialogue: Dialogue, task: str) -> str:
    """First message of a turn: the task, the view, and the person's words."""
    parts = [read_prompt(task), write_view(context, dialogue)]
    text = context.question.text.strip()
    if text and task == "answer":
        said = context.book.add_said(text[:4_000])
        parts.append(f"The engineer asks ({said.id}):\n{context.veil.hide(text[:4_000])}")
    return "\n\n".join(parts)


def adopt_question(dialogue: Dialogue, assessment: Assessment) -> Dialogue:
    """The model's question takes the default one's place, for the open phase only."""
    asked = assessment.question
    if asked is None:
        return dialogue
    return ask(dialogue, Asked(asked.phase, asked.text, asked.default))
