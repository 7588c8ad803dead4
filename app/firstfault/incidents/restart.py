"""May a job be started again: here, without a node, or not before something is fixed?

A false stop wastes the hours until somebody looks, so stopping needs proof: a confirmed cause that a restart
leaves as it is, or attempts that got no further. Whatever is open gets another attempt.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from firstfault.incidents.records import Related
from firstfault.investigation.diagnosis import Diagnosis, Fix
from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Category, Confidence, Verdict

FOLLOWS = 2
"""Earlier attempts with the same fault elsewhere from which on it goes with the job and not with a node."""
NO_FURTHER = 3
"""Attempts in a row that end at the same step from which on another one is a waste: two may be chance."""
ALONE_SOLVES = frozenset({Category.SCHEDULER})
"""Kinds of faults after which the same job may simply be started again."""
STAYS = frozenset(
    {Category.CODE_BUG, Category.DATA, Category.ENVIRONMENT, Category.OOM, Category.NUMERICAL, Category.CHECKPOINT}
)  # fmt: skip
"""Kinds that the same job meets again: nothing of them lies in a node or a moment."""
_AGAIN = expression(
    r"(?i)\b(?:start the job again|re-?start (?:it |the job |the run )?(?:from|with|and)|resume from|re-?submit|re-?run the job)"
)
_NEGATED = expression(r"(?i)\b(?:do not|don.t|never|instead of|before (?:you )?)[^.;:]{0,20}$")


class Decision(StrEnum):
    """What to do with the job."""

    HERE = "restart"
    WITHOUT = "restart without a node"
    STOP = "stop"


class Pattern(StrEnum):
    """What earlier incidents show of this fault."""

    NONE = "none"
    SAME_HOST = "came back on the host"
    OTHER_FAULT = "the host failed in another way"
    FOLLOWS_JOB = "goes with the job"


@dataclass(frozen=True, slots=True)
class Attempt:
    """How one start of the job ended. step: the last one logged, None where none was."""

    number: int
    verdict: Verdict | None
    signature: str | None
    host: str | None
    root_cause: str
    step: int | None = None
    category: Category | None = None


@dataclass(frozen=True, slots=True)
class Advice:
    """The decision, its reason as a clause, and the hosts to leave out."""

    decision: Decision
    reason: str
    without: tuple[str, ...] = ()


def find_pattern(related: Sequence[Related]) -> Pattern:
    """What the record of other incidents says."""
    if any(r.same_host and r.same_signature for r in related):
        return Pattern.SAME_HOST
    if sum(r.same_signature and not r.same_host for r in related) >= FOLLOWS:
        return Pattern.FOLLOWS_JOB
    return Pattern.OTHER_FAULT if any(r.same_host for r in related) else Pattern.NONE


def starts_again(fix: Fix) -> bool:
    """The fix is to start the job again."""
    found = _AGAIN.search(fix.text)
    return found is not None and _NEGATED.search(fix.text[: found.start()]) is None


def advises_again(diagnosis: Diagnosis) -> bool:
    """One of the first fixes is to start again."""
    return any(map(starts_again, diagnosis.fixes[:2]))


def decide_restart(
    diagnosis: Diagnosis,
    attempts: Sequence[Attempt],
    related: Sequence[Related] = (),
    met_before: int = 0,
) -> Advice:
    """What to do after the last of `attempts`, which `diagnosis` explains.

    related: incidents on record with the same fault or host, of whatever job. met_before: how often the same
    fault already ended an attempt within this log, as where torchrun restarts its workers.
    """
    gone = tuple(dict.fromkeys(a.host for a in attempts[:-1] if a.host and a.category is Category.HARDWARE))  # fmt: skip
    host = diagnosis.host
    stays = _stop(diagnosis, attempts, met_before)
    if stays:
        return Advice(Decision.STOP, stays, gone)
    pattern = find_pattern(related)
    if host and diagnosis.category is Category.HARDWARE and diagnosis.confidence in _SURE:
        return _leave_out(host, f"the hardware of {host} failed, and there the job meets it again", gone)  # fmt: skip
    if host and pattern is Pattern.SAME_HOST and diagnosis.category not in STAYS:
        return _leave_out(host, f"the same fault was seen on {host} before", gone)
    if host and pattern is Pattern.OTHER_FAULT and diagnosis.category not in STAYS:
        return _leave_out(host, f"{host} failed before, in another way", gone)
    return Advice(Decision.WITHOUT if gone else Decision.HERE, _why_again(diagnosis), gone)


_SURE = (Confidence.CONFIRMED, Confidence.LIKELY)


def _stop(diagnosis: Diagnosis, attempts: Sequence[Attempt], met_before: int) -> str:
    """Why no further attempt; '' where one is worth it."""
    last = attempts[-NO_FURTHER:]
    if len(last) == NO_FURTHER and last[0].step is not None and len({a.step for a in last}) == 1:
        return f"{NO_FURTHER} attempts in a row got no further than step {last[0].step}"
    if diagnosis.verdict is not Verdict.FAULT or diagnosis.category in ALONE_SOLVES:
        return ""
    same = [a for a in attempts[:-1] if a.signature and a.signature == diagnosis.signature]
    elsewhere = [a for a in same if a.host is None or a.host != diagnosis.host]
    if len(elsewhere) + met_before >= FOLLOWS:
        return f"the same fault ended {len(elsewhere) + met_before} attempts before, so it goes with the job"  # fmt: skip
    if diagnosis.category not in STAYS or advises_again(diagnosis):
        return ""
    if diagnosis.confidence is Confidence.CONFIRMED:
        return "a restart leaves the cause as it is"
    if diagnosis.confidence is Confidence.LIKELY and (same or met_before):
        return "it came back, and a restart leaves such a cause as it is"
    return ""


def _leave_out(host: str, reason: str, gone: Sequence[str]) -> Advice:
    return Advice(Decision.WITHOUT, reason, tuple(dict.fromkeys((*gone, host))))


def _why_again(diagnosis: Diagnosis) -> str:
    if diagnosis.verdict is Verdict.HEALTHY:
        return "nothing is wrong in what was read"
    if diagnosis.category in ALONE_SOLVES:
        return "the scheduler ended it, not a fault of the run"
    if diagnosis.verdict is Verdict.FAULT and advises_again(diagnosis):
        return "to start again is the fix"
    if diagnosis.verdict is Verdict.UNKNOWN or diagnosis.confidence not in _SURE:
        return "the cause is open, and one more attempt costs less than a wrong stop; keep this attempt's logs and stacks"
    return "it may not come back; if it does, it counts against the host or the job"
