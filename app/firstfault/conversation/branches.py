"""Which outcome of the check does a person tell, and what follows from it? The two answers that the page offers for it."""

from __future__ import annotations

from collections.abc import Mapping

from firstfault.conversation.answerer import Question
from firstfault.conversation.asked import read_asked
from firstfault.conversation.board import list_ruled_out
from firstfault.conversation.incident import suggest
from firstfault.conversation.sources import Sources
from firstfault.conversation.walk import Refutes, Walk
from firstfault.investigation.diagnosis import Diagnosis
from firstfault.investigation.next_action import (
    Action,
    ActionKind,
    choose_action,
    choose_next,
    leave_out,
    write_action,
)
from firstfault_tools.knowledge.page import Page

MOST = 60
"""Characters of an outcome on a button."""
NOT_SHOWN = "It does not"


def branch_chips(action: Action | None) -> tuple[str, ...]:
    """`It shows row 3 empty`, `It does not`; nothing where the next action is no check with an outcome."""
    if action is None or action.kind is not ActionKind.CHECK or not action.supports_if:
        return ()
    return _say_shown(action), NOT_SHOWN


def stand_next(diagnosis: Diagnosis, walk: Walk, pages: Mapping[str, Page]) -> Action | None:
    """The next action after what was said: of the verdict, or of what is left where a person has ruled it out."""
    ruled = list_ruled_out(diagnosis, walk)
    if not ruled or diagnosis.hypotheses[0].root_cause not in ruled:
        return choose_action(diagnosis, pages)
    return choose_next(diagnosis, pages, ruled)


def read_refuted(diagnosis: Diagnosis | None, pages: Mapping[str, Page]) -> Refutes:
    """Reads which cause a message speaks against as the outcome of the check that stands next."""

    def refutes(text: str, walk: Walk) -> str:
        if diagnosis is None or not diagnosis.hypotheses or not _says_not_shown(text):
            return ""
        if not branch_chips(stand_next(diagnosis, walk, pages)):
            return ""
        ruled = list_ruled_out(diagnosis, walk)
        left = [h.root_cause for h in diagnosis.hypotheses if h.root_cause not in ruled]
        return left[0] if left else ""

    return refutes


def _says_not_shown(text: str) -> bool:
    return text.strip().rstrip(".!").lower() == NOT_SHOWN.lower()


def answer_branch(text: str, action: Action | None, diagnosis: Diagnosis, marks: str) -> str:
    """What follows from the outcome that `text` tells; '' where it tells none of this action."""
    chips = branch_chips(action)
    said = text.strip().rstrip(".!").lower()
    if action is None or said not in [c.lower() for c in chips]:
        return ""
    add = "Add its output, and it counts as evidence: until then it is said and not seen."
    if said == chips[0].lower():
        then = action.then.rstrip(".") or "the explanation above holds"
        return (
            f"Then it is this: {diagnosis.root_cause.rstrip('. ')} {marks}. Do next: {then}. {add}"
        )
    shown, follows = action.reading[-1] if action.refutes_if else ("", action.otherwise)
    what = f" {shown}: {follows}." if shown else f" {follows[:1].upper()}{follows[1:]}." if follows else ""  # fmt: skip
    return f"Then it does not bear out the verdict ({diagnosis.root_cause.rstrip('. ')} {marks}).{what} {add}"


def _say_shown(action: Action) -> str:
    text = action.supports_if.rstrip(".")
    if len(text) > MOST:
        text = text[: text.rfind(" ", 0, MOST)].rstrip(",;: ") + " …"
    return f"It shows {text}"


def tell_branch(
    question: Question, diagnosis: Diagnosis, sources: Sources, before: Walk, walk: Walk
) -> str:
    """What follows from the outcome of the check that the message tells; '' where it tells none. before and walk: the
    state before the message and after it."""
    pages = question.knowledge.pages
    action = stand_next(diagnosis, before, pages)
    if not branch_chips(action):
        return ""
    ruled = list_ruled_out(diagnosis, before)
    left = leave_out(diagnosis, ruled) if ruled else diagnosis
    marks = sources.marks(left.hypotheses[0].for_[:2], diagnosis) if left.hypotheses else ""
    told = answer_branch(question.text, action, left, marks)
    if not told or not _says_not_shown(question.text):
        return told
    if len(list_ruled_out(diagnosis, walk)) == len(ruled):
        return f"{told} My conclusion did not change: what was read states this cause by itself."
    after = stand_next(diagnosis, walk, pages)
    then = f" Next: {write_action(after)}" if after is not None else ""
    return f"{told} It is ruled out by you.{then}"


def suggest_now(question: Question, diagnosis: Diagnosis, kind: str, walk: Walk) -> tuple[str, ...]:
    """What fits the state: outcomes of the check that was told, and what nobody has asked yet. kind: of the answer."""
    asked = kind.removeprefix("incident.")
    told = asked in ("next", "branch")
    chips = branch_chips(stand_next(diagnosis, walk, question.knowledge.pages)) if told else ()
    earlier = {read_asked(e.question, True).intent for e in question.earlier}
    return suggest(diagnosis, asked, earlier, chips)
