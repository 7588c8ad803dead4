"""What is in a post-mortem? One frozen object; every statement carries its citations.

None, an empty tuple and an empty string mean "not known": renderings leave a visible blank there.
Blameless: systems and what they did, never who.
"""

from __future__ import annotations

from enum import StrEnum

from firstfault.investigation.diagnosis import Citation
from firstfault.postmortem.rank_chart import RankChart
from firstfault_tools.dataclass import dataclass


class Severity(StrEnum):
    """How bad it was, by rule: the run ended; it lost a fifth of its speed or more; less; nothing."""

    CRITICAL = "critical"
    MAJOR = "major"
    MINOR = "minor"
    NONE = "none"


class LossKind(StrEnum):
    """How GPU time was lost."""

    SLOW = "slow"
    STOPPED = "stopped"
    REPEATED = "repeated"


class FixState(StrEnum):
    """What the figures before and after say of the fix."""

    FIXED = "fixed"
    NOT_FIXED = "not fixed"
    REGRESSION = "regression"
    INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True, slots=True)
class Cited:
    """A statement and the numbers of its citations; `assumed` where nothing proves it."""

    text: str
    citations: tuple[int, ...] = ()
    assumed: bool = False


@dataclass(frozen=True, slots=True)
class Loss:
    """A stretch of lost GPU time. Times in seconds since the epoch; share between 0 and 1; None: not known."""

    kind: LossKind
    start: float
    end: float
    share: float | None
    gpu_hours: float | None
    citations: tuple[int, ...] = ()
    estimated: bool = False
    """Its start is told by no line of its own, but by how far apart steps usually are."""


@dataclass(frozen=True, slots=True)
class Impact:
    """Cost of the incident. price: money per GPU-hour. reported: what others booked, as quoted."""

    gpus: int | None
    price: float | None
    currency: str
    start: float | None
    end: float | None
    losses: tuple[Loss, ...]
    throughput: tuple[Cited, ...]
    reported: tuple[Cited, ...]
    missing: tuple[str, ...]
    assumed: tuple[str, ...] = ()
    """What was taken from the evidence or supposed, for a person to correct."""

    @property
    def gpu_hours(self) -> float | None:
        """Sum of the losses; None when nothing can be counted."""
        counted = [x.gpu_hours for x in self.losses if x.gpu_hours is not None]
        return sum(counted) if counted else None

    @property
    def cost(self) -> float | None:
        """GPU-hours times price."""
        hours = self.gpu_hours
        return None if hours is None or self.price is None else hours * self.price


@dataclass(frozen=True, slots=True)
class TimelineRow:
    """One moment, UTC. time None: the source prints none, nor does a line near it.

    about: the time is that of the nearest line of the same file that prints one.
    """

    time: float | None
    text: str
    source: str
    citations: tuple[int, ...]
    about: bool = False


@dataclass(frozen=True, slots=True)
class Why:
    """One step of the Five Whys. because None: here the evidence stops."""

    question: str
    because: Cited | None


@dataclass(frozen=True, slots=True)
class MeasuredChange:
    """A metric while healthy, during the incident and after the fix."""

    name: str
    healthy: float | None
    during: float
    after: float


@dataclass(frozen=True, slots=True)
class FixCheck:
    """Verdict on the fix with its reason and figures."""

    state: FixState
    reason: str
    changes: tuple[MeasuredChange, ...] = ()


@dataclass(frozen=True, slots=True)
class Action:
    """Something to do. owner and due are for people to fill in."""

    kind: str
    text: str
    citations: tuple[int, ...] = ()
    owner: str = ""
    due: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    """The post-mortem."""

    title: str
    incident: str
    status: str
    severity: Severity
    summary: tuple[Cited, ...]
    impact: Impact
    timeline: tuple[TimelineRow, ...]
    detection: tuple[Cited, ...]
    trigger: Cited | None
    root_cause: Cited | None
    confidence: str
    whys: tuple[Why, ...]
    contributing: tuple[Cited, ...]
    resolution: tuple[Cited, ...]
    fix_check: FixCheck | None
    went_well: tuple[Cited, ...]
    went_badly: tuple[Cited, ...]
    by_luck: tuple[Cited, ...]
    actions: tuple[Action, ...]
    prevention: tuple[str, ...]
    lessons: tuple[Cited, ...]
    citations: tuple[Citation, ...]
    inputs: tuple[tuple[str, str], ...]
    """(name, sha256) of what was read."""
    version: str
    ranks: RankChart | None = None
