"""Which explanation leads, where tools, a model and a person put forward different ones?

The judge reads no log and asks no model. It compares what was put forward by stated rules and says
which rule placed each. Whoever leads by reasoning is never "confirmed".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace
from enum import IntEnum

from firstfault.investigation.diagnosis import LedBy
from firstfault_tools.dataclass import dataclass
from firstfault_tools.findings import Category, Confidence, Verdict

INTERRUPTIONS = frozenset({Category.SCHEDULER, Category.COMMUNICATION, Category.HARDWARE})
"""Faults that do their harm by stopping a run; what memory, a setting or a bug spoils goes on to be spoilt."""

SPOILS = frozenset({Category.DATA, Category.NUMERICAL, Category.CHECKPOINT})
"""Kinds of which even a warning is not over because the steps go on."""

SLOW_PART = {Category.HARDWARE, Category.PERFORMANCE}
"""Two words for one fault: a throttled GPU, a narrow link."""


class Sound(IntEnum):
    """What code sees of a run that is called well.

    quiet: no line reads like an error. goes_on: it ends well or goes on to the last line, no error stands
    unexplained in its log, and the person states nothing that lines cannot refute. steps: besides, the reading
    names every line that the tools hold against it, and each but what the run went on after is a step of its
    own, of which they judge the numbers. outlived: every such line is named, the run went on after each, a
    cited line shows that, and what is complained of is fine.
    """

    UNSEEN = 0
    QUIET = 1
    GOES_ON = 2
    STEPS = 3
    OUTLIVED = 4


@dataclass(frozen=True, slots=True)
class Explanation:
    """One account of an incident, by tools, a model or a person.

    lines: ids of the evidence that carries it. contradicts: ids quoted against the tools' reading that
    this reading does not stand on. seconded: the deterministic detectors, given these lines alone, say
    the same.
    """

    proposer: LedBy
    verdict: Verdict
    category: Category | None
    cause: str
    confidence: Confidence = Confidence.POSSIBLE
    rank: int | None = None
    host: str = ""
    gpu: str = ""
    mechanism: str = ""
    lines: tuple[str, ...] = ()
    against: str = ""
    against_lines: tuple[str, ...] = ()
    contradicts: tuple[str, ...] = ()
    test: str = ""
    command: str = ""
    command_is_known: bool = False
    page: str = ""
    seconded: bool = False
    failures: int = 0
    """Of the tools: lines of the log that they read as a failure or what followed from one."""
    sound: Sound = Sound.UNSEEN
    """Of a run that is called healthy."""


@dataclass(frozen=True, slots=True)
class Ruling:
    """What leads, as sure as it is; the rest in order; why, a sentence for each rule that decided."""

    leader: Explanation
    disputed: bool = False
    others: tuple[Explanation, ...] = ()
    why: tuple[str, ...] = field(default=())


def rule_on(tools: Explanation, proposed: Sequence[Explanation], *, earned: bool) -> Ruling:
    """Ruling over the tools' reading and what was proposed, best first.

    earned: the model has passed its exam; without it the tools lead in every case.
    """
    if not proposed:
        return Ruling(tools, why=("Only the tools have an explanation.",))
    best, *rest = proposed
    if not earned:
        return Ruling(
            tools,
            others=tuple(proposed),
            why=("The model has not passed its exam, so the tools' explanation leads.",),
        )
    if not best.lines and best.verdict is not Verdict.UNKNOWN:
        return Ruling(
            tools, others=tuple(proposed), why=("The model's explanation quotes no line.",)
        )
    agreed = agrees(tools, best)
    sure = tools.confidence is Confidence.CONFIRMED
    if sure and agreed and _same_place(tools, best):
        return Ruling(
            refine(tools, best),
            others=tuple(proposed),
            why=(
                "The tools' explanation is confirmed, and the model says the same in more detail.",
            ),
        )
    if sure and not agreed and not best.contradicts and not _is_alarm(tools, best):
        return Ruling(
            tools,
            others=tuple(proposed),
            why=("The tools' explanation is confirmed and no quoted line contradicts it.",),
        )
    refused = _may_not_lead(tools, best)
    if refused:
        return Ruling(tools, disputed=True, others=tuple(proposed), why=(refused,))
    leader = replace(best, confidence=_sureness(tools, best, agreed))
    why = _say_why(tools, best, agreed)
    return Ruling(leader, _is_disputed(tools, best, agreed), (tools, *rest), (why,))


def _is_alarm(tools: Explanation, best: Explanation) -> bool:
    """The model reads a fault where the tools call the run healthy."""
    return tools.verdict is Verdict.HEALTHY and best.verdict is Verdict.FAULT


def _say_why(tools: Explanation, best: Explanation, agreed: bool) -> str:
    """Why the model's explanation leads."""
    if agreed and tools.confidence is Confidence.CONFIRMED:
        return (
            "What happened is confirmed; where, the model reads otherwise from the lines it quotes."
        )
    if _is_alarm(tools, best):
        return "The model reads a fault in lines that it quotes; a run of which that is said is not called healthy."
    if agreed:
        return "Model and tools agree; the model's sentence says it in full."
    if tools.confidence in (Confidence.POSSIBLE, Confidence.UNKNOWN):
        return "The tools do not decide; the model's explanation is carried by the lines it quotes."
    return "Tools and model differ, and neither is confirmed; the test separates them."


