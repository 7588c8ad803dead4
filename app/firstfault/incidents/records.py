"""What is kept of an incident? Frozen records, as the store hands them out."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path

from firstfault_tools.dataclass import dataclass
from firstfault_tools.findings import Category, Verdict

_ALPHABET = "23456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
ID_LENGTH = 22


class IncidentState(StrEnum):
    """Where an incident stands: the state of its latest run."""

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    STOPPED = "stopped"

    @property
    def is_final(self) -> bool:
        return self in (IncidentState.DONE, IncidentState.FAILED, IncidentState.STOPPED)


RunState = IncidentState


class TurnKind(StrEnum):
    """What a person did."""

    REPORT = "report"
    EVIDENCE = "evidence"
    QUESTION = "question"
    AGAIN = "again"
    GO_ON = "go on"
    READ = "read"
    """A verdict was asked on what was read until the reading was stopped."""

    @property
    def is_read(self) -> bool:
        """Evidence is read because of it, where there is any."""
        return self is not TurnKind.QUESTION


class RunKind(StrEnum):
    """What a worker is asked to do."""

    DIAGNOSE = "diagnose"
    DIAGNOSE_READ = "diagnose read"
    """Diagnose what was read until the reading was stopped, and read nothing more."""
    ANSWER = "answer"

    @property
    def diagnoses(self) -> bool:
        """A verdict comes of it."""
        return self is not RunKind.ANSWER


class Origin(StrEnum):
    """How a piece of evidence came in. REFERENCE: a large file that is read where it lies."""

    PASTED = "pasted"
    UPLOADED = "uploaded"
    COPIED = "copied"
    REFERENCE = "reference"


@dataclass(frozen=True, slots=True)
class Incident:
    """One incident as lists show it. Times are seconds since the epoch, UTC."""

    id: str
    title: str
    state: IncidentState
    created: float
    updated: float
    archived: bool
    share: str | None
    verdict: Verdict | None
    category: Category | None
    signature: str | None
    host: str | None
    gpu: str | None
    root_cause: str | None
    last_event: int
    last_turn: int


@dataclass(frozen=True, slots=True)
class Turn:
    """One thing a person said or gave."""

    number: int
    kind: TurnKind
    text: str
    created: float


@dataclass(frozen=True, slots=True)
class EvidenceFile:
    """One input as it was given. `size` in bytes; `modified` only for references."""

    name: str
    origin: Origin
    path: Path
    size: int
    turn: int
    sha256: str | None = None
    modified: float | None = None


@dataclass(frozen=True, slots=True)
class Run:
    """One piece of work under a lease. `attempt` counts how often a worker began it."""

    id: int
    incident: str
    turn: int
    kind: RunKind
    state: RunState
    worker: str | None
    attempt: int
    lease_until: float | None
    heartbeat: float | None
    error: str | None


@dataclass(frozen=True, slots=True)
class Related:
    """An earlier incident that shares something with this one."""

    id: str
    title: str
    created: float
    root_cause: str
    same_signature: bool
    same_host: bool
    same_gpu: bool
    same_log: bool = False
    """All that one of the two was given, the other was given, too: it is one event, read twice."""


@dataclass(frozen=True, slots=True)
class Feedback:
    """What a person said about a verdict. `draft` is the folder of the draft eval case."""

    created: float
    helpful: bool | None
    really: str
    category: Category | None
    draft: Path | None


def new_id() -> str:
    """Unguessable id of 128 bits; letters and digits only, none that look alike."""
    return "".join(secrets.choice(_ALPHABET) for _ in range(ID_LENGTH))


def title_of_files(files: Sequence[EvidenceFile]) -> str:
    """Title of an incident that came without words; its verdict gives it a better one."""
    names = ", ".join(f.name for f in files[:3])
    return names + (f" and {len(files) - 3} more" if len(files) > 3 else "")


def title_of_words(question: str) -> str:
    """Title of an incident that came with words, until its verdict gives it a better one."""
    first = next((line.strip() for line in question.splitlines() if line.strip()), "")
    return first[:120]


def clean_text(text: str, limit: int) -> str:
    """Text that every database can hold: no NUL, no lone surrogates, at most `limit` characters."""
    return text[:limit].replace("\0", "").encode("utf-8", "replace").decode("utf-8")
