"""Who answers in an incident where a model may help? Rules first, the model beside them, checked.

What rules can say is said at once. The model's part comes after it, holds only what evidence says, and
its absence costs nothing but itself.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING

from firstfault.agent.approval import HOW, read_decision
from firstfault.agent.assessment import AskedByModel, Assessment, assess, say_removed
from firstfault.agent.context import Search, TurnContext, open_context
from firstfault.agent.correction import correct
from firstfault.agent.exam.standing import read_standing
from firstfault.agent.failures import TurnStopped
from firstfault.agent.graph import Conversation, Outcome
from firstfault.agent.memo import digest_of, recall, remember
from firstfault.agent.model import Model
from firstfault.agent.preview import Preview, make_preview, say_preview
from firstfault.agent.probe import NAME as PROBE
from firstfault.agent.probe import OnceOnly, ProbeRunner, describe_request
from firstfault.agent.store import AgentStore, Decision, PendingProbe, open_checkpoints
from firstfault.agent.verdict import apply, decide, say
from firstfault.agent.view import read_prompt, write_told, write_view
from firstfault.conversation.answerer import Question
from firstfault.conversation.branches import read_refuted
from firstfault.conversation.rules import RuleAnswerer, search_lexically
from firstfault.conversation.walk import ORDER, Said, Walk, follow, phase_question
from firstfault.errors import ModelUnavailable
from firstfault.incidents.events import AnswerPart, Progress, VerdictReached
from firstfault.investigation.diagnosis import Diagnosis, LedBy
from firstfault_tools.dataclass import dataclass

if TYPE_CHECKING:
    from firstfault.incidents.records import Related
    from firstfault.settings import Settings

log = logging.getLogger(__name__)
LEADS = "leads"
"""What a model puts forward without a paragraph that answers: explanations, doubts."""
History = Callable[[str, Diagnosis], "tuple[Related, ...]"]
Part = AnswerPart | Progress | VerdictReached


@dataclass
class AgentAnswerer:
    """Answers by rule and asks the model where there is one; both stand on the same walk through the phases."""

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

    @property
    def earned(self) -> bool:
        """The model has passed its exam with this prompt, so its explanation may lead."""
        if self.model is None:
            return False
        return read_standing(self.settings, self.model.endpoint).passed

    def explain(self, question: Question) -> Iterator[Part]:
        """The model's part after a verdict, or what to do to get it."""
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
        yield from self._ask_model(question, "explain")

    def answer(self, question: Question) -> Iterator[Part]:
        """Rules, then the model. Commands are exact words, so that no sentence is taken for one."""
        decided = read_decision(self.store, question)
        if decided is not None:
            yield from self._resume(question, *decided)
            return
        word = question.text.strip().lower()
        if word in ("/preview", "/send") and self.model is not None:
            yield from self._handle_consent(question, word)
            return
        told = tuple(self.rules.answer(question))
        if self.model is None or not self._may_send(question.incident):
            yield from told
        elif self.earned:
            yield from self._answer_first(question, told)
        else:
            # whoever has not passed speaks second
            yield from told
            yield from self._ask_model(question, "answer", told)

    def _answer_first(self, question: Question, told: Sequence[AnswerPart]) -> Iterator[Part]:
        """The model's answer in the place of the one by rule, which it has seen; without one the rule's."""
        answered = False
        for part in self._ask_model(question, "answer", told):
            if isinstance(part, AnswerPart) and part.kind == LEADS:
                # explanations answer no question: the rule's answer stays, and they stand behind it
                yield from () if answered else told
                answered = True
            elif isinstance(part, AnswerPart) and part.source == "model" and part.kind != PROBE:
                answered = True
                # a calculator that was read otherwise than the rule read it is not opened with its numbers
                part = replace(
                    told[0], text=part.text, citations=part.citations, source="model", tool=None
                )
            yield part
        if not answered:
            yield from told

    def preview(self, question: Question) -> Preview:
        """Exactly what the first request of a turn would hold."""
        assert self.model is not None
        context = self._context(question, self._thread(question))
        message = write_message(context, walk_of(question), "explain")
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
        yield from self._ask_model(question, "explain")

    def _resume(
        self, question: Question, probe: PendingProbe, decision: Decision, reason: str
    ) -> Iterator[Part]:
        if self.model is None:
            yield AnswerPart("No model is configured any more, so nothing waits for this.")
            return
        yield Progress("probe", f"{decision.value}: {describe_request(probe.request['args'])}")
        context = self._context(question, probe.thread)
        # the ids that the first part of the turn gave out must mean the same again
        write_message(context, walk_of(question), "answer")
        yield from self._converse(question, context, lambda c: c.resume(decision, reason))

    def _ask_model(
        self, question: Question, task: str, told: Sequence[AnswerPart] = ()
    ) -> Iterator[Part]:
        context = self._context(question, self._thread(question))
        message = write_message(context, walk_of(question), task, told)
        digest = digest_of(context, message)
        known = recall(self.store, question.incident, digest, context)
        if known is not None:
            yield Progress("model", "it answered exactly this before, so it is not asked again")
            yield from self._use(question, context, known)
            return
        yield Progress("model", say_preview(make_preview(context, message)))
        yield from self._converse(question, context, lambda c: c.start(message), digest)

    def _converse(
        self,
        question: Question,
        context: TurnContext,
        run: Callable[[Conversation], Iterator[Progress]],
        digest: str = "",
    ) -> Iterator[Part]:
        assert self.model is not None
        try:
            with open_checkpoints(self.settings) as checkpoints:
                conversation = Conversation(self.model, context, checkpoints)
                yield from run(conversation)
                yield from correct(conversation, earned=self.earned)
                outcome = conversation.outcome
        except TurnStopped:
            return
        except ModelUnavailable as error:
            log.warning("model: %s", error)
            yield Progress("model", f"deterministic answer only: {error}")
            yield from _ask_phase(question)
            return
        if outcome.waiting is not None:
            self.store.ask_approval(question.incident, context.thread, outcome.waiting)
            yield Progress("approval", json.dumps(outcome.waiting))
            yield AnswerPart(
                f"The model asks to measure this node: {describe_request(outcome.waiting['args'])}. {HOW}",
                source="model",
                kind=PROBE,
            )
            return
        if digest:
            remember(self.store, question.incident, digest, context, outcome)
        yield from self._use(question, context, outcome)

    def _use(self, question: Question, context: TurnContext, outcome: Outcome) -> Iterator[Part]:
        assert outcome.reply is not None
        earned = self.earned
        assessment = assess(outcome.reply, context, earned=earned)
        yield from self._show(question, context, assessment, earned)
        yield Progress(
            "cost",
            f"{outcome.calls} call(s) of the model, {outcome.sent_tokens} tokens sent, "
            f"{outcome.received_tokens} received" + self._price(outcome.sent_tokens, outcome.received_tokens),
        )  # fmt: skip

    def _show(
        self,
        question: Question,
        context: TurnContext,
        assessment: Assessment,
        earned: bool,
    ) -> Iterator[Part]:
        removed = say_removed(assessment)
        if removed:
            yield Progress("grounding", removed)
        ruling = decide(context, assessment, earned=earned)
        before = question.diagnosis
        # once a model has led, its answers do not say so again
        text, citations = say(
            assessment, ruling, context, briefly=before is None or before.led_by is LedBy.MODEL
        )
        # what a model has led once is no longer the tools' reading, so it is not judged against again
        if before is not None and before.led_by is LedBy.RULE and not before.disputed:
            judged = apply(ruling, assessment, before, context)
            if judged != before:
                yield VerdictReached(judged)
        if text:
            yield AnswerPart(text, citations, "model", kind="" if assessment.answer else LEADS)
        else:
            yield Progress("grounding", "the model said nothing that the evidence says; see above")
        yield from _ask_phase(question, assessment.question)

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

    def _price(self, sent: int, received: int) -> str:
        assert self.model is not None
        endpoint = self.model.endpoint
        price = (sent * endpoint.price_in + received * endpoint.price_out) / 1e6
        return f", {price:.4f} in the currency of the price list" if price else ""