def _is_disputed(tools: Explanation, best: Explanation, agreed: bool) -> bool:
    """The tools hold to another reading or place, or to a fault where code does not see the run go well."""
    if agreed and (tools.rank is None or _same_place(tools, best)):
        return False
    held = tools.confidence in (Confidence.CONFIRMED, Confidence.LIKELY)
    unproven = _reads_wrong(tools) or best.sound < Sound.GOES_ON
    return held or (best.verdict is Verdict.HEALTHY and unproven)


def agrees(one: Explanation, other: Explanation) -> bool:
    """The same verdict and kind of cause; a slow part is hardware and slowness, where both stand on the same line."""
    kin = {one.category, other.category} == SLOW_PART
    alike = one.category is other.category or (kin and not set(one.lines).isdisjoint(other.lines))
    return one.verdict is other.verdict and alike


def _same_place(tools: Explanation, best: Explanation) -> bool:
    """The model names no other place than the tools do."""
    return best.rank is None or best.rank == tools.rank


def refine(tools: Explanation, best: Explanation) -> Explanation:
    """The tools' explanation with the model's sentence of the same cause behind it."""
    if best.cause.rstrip(". ").lower() in tools.cause.lower():
        return tools
    return replace(
        tools, cause=f"{tools.cause.rstrip('. ')}; {best.cause}", host=tools.host or best.host
    )


def _may_not_lead(tools: Explanation, best: Explanation) -> str:
    """Why an explanation may only stand beside the tools' one; empty when it may lead.

    To call a broken run healthy is the worst mistake there is, so reasoning alone never does. Where the tools
    read a failure, code must see that the run went on after every line that they stand on, and of a fault only
    where stopping the run is all the harm it does. Where they only judge the numbers of a run that goes on, and
    do not confirm it, a model may judge them otherwise. Where they read nothing wrong and no line reads like an
    error, it may call the run well though code sees no proof; that is disputed.
    """
    if best.verdict is not Verdict.HEALTHY or tools.verdict is Verdict.HEALTHY:
        return ""
    outlived = best.sound is Sound.OUTLIVED
    fault = tools.verdict is Verdict.FAULT
    stops = tools.category in INTERRUPTIONS if fault else tools.category not in SPOILS
    slow = tools.category is Category.PERFORMANCE and best.sound >= Sound.GOES_ON
    judged = slow or best.sound is Sound.STEPS
    if tools.confidence is Confidence.CONFIRMED:
        return "The tools' explanation is confirmed; reasoning does not make the run healthy."
    if _reads_wrong(tools) and not (judged or (outlived and stops)):
        return "Code does not see the run go on after all that the tools read against it; reasoning alone does not make it healthy."
    if best.sound is Sound.UNSEEN or (best.sound is Sound.QUIET and tools.failures):
        return (
            "Code does not see the run end well or go on; reasoning alone does not make it healthy."
        )
    return ""


def _reads_wrong(tools: Explanation) -> bool:
    return tools.verdict in (Verdict.FAULT, Verdict.WARNING)


def _sureness(tools: Explanation, best: Explanation, agreed: bool) -> Confidence:
    """Likely where detectors second the lines or the tools agree; else possible. Never confirmed."""
    if best.verdict is Verdict.UNKNOWN:
        return Confidence.UNKNOWN
    if best.seconded or best.sound is Sound.OUTLIVED:
        return Confidence.LIKELY
    if agreed and tools.confidence in (Confidence.CONFIRMED, Confidence.LIKELY):
        return Confidence.LIKELY
    return Confidence.POSSIBLE
