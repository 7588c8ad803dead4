"""What does Firstfault answer? The diagnosis object, schema `firstfault.diagnosis/1`.

Frozen and JSON-able; `Diagnosis.to_json` is exactly what `diagnose --json` prints.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, fields, is_dataclass
from enum import StrEnum
from typing import Any

from firstfault_tools.dataclass import dataclass
from firstfault_tools.findings import Category, Confidence, Verdict
from firstfault_tools.log.place import Place

SCHEMA = "firstfault.diagnosis/1"


class PhaseName(StrEnum):
    """The five phases of an investigation, in order."""

    TRIAGE = "triage"
    LOCALIZE = "localize"
    ISOLATE = "isolate"
    ROOT_CAUSE = "root_cause"
    RESOLVE = "resolve"


class PhaseStatus(StrEnum):
    """Whether a phase's question is answered."""

    DONE = "done"
    OPEN = "open"
    SKIPPED = "skipped"


class RunState(StrEnum):
    """What became of the run after its first fault. stopped: no step follows, and no end is shown; not_begun: nor was
    any taken before."""

    UNSHOWN = "unshown"
    ENDED = "ended"
    STOPPED = "stopped"
    NOT_BEGUN = "not_begun"
    GOES_ON = "goes_on"
    STARTED_AGAIN = "started_again"


STEPS_GO_ON = frozenset({Category.NUMERICAL, Category.PERFORMANCE})
"""Kinds of faults in which steps are still made."""


class CitationKind(StrEnum):
    """Where a quote comes from."""

    LOG = "log"
    PAGE = "page"
    TOOL = "tool"


class LedBy(StrEnum):
    """Whose explanation the verdict is."""

    RULE = "rule"
    MODEL = "model"
    PERSON = "person"


class ChainRole(StrEnum):
    """Part of a line in the chain of events."""

    INITIATING = "initiating"
    CASCADE = "cascade"
    TEARDOWN = "teardown"


@dataclass(frozen=True, slots=True)
class FirstLine:
    """The log line of the first fault."""

    file: str
    line: int
    text: str


@dataclass(frozen=True, slots=True)
class Straggler:
    """The rank that never entered the collective in which all others wait.

    enqueued: number of its last enqueued collective; others: the least number of the `count` others. line: its report.
    """

    rank: int
    enqueued: int
    others: int
    count: int
    line: FirstLine


@dataclass(frozen=True, slots=True)
class Struck:
    """Whom the fault strikes beside one rank and one host, as its finding tells it.

    ranks: all that it counts. quoted: those whose lines stand for it. hosts: those that its cause names. reporters: hosts
    that only wrote of it. part: what is neither, such as `switch-04 port 17` or `task 3 on c1-15`. pod: the pod that it is about.
    """

    ranks: tuple[int, ...] = ()
    quoted: tuple[int, ...] = ()
    hosts: tuple[str, ...] = ()
    reporters: tuple[str, ...] = ()
    part: str = ""
    pod: str = ""


@dataclass(frozen=True, slots=True)
class Citation:
    """One quote, numbered in order of first use."""

    n: int
    kind: CitationKind
    quote: str
    file: str | None = None
    line: int | None = None
    page: str | None = None
    heading: str | None = None
    url: str | None = None


@dataclass(frozen=True, slots=True)
class Fix:
    """One fix with the quotes it stands on: a log line and a page."""

    text: str
    kind: str
    changes_state: bool
    citations: tuple[int, ...]
    command: str | None = None
    condition: str = ""
    """When it holds, where it does not hold for the leading explanation."""
    own: bool = False
    """It mends the mechanism that was found, not only the class of fault that its page is about."""

    worked_if: str = ""
    """What is seen where it has helped, where the page says it."""

    shown: bool = False
    """The evidence itself names it: no check of its kind comes before it."""


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """One possible root cause with what speaks for and against it."""

    root_cause: str
    category: Category | None
    confidence: Confidence
    for_: tuple[int, ...] = ()
    against: tuple[int, ...] = ()
    test: str = ""
    """What would settle whether it holds."""
    page: str = ""
    """Id of the page that explains it; '' where none does."""
    stated: bool = False
    """What was read names this cause by itself: a check that somebody made does not undo it."""


@dataclass(frozen=True, slots=True)
class ChainLink:
    """One event of the chain."""

    rank: int | None
    line: int
    role: ChainRole
    text: str
    file: str | None = None
    at: float | None = None
    """When it was written: seconds since the epoch, UTC. None: neither the line nor one near it prints a time."""

    about: bool = False
    """The time is that of a line near it, or of the heading of its file."""


@dataclass(frozen=True, slots=True)
class LostTime:
    """A stretch of lost GPU time. kind: slow, stopped or repeated. Times in seconds since the epoch, UTC."""

    kind: str
    start: float
    end: float
    gpu_hours: float | None


