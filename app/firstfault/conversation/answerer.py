"""Who answers follow-up questions? The protocol that the rules and a model both fill."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Protocol

from firstfault.incidents.events import AnswerPart, Progress, VerdictReached
from firstfault.incidents.records import Related
from firstfault.investigation.diagnosis import Diagnosis
from firstfault.investigation.knowledge import Knowledge
from firstfault_tools.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Exchange:
    """One earlier question with its answer."""

    question: str
    answer: str
    time: float = 0.0
    """When it was asked: seconds since the epoch, UTC."""


@dataclass(frozen=True)
class Question:
    """Everything an answer may stand on.

    diagnosis is None when a person only asks and gave no evidence. artefacts: display name -> file,
    to be read through `firstfault_tools.log.window.read_window` (normalised and redacted) only.
    is_stopped: True once the person stopped the run or the lease is lost; return then. related: earlier
    incidents with the same fault, host or GPU.
    """

    incident: str
    turn: int
    text: str
    diagnosis: Diagnosis | None
    artefacts: Mapping[str, Path]
    earlier: tuple[Exchange, ...]
    knowledge: Knowledge
    is_stopped: Callable[[], bool] = lambda: False
    time: float = 0.0
    related: tuple[Related, ...] = ()


class Answerer(Protocol):
    """Answers in parts; the worker stores each part before it asks for the next.

    repeatable: asked again, it gives the same parts, so a resumed run continues where it was.
    explains: it also has something to say right after the verdict.
    A verdict among the parts takes the place of the one on record.
    Raise ModelUnavailable when the endpoint is gone: the deterministic answer is given instead.
    """

    @property
    def repeatable(self) -> bool: ...

    @property
    def explains(self) -> bool: ...

    def answer(self, question: Question) -> Iterator[AnswerPart | Progress | VerdictReached]: ...

    def explain(self, question: Question) -> Iterator[AnswerPart | Progress | VerdictReached]: ...
