"""Which words do the rooms share? Enums and small frozen objects for evidence and findings.

Everything a tool reports is a `Finding` with the `Evidence` it stands on. Nothing crosses a room as
loose text. Keys inside `Finding.facts` carry their unit (`tried_gib`, `elapsed_ms`, `busbw_gbs`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from enum import IntEnum, StrEnum
from types import MappingProxyType

from firstfault_tools.dataclass import dataclass
from firstfault_tools.facts import Fact, FactReader
from firstfault_tools.facts import Json as Json
from firstfault_tools.finding_roles import FindingRole, roles_of_kind
from firstfault_tools.kind_pages import page_of_kind


class Verdict(StrEnum):
    """What the whole incident is. `UNKNOWN` is never a synonym of `HEALTHY`."""

    FAULT = "fault"
    WARNING = "warning"
    HEALTHY = "healthy"
    UNKNOWN = "unknown"


class Category(StrEnum):
    """Class of the root cause; the closed list of the diagnosis contract."""

    OOM = "oom"
    COMMUNICATION = "communication"
    NUMERICAL = "numerical"
    HARDWARE = "hardware"
    ENVIRONMENT = "environment"
    DATA = "data"
    CHECKPOINT = "checkpoint"
    PERFORMANCE = "performance"
    SCHEDULER = "scheduler"
    CODE_BUG = "code_bug"


class Confidence(StrEnum):
    """How sure, by rule and not by percentage.

    confirmed: a line or artefact that names the cause itself. likely: evidence fits, no unique mark.
    possible: a pattern or a similar page only. unknown: nothing holds.
    """

    CONFIRMED = "confirmed"
    LIKELY = "likely"
    POSSIBLE = "possible"
    UNKNOWN = "unknown"


class Level(StrEnum):
    """Where in the chain of events a finding stands, deepest first.

    cause: names a root cause by itself (ECC error, size mismatch, user exception with its reason).
    failure: something failed here, and the cause may lie elsewhere (bare SIGKILL, generic CUDA error).
    symptom: what a victim sees of somebody else's failure (watchdog timeout, connection reset).
    teardown: what a launcher says while it stops everything.
    benign: looks bad and is known to do no harm.
    context: a fact worth quoting that is no failure (a version, a setting, a memory reading).
    """

    CAUSE = "cause"
    FAILURE = "failure"
    SYMPTOM = "symptom"
    TEARDOWN = "teardown"
    BENIGN = "benign"
    CONTEXT = "context"


class Complaint(StrEnum):
    """What a person says is wrong with a run, whatever its log says."""

    SLOW = "slow"
    STALLED = "stalled"
    DIVERGED = "diverged"
    UNLEARNED = "unlearned"
    SETBACK = "setback"
    ENDLESS = "endless"
    MEMORY = "memory"
    DIED = "died"
    WRONG = "wrong"


@dataclass(frozen=True, slots=True)
class Evidence:
    """One quoted place. `line` is 1-based; 0 means the whole artefact. `text` is already redacted."""

    file: str
    line: int
    text: str
    rank: int | None = None
    host: str | None = None
    time: float | None = None
    """Seconds since the epoch, UTC where the zone is known."""

    usual: bool = False
    """A row as it was before, or of a rank that is well, quoted to compare with: nothing failed there."""


class Together(IntEnum):
    """How much had to agree before a finding was made: lines of a log, values of a series, ranks."""

    ONE_LINE = 0
    TWO_LINES = 1
    SETTING = 2
    """A line and the setting or command behind it."""
    SERIES = 5
    """Numbers of many steps."""
    REPEATED_SERIES = 6
    """Numbers of many steps, and that they come back."""
    RANKS = 10
    """What all ranks did, laid beside each other."""
    STATED = 20
    """A comparison of all ranks that a program made itself."""


@dataclass(frozen=True, slots=True, order=True)
class Strength:
    """Which of two findings on one line leads: the one that more agrees with, then the more exact pattern.

    together: a `Together`, of a signature the number of other patterns that it needs. length: characters of its
    shortest pattern.
    """

    together: int = Together.ONE_LINE
    length: int = 0


@dataclass(frozen=True, slots=True)
class Finding(FactReader):
    """One fact that a tool established, with the evidence it stands on.

    kind: dotted, stable id (`collective.never_entered`, `signature.cuda-oom`, `hardware.xid`).
    title: one sentence a tired person understands; names rank, host, numbers.
    page: id of the knowledge page that holds the fixes, where there is one; left out, that of its kind.
    facts: values for tools that read the finding. `explains` maps complaints that this finding accounts
    for, though it need not be a fault by itself, to 0..1: how much of what is complained of it may be.
    """

    kind: str
    title: str
    level: Level
    category: Category | None = None
    confidence: Confidence = Confidence.LIKELY
    evidence: tuple[Evidence, ...] = ()
    rank: int | None = None
    host: str | None = None
    gpu: str | None = None
    time: float | None = None
    page: str | None = None
    facts: Mapping[str, Json] = field(default_factory=lambda: MappingProxyType({}))
    roles: frozenset[FindingRole] = frozenset()
    """Roles of the signature it is of; those of other kinds stand in finding_roles.json."""

    strength: Strength = Strength()
    origin: str = ""
    """Where in the program's own code it came from, as the title says it: `, called from main (train.py:12)`."""

    subject: str = ""
    """Who or what the title begins with: `rank 3`, `GPU 0`."""

    opening: str = ""
    """The part of the title that stands where a rule knows better what it means; '' where all of it does."""

    def __post_init__(self) -> None:
        if self.page is None and (page := page_of_kind(self.kind)) is not None:
            object.__setattr__(self, "page", page)

    def reworded(self, rest: str) -> str:
        """Its title with another reading of what happened."""
        return f"{self.opening or self.title}{rest}"

    @property
    def predicate(self) -> str:
        """What its title says of its subject."""
        return self.title[len(self.subject) :].removeprefix(": ")

    def says(self, words: str) -> bool:
        """Whether the title holds these words already."""
        return words.lower() in self.title.lower()

    @property
    def parted(self) -> tuple[str, str]:
        """The title up to the place in the code it came from, and the rest from there."""
        at = self.title.find(self.origin) if self.origin else -1
        return (self.title[:at], self.title[at:]) if at >= 0 else (self.title, "")

    @property
    def pod(self) -> str | None:
        """Pod that it tells of."""
        return self.text(Fact.POD) or None

    @property
    def pid(self) -> int | None:
        """Process that it tells of."""
        return self.whole(Fact.PID)

    @property
    def gpu_index(self) -> int | None:
        """Index of its GPU on the host."""
        return self.whole(Fact.GPU_INDEX)

    @property
    def pci_address(self) -> str | None:
        """Address of its device."""
        return self.text(Fact.PCI_ADDRESS) or None

    @property
    def survived(self) -> bool:
        """The run went on after it."""
        return self.flag(Fact.SURVIVED)

    @property
    def starts_at(self) -> int:
        """Line at which what it tells of began; 0 where that is the line it quotes."""
        return self.whole(Fact.STARTS_AT) or 0

    def has(self, role: FindingRole) -> bool:
        """Whether this kind of finding plays a part."""
        return role in self.roles or role in roles_of_kind(self.kind)

    def explains(self, complaint: Complaint) -> float:
        """How much of a complaint this finding accounts for, 0 to 1."""
        told = self.fact(Fact.EXPLAINS)
        weight = told.get(complaint) if isinstance(told, Mapping) else None
        return float(weight) if isinstance(weight, int | float) else 0.0

    @classmethod
    def of_question(
        cls,
        name: str,
        title: str,
        level: Level,
        category: Category,
        evidence: Iterable[Evidence],
        page: str | None = None,
    ) -> Finding:
        """What the run prints of the very quantity that a question names."""
        return cls(
            kind=f"question.{name}",
            title=title,
            level=level,
            category=category,
            evidence=tuple(evidence),
            page=page,
        )

    @classmethod
    def of_slowness(
        cls,
        kind: str,
        title: str,
        evidence: tuple[Evidence, ...],
        *,
        weight: float,
        page: str | None = None,
        host: str | None = None,
        gpu: str | None = None,
        facts: Mapping[str, Json] = MappingProxyType({}),
    ) -> Finding:
        """A fact that explains slowness where somebody asks for it, and is no fault by itself.

        weight: 0 to 1, how much of the slowness it may be; the heaviest is told.
        """
        return cls(
            kind=kind,
            title=title,
            level=Level.CONTEXT,
            category=Category.PERFORMANCE,
            evidence=evidence,
            host=host,
            gpu=gpu,
            page=page,
            facts={**facts, "explains": {Complaint.SLOW: weight}},
        )
