"""What is replied to somebody who says something: did the conclusion change, and why or why not?"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from firstfault.conversation.asked import Asked
from firstfault.conversation.blocks import write_block
from firstfault.conversation.board import RULED_OUT, Board, is_stated, withstands_check
from firstfault.conversation.reply import Reply
from firstfault.conversation.sources import Sources
from firstfault.conversation.topics import team_of
from firstfault.conversation.walk import Walk, named_phase, phase_question
from firstfault.investigation.diagnosis import Diagnosis, Hypothesis
from firstfault_tools.dataclass import dataclass
from firstfault_tools.findings import Category, Confidence

_KIND: Mapping[Category, str] = {
    Category.OOM: "memory", Category.COMMUNICATION: "communication", Category.NUMERICAL: "numerics",
    Category.HARDWARE: "hardware", Category.ENVIRONMENT: "the environment (driver, image, versions)", Category.DATA: "data",
    Category.CHECKPOINT: "checkpoints and storage", Category.PERFORMANCE: "performance", Category.SCHEDULER: "the scheduler",
    Category.CODE_BUG: "the code",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Moved:
    """State and board before and after one message."""

    asked: Asked
    diagnosis: Diagnosis | None
    before: Board
    after: Board
    walk: Walk
    sources: Sources

    def marks(self, hypothesis: Hypothesis | None) -> str:
        if hypothesis is None or self.diagnosis is None:
            return ""
        return self.sources.marks(hypothesis.for_[:2], self.diagnosis)

    def say(self, hypothesis: Hypothesis | None) -> str:
        if hypothesis is None:
            return "the cause is open"
        return f"{hypothesis.root_cause.rstrip('.')} {self.marks(hypothesis)}".strip()

    @property
    def changed(self) -> bool:
        return self.before.lead != self.after.lead

    @property
    def topics(self) -> str:
        """What was checked, as an answer calls it."""
        parts = [p.say for p in self.walk.statements[-1].checked] if self.walk.statements else []
        return " and ".join(parts or [f"the {t.id}" for t in self.asked.topics]) or "that"

    @property
    def change(self) -> str:
        """Whether the conclusion changed, and why."""
        said = self.walk.statements[-1].text if self.walk.statements else self.asked.text
        if self.changed:
            return f'My conclusion changed, because you said "{said}". Now first: {self.say(self.after.lead)}. Before: {self.say(self.before.lead)}.'
        if self.after.lead is None:
            return "No explanation stands on evidence yet, so there is no conclusion to change."
        sure = self.after.lead.confidence
        why = (
            "it rests on a line that proves it, and a statement does not outweigh that"
            if sure is Confidence.CONFIRMED
            or (self.diagnosis is not None and is_stated(self.after.lead, self.diagnosis))
            else "what you said does not speak against it"
        )
        return f"My conclusion did not change, because {why}: {self.say(self.after.lead)}."


def reply_to_statement(moved: Moved) -> Reply:
    """The reply, with the question of the phase that is open."""
    text = _REPLY[moved.asked.intent](moved)
    question, options = phase_question(moved.walk, moved.diagnosis)
    current = moved.walk.current
    if question and current is not None:
        number = list(type(current)).index(current) + 1
        text += f"\n\n**Phase {number} of 5, {current.value.replace('_', ' ')}:** {question}"
    return Reply(text, f"walk.{moved.asked.intent}", options or ("What do I run next?", "What else could it be?"))  # fmt: skip


def _ruled_out(m: Moved) -> str:
    if m.diagnosis is None:
        return f"Noted: {m.topics} is ruled out by you. Nothing was read yet that could rest on it; add the logs and it counts in the verdict."
    lead = m.before.lead
    said = m.walk.statements[-1]
    if not said.checked and not m.asked.topics:
        return f"Noted, though I cannot tell which part of the system you mean. {m.change}"
    dropped = [r for r in m.after.rows if r.state == RULED_OUT]
    names = "; ".join(r.root_cause.rstrip(".") for r in dropped[:3])
    if lead is None:
        return f"The cause was open already, after what you ruled out; {m.topics} is noted as well.{_collect(m)}"
    if not said.speaks_of(lead):
        head = f"The verdict does not rest on {m.topics}: it rests on {m.say(lead)}."
        tail = f" Ruled out by you: {names}." if names else ""
        return f"{head} So my conclusion did not change; {m.topics} is noted as ruled out by you.{tail}"
    if withstands_check(lead, m.diagnosis) or not said.rules_out(lead):
        disproof = f" It would be wrong if: {m.sources.carry(m.diagnosis.disproof, m.diagnosis)}" if m.diagnosis.disproof else ""  # fmt: skip
        return (
            f"My conclusion did not change: {m.say(lead)}. That line is there whatever the check found; the check "
            f"and the line contradict each other, so look at what was checked, where and when.{disproof}"
        )
    if m.changed and m.after.lead is not None:
        return f"{m.change} Ruled out by you: {names}."
    return (
        f"My conclusion changed, because you ruled out {m.topics}: nothing else that was read explains the "
        f"run, so the cause is open again. Ruled out by you: {names or m.say(lead)}.{_collect(m)}"
    )


def _collect(m: Moved) -> str:
    wanted = m.diagnosis.next_artefacts if m.diagnosis is not None else ()
    return f" Collect next: {wanted[0].what}.\n\n{write_block(wanted[0].command)}" if wanted else " Add the logs of the other ranks and the kernel log."  # fmt: skip


def _go_back(m: Moved) -> str:
    phase = named_phase(m.asked)
    name = phase.value.replace("_", " ")
    state = next(p for p in m.walk.phases if p.name is phase)
    return f"Back at {name}; it and what follows are open again. {state.summary} What the evidence says stays: {m.say(m.after.lead)}."


def _came_back(m: Moved) -> str:
    if m.diagnosis is None:
        return "Then the fix did not hold, and resolve and root cause are open again. Nothing was read here yet: add the log of the new failure."
    sure = m.before.lead is not None and m.before.lead.confidence is Confidence.CONFIRMED
    what = (
        f"Either the fix did not reach every node or process, or there is a second cause; the line that proved the first one stands: {m.say(m.before.lead)}."
        if sure
        else m.change
    )
    return (
        f"Then the fix did not hold: resolve and root cause are open again. {what} Add the log of the new "
        f"failure; the same rank, host and step as before speak for the same cause, another place for a second "
        f"one."
    )


def _fixed(m: Moved) -> str:
    step = ""
    if m.diagnosis is not None and m.diagnosis.first_line is not None:
        step = f" ({m.diagnosis.first_line.file}, line {m.diagnosis.first_line.line})"
    return (
        f"Good, noted; the incident stays open until a run shows it. Resolve closes with a log in which the "
        f"run passes the point where it failed{step}: add it here, or compare with `firstfault verify-fix`. "
        f"For a fault that comes by chance wait three times its usual interval."
    )


def _doubt(m: Moved) -> str:
    if m.diagnosis is None:
        return "Noted. There is no verdict here yet that could be wrong."
    lead = m.before.lead
    if m.changed:
        return m.change
    disproof = f" It would be proven wrong by this: {m.sources.carry(m.diagnosis.disproof, m.diagnosis)}" if m.diagnosis.disproof else ""  # fmt: skip
    rank = m.walk.statements[-1].rank if m.walk.statements else None
    other = f" You name rank {rank}: add its log, and the verdict is weighed again with it." if rank is not None else ""  # fmt: skip
    return (
        f"Noted; isolate and what follows are open again. Nothing that was read contradicts it so far: {m.say(lead)}.{disproof}{other} "
        f"What was it really? Say it under Feedback, and it is kept as a case."
    )


def _answer(m: Moved) -> str:
    if m.asked.tells_nothing:
        return f"That is fine; it stays open. {m.change if m.diagnosis is not None else ''}".strip()
    statement = m.walk.statements[-1] if m.walk.statements else None
    kinds = statement.supports if statement is not None else ()
    hint = " or ".join(_KIND[c] for c in kinds)
    if m.diagnosis is not None and m.after.rows:
        told = f" It makes {hint} likelier." if hint else ""
        return f"{m.change}{told} Noted as said by {statement.who if statement else 'you'}, not as seen."
    if not hint:
        return "Noted, as said and not as seen. Without a log nothing can be concluded; paste its last 200 lines, of every rank if you can."
    first = team_of(kinds[0])
    return (
        f"That points to {hint}, by what you said alone. Noted as said by {statement.who if statement else 'you'}; "
        f"add a log so that it can be seen. Who knows most about it: {first}."
    )


_REPLY: Mapping[str, Callable[[Moved], str]] = {
    "ruled_out": _ruled_out,
    "go_back": _go_back,
    "came_back": _came_back,
    "fixed": _fixed,
    "doubt": _doubt,
    "answer": _answer,
}