def walk_of(question: Question) -> Walk:
    """Where person and assistant stand, with what is said in this message."""
    said = [Said(e.question, e.time) for e in question.earlier]
    if question.text.strip() and not question.text.startswith("/"):
        said.append(Said(question.text, question.time))
    return follow(
        question.diagnosis, said, read_refuted(question.diagnosis, question.knowledge.pages)
    )


def _ask_phase(question: Question, asked: AskedByModel | None = None) -> Iterator[Part]:
    """The question of the open phase: the model's where it asks about that phase, else the one of the rules.

    After an answer by rule, which ends with its own, only the model's is shown.
    """
    walk = walk_of(question)
    if walk.current is None:
        return
    if asked is not None and asked.phase is walk.current:
        text = f"{asked.text} If you do not know: {asked.default}"
    elif question.text.strip() and not question.text.startswith("/"):
        return
    else:
        text, _ = phase_question(walk, question.diagnosis)
    number = ORDER.index(walk.current) + 1
    yield Progress("phase", describe(walk))
    yield AnswerPart(
        f"Phase {number} of {len(ORDER)}, {walk.current.value.replace('_', ' ')}, is open: {text}"
    )


def describe(walk: Walk) -> str:
    """The state in a few lines."""
    return "\n".join(f"- {p.name.value}: {p.status.value}. {p.summary}" for p in walk.phases)


def write_message(
    context: TurnContext, walk: Walk, task: str, told: Sequence[AnswerPart] = ()
) -> str:
    """First message of a turn: the view, what rules answer, the task, and the person's words, which are evidence too."""
    parts = [write_view(context, walk)]
    if told:
        parts.append(write_told(context, [p.text for p in told]))
    text = context.question.text.strip()
    if text and not text.startswith("/"):
        said = context.book.add_said(text[:4_000])
        context.book.show((said,))
        parts += [read_prompt("answer"), context.veil.hide(text[:4_000])]
    else:
        parts.append(read_prompt(task))
    return "\n\n".join(parts)