@dataclass(frozen=True, slots=True)
class Extent:
    """Since when, for how long and how much, as card, page and report say it. of: the deciding line it was measured for."""

    of: tuple[str, int]
    since: float | None = None
    about: bool = False
    """Only about then: by a line near it."""

    gpus: int | None = None
    losses: tuple[LostTime, ...] = ()
    silences: tuple[tuple[float, float], ...] = ()
    """(start, end) of long stretches in which no log holds a line."""

    resume: str = ""
    """The newest checkpoint that is whole by the log: `step 4000`, else its path."""

    whole: bool = True
    """All lines were looked at; else only those that say since when."""


@dataclass(frozen=True, slots=True)
class Phase:
    """State of one phase."""

    name: PhaseName
    status: PhaseStatus
    summary: str
    findings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NextArtefact:
    """What to collect next, why, and with which command. of_fault: it is asked for by this fault's own signature,
    not by its kind. run_on, supports_if, refutes_if, then: where it is run, how its output is read, and what follows."""

    what: str
    why: str
    command: str
    of_fault: bool = False
    run_on: str = ""
    supports_if: str = ""
    refutes_if: str = ""
    then: str = ""


@dataclass(frozen=True, slots=True)
class SkippedInput:
    """One input that was not read, and why."""

    what: str
    why: str


@dataclass(frozen=True, slots=True)
class InputReceipt:
    """What was read. `time_range` is ISO 8601 in UTC; `redactions` counts secrets by kind."""

    files: tuple[str, ...]
    lines_total: int
    lines_read: int
    skipped: tuple[SkippedInput, ...]
    ranks_seen: tuple[int, ...]
    world_size: int | None
    time_range: tuple[str, str] | None
    redactions: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The whole answer."""

    verdict: Verdict
    category: Category | None
    root_cause: str
    signature: str | None
    confidence: Confidence
    first_failing_rank: int | None
    host: str | None
    gpu: str | None
    first_line: FirstLine | None
    explanation: str
    fixes: tuple[Fix, ...]
    hypotheses: tuple[Hypothesis, ...]
    cascade: tuple[ChainLink, ...]
    citations: tuple[Citation, ...]
    phases: tuple[Phase, ...]
    next_artefacts: tuple[NextArtefact, ...]
    input: InputReceipt
    local_rank: int | None = None
    """Rank on its host, where a launcher or the placement of the job tells it."""

    disproof: str = ""
    """What would show that the verdict is wrong."""
    tools: Mapping[str, Any] = field(default_factory=dict)
    """Structured results of readers and calculators, by tool name."""
    led_by: LedBy = LedBy.RULE
    schedulers: tuple[str, ...] = ()
    """What the job runs on, as far as the evidence shows it: slurm, kubernetes."""

    named: Mapping[str, str] = field(default_factory=dict)
    """What the lines that were read name once and for all: pod, container, job."""

    handed_in: tuple[str, ...] = ()
    """Commands whose output was read: `df`, `nvidia-smi topo`."""

    disputed: bool = False
    """Another explanation, by the tools or a model, stands beside it and is not clearly behind."""

    alike: tuple[int, ...] = ()
    """Ranks that raised the error of the verdict alike, where there are several."""

    struck: Struck = Struck()
    """Whom it strikes where that is no single rank or host."""

    straggler: Straggler | None = None
    """By the watchdogs' reports, whether or not the verdict names a rank."""

    followers: tuple[int, ...] = ()
    """All ranks that reported what followed from it, whether or not a line of theirs is quoted."""

    run_state: RunState = RunState.UNSHOWN

    extent: Extent | None = None
    """None where it was not measured: nothing failed, or there is too much to read for a first answer."""

    @property
    def measured(self) -> Extent | None:
        """Its extent, where all lines were looked at and it still rests on the line that it was measured for."""
        return self.timed if self.timed is not None and self.timed.whole else None

    @property
    def timed(self) -> Extent | None:
        """The same, though perhaps it only says since when."""
        first = self.first_line
        own = (
            first is not None
            and self.extent is not None
            and self.extent.of == (first.file, first.line)
        )
        return self.extent if own else None

    @property
    def cited_page(self) -> str:
        """Id of the first page that the verdict rests on; '' where it cites none."""
        return next((c.page for c in self.citations if c.page), "")

    @property
    def place(self) -> str:
        """Where it struck, in words: `rank 11 (local 3, gpu-a17)`; '' where nothing is known."""
        return Place(
            rank=self.first_failing_rank, local_rank=self.local_rank, host=self.host
        ).describe()

    def to_json(self) -> dict[str, Any]:
        """JSON-able object of schema `firstfault.diagnosis/1`."""
        return {"schema": SCHEMA, **_plain(self)}


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name.rstrip("_"): _plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, StrEnum):
        return value.value
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(v) for v in value]
    return value
