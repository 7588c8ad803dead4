"""What is a model told about the parts of its answer that did not hold, so that it says them once more?

A strong model's leading explanation falls now and then for one number or name that no line shows. It is
asked once, with the part and the reason, and only where its explanation could lead: everything else that
falls is left out without a word to it. The checks are the same for the second answer.
"""

from __future__ import annotations

from collections.abc import Iterator

from firstfault.agent.assessment import Assessment, assess
from firstfault.agent.context import TurnContext
from firstfault.agent.failures import TurnStopped
from firstfault.agent.graph import Conversation
from firstfault.agent.view import read_prompt
from firstfault.errors import ModelUnavailable
from firstfault.grounding.claims import Fault, Objected
from firstfault.incidents.events import Progress

REASONS = {
    Fault.NO_EVIDENCE: "it cites no line",
    Fault.UNKNOWN_ID: "no such id was shown",
    Fault.QUOTE: "stands in no cited line as quoted",
    Fault.NUMBER: "stands in no line and does not follow from cited numbers",
    Fault.NAME: "stands neither in the evidence nor in the knowledge",
    Fault.FLAG: "no such flag was shown",
    Fault.VARIABLE: "no such variable was shown",
    Fault.VERDICT: "its verdict and its words disagree",
    Fault.ADVICE: "it may not be advised as a first step",
    Fault.LEAK: "it may not be repeated",
}
_UNSAID = (Fault.LEAK, Fault.NO_EVIDENCE)
"""Reasons that are told without the part they mean."""


def correct(
    conversation: Conversation, *, earned: bool, grounded: bool = True
) -> Iterator[Progress]:
    """Ask for the answer once more where its lead fell; the outcome then holds the better of the two."""
    outcome, context = conversation.outcome, conversation.context
    first = outcome.reply
    if first is None or not earned or not grounded:
        return
    assessment = assess(first, context, earned=True)
    if not lost_its_lead(assessment):
        return
    yield Progress("model", "what it led with did not hold; it is asked once more")
    try:
        yield from conversation.start(write_correction(assessment, context))
    except TurnStopped:
        raise
    except ModelUnavailable:
        # out of budget or no answer: what was said first stands as it was checked
        outcome.reply = first
        return
    second = outcome.reply
    if second is not None and _standing(assess(second, context, earned=True)) <= _standing(
        assessment
    ):
        outcome.reply = first


def lost_its_lead(assessment: Assessment) -> bool:
    """The first explanation, or the paragraph that answers, did not hold."""
    return any(part.is_lead for part in assessment.left_out)


def _standing(assessment: Assessment) -> int:
    """How much is left of what leads: it fell, is shown with a remark, or holds."""
    fell = [part for part in assessment.left_out if part.is_lead]
    return 2 if not fell else int(all(part.shown for part in fell))


def write_correction(assessment: Assessment, context: TurnContext) -> str:
    """What fell and why, names hidden as in everything that is sent."""
    parts = [f"- {part.name}: {'; '.join(_say(o) for o in part.objections)}" for part in assessment.left_out]  # fmt: skip
    return context.veil.hide(read_prompt("correct").format(parts="\n".join(parts)))


def _say(objected: Objected) -> str:
    reason = REASONS.get(objected.fault, objected.fault.value)
    named = objected.part and objected.fault not in _UNSAID
    return f"`{objected.part}`: {reason}" if named else reason
