"""What happens in an incident, as everyone who follows it sees it? Typed events in one sequence.

An event's `seq` counts 1, 2, 3, ... within its incident without holes; a follower asks for what
comes after the last one it saw. `key` makes an event unique: a resumed run cannot say it twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, TypeAlias

from firstfault.incidents.plain import from_plain, read_diagnosis, redact_plain, to_plain
from firstfault.incidents.records import Related, TurnKind
from firstfault.investigation.diagnosis import (
    Citation,
    Diagnosis,
    InputReceipt,
    Phase,
    PhaseName,
    PhaseStatus,
    SkippedInput,
)
from firstfault_tools.dataclass import dataclass


class EventKind(StrEnum):
    """Kinds of events; the class of the body belongs to the kind."""

    RECEIVED = "received"
    PROGRESS = "progress"
    RECEIPT = "receipt"
    PHASE = "phase"
    VERDICT = "verdict"
    RELATED = "related"
    ANSWER = "answer"
    ERROR = "error"
    STOPPED = "stopped"
    DONE = "done"


@dataclass(frozen=True, slots=True)
class InputSummary:
    """One accepted input; size in bytes."""

    name: str
    origin: str
    size: int


@dataclass(frozen=True, slots=True)
class Received:
    """A turn was accepted and is durable; its text and inputs."""

    turn: TurnKind
    text: str
    inputs: tuple[InputSummary, ...] = ()
    skipped: tuple[SkippedInput, ...] = ()


@dataclass(frozen=True, slots=True)
class Progress:
    """A worker begins a step (`read`, `examine`, `answer`, or a model's tool call) of a run, or is so far in it.

    share: of the whole, 0 to 1; pace: how fast, and how long yet; found: what has been found so far.
    """

    step: str
    detail: str = ""
    share: float | None = None
    pace: str = ""
    found: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ReceiptWritten:
    """What was read."""

    receipt: InputReceipt


@dataclass(frozen=True, slots=True)
class PhaseReached:
    """One of the five phases, with what it found."""

    phase: PhaseName
    status: PhaseStatus
    summary: str


@dataclass(frozen=True, slots=True)
class VerdictReached:
    """The diagnosis."""

    diagnosis: Diagnosis


@dataclass(frozen=True, slots=True)
class RelatedFound:
    """Earlier incidents like this one, and the sentence that says so."""

    summary: str
    incidents: tuple[Related, ...]


@dataclass(frozen=True, slots=True)
class ToolUse:
    """A calculator that was run: its name, what it was given and what came out."""

    name: str
    inputs: Mapping[str, Any]
    result: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Explained:
    """One row of the hypothesis board. state: open, supported, refuted or ruled out by you.

    for_ and against: sentences; test: what would settle it.
    """

    root_cause: str
    category: str
    confidence: str
    state: str
    for_: tuple[str, ...] = ()
    against: tuple[str, ...] = ()
    test: str = ""


@dataclass(frozen=True, slots=True)
class RuledOut:
    """The verdict that a person's check has dropped. who: `you at 16:05 UTC`; now: the explanation that is first since,
    '' where the cause is open."""

    cause: str
    who: str
    now: str = ""


@dataclass(frozen=True, slots=True)
class WalkShown:
    """Phases and board after a turn, the open question and the answers that are suggested for it."""

    phases: tuple[Phase, ...]
    board: tuple[Explained, ...] = ()
    separating_test: str = ""
    question: str = ""
    options: tuple[str, ...] = ()
    ruled_out: RuledOut | None = None


@dataclass(frozen=True, slots=True)
class AnswerPart:
    """A piece of an answer. [n] marks refer to `citations`; parts of a turn are read in order."""

    text: str
    citations: tuple[Citation, ...] = ()
    source: str = "evidence"
    """evidence: written by rule from evidence and pages. model: worded by a model, checked."""
    attempt: int = 1
    """Where a worker died in the middle of a model's answer, only the highest attempt counts."""
    kind: str = ""
    """What was asked, as `firstfault.answer/1` names it."""
    suggestions: tuple[str, ...] = ()
    """Questions that can be asked next, for buttons."""
    tool: ToolUse | None = None
    walk: WalkShown | None = None
    """Where the investigation stands after this turn."""


@dataclass(frozen=True, slots=True)
class Failed:
    """The run ended without a result: what, where, what to do next. Never the same as healthy."""

    message: str
    exit_code: int = 4


@dataclass(frozen=True, slots=True)
class Stopped:
    """A person stopped the run; what came before stays."""

    message: str = "Stopped. What was found until then stays above."


@dataclass(frozen=True, slots=True)
class Done:
    """The run of this turn is over."""

    seconds: float


Body: TypeAlias = (
    Received
    | Progress
    | ReceiptWritten
    | PhaseReached
    | VerdictReached
    | RelatedFound
    | AnswerPart
    | Failed
    | Stopped
    | Done
)
_CLASSES: dict[EventKind, type[Any]] = {
    EventKind.RECEIVED: Received,
    EventKind.PROGRESS: Progress,
    EventKind.RECEIPT: ReceiptWritten,
    EventKind.PHASE: PhaseReached,
    EventKind.VERDICT: VerdictReached,
    EventKind.RELATED: RelatedFound,
    EventKind.ANSWER: AnswerPart,
    EventKind.ERROR: Failed,
    EventKind.STOPPED: Stopped,
    EventKind.DONE: Done,
}
_KINDS = {cls: kind for kind, cls in _CLASSES.items()}
CLOSING = frozenset({EventKind.ERROR, EventKind.STOPPED, EventKind.DONE})
"""Kinds that end a turn."""


@dataclass(frozen=True, slots=True)
class Event:
    """One event of an incident. `time` is seconds since the epoch, UTC."""

    incident: str
    seq: int
    turn: int
    kind: EventKind
    time: float
    body: Body

    @property
    def is_closing(self) -> bool:
        """The turn is over with this event."""
        return self.kind in CLOSING


def kind_of(body: Body) -> EventKind:
    """Kind that belongs to a body."""
    return _KINDS[type(body)]


def body_to_json(body: Body) -> dict[str, Any]:
    """JSON-able form of a body."""
    plain: dict[str, Any] = to_plain(body)
    return plain


def body_from_json(kind: EventKind, data: dict[str, Any]) -> Body:
    """Body of `kind` from its JSON form."""
    if kind is EventKind.VERDICT:
        return VerdictReached(read_diagnosis(data["diagnosis"]))
    if kind in (EventKind.RECEIVED, EventKind.ANSWER, EventKind.ERROR, EventKind.PROGRESS):
        data = redact_plain(
            data
        )  # what a person or a model wrote, perhaps before a format was known
    body: Body = from_plain(_CLASSES[kind], data)
    return body
