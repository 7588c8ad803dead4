"""Which outcome of the check does a person tell, and what follows from it? The two answers that the page offers for it."""

from __future__ import annotations

from firstfault.conversation.answerer import Question
from firstfault.conversation.asked import read_asked
from firstfault.conversation.incident import suggest
from firstfault.conversation.sources import Sources
from firstfault.investigation.diagnosis import Diagnosis
from firstfault.investigation.next_action import Action, ActionKind, choose_action

MOST = 60
"""Characters of an outcome on a button."""
NOT_SHOWN = "It does not"


def branch_chips(action: Action | None) -> tuple[str, ...]:
    """`It shows row 3 empty`, `It does not`; nothing where the next action is no check with an outcome."""
    if action is None or action.kind is not ActionKind.CHECK or not action.supports_if:
        return ()
    return _say_shown(action), NOT_SHOWN


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


def tell_branch(question: Question, diagnosis: Diagnosis, sources: Sources) -> str:
    """What follows from the outcome of the check that the message tells; '' where it tells none."""
    action = choose_action(diagnosis, question.knowledge.pages)
    if not branch_chips(action):
        return ""
    marks = sources.marks(diagnosis.hypotheses[0].for_[:2], diagnosis)
    return answer_branch(question.text, action, diagnosis, marks)


def suggest_now(question: Question, diagnosis: Diagnosis, kind: str) -> tuple[str, ...]:
    """What fits the state: outcomes of the check that was told, and what nobody has asked yet. kind: of the answer."""
    asked = kind.removeprefix("incident.")
    told = asked == "next"
    chips = branch_chips(choose_action(diagnosis, question.knowledge.pages)) if told else ()
    earlier = {read_asked(e.question, True).intent for e in question.earlier}
    return suggest(diagnosis, asked, earlier, chips)
