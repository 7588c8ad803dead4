"""What does an estimate say? Phases, terms, stages, range and verdict, as one small object."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType

GIB = 1024**3


class Phase(StrEnum):
    """Moments of a training step at which memory may peak."""

    FORWARD = "forward"
    LOSS = "loss"
    LOSS_BACKWARD = "loss backward"
    BACKWARD_START = "backward of the last layer"
    BACKWARD_END = "backward of the first layer"
    EMBEDDING_BACKWARD = "backward of the embedding"
    STEP = "optimizer step"
    LOAD = "checkpoint load"


class Fit(StrEnum):
    """fits: even the high estimate does. tight: the expected one does. no: it does not."""

    FITS = "fits"
    TIGHT = "tight"
    NO = "does not fit"
    UNKNOWN = "no card given"


@dataclass(frozen=True, slots=True)
class Moment:
    """One phase of a step on one pipeline stage, and what is alive then, in bytes by term."""

    phase: Phase
    terms: Mapping[str, int]
    stage: int = 0

    @property
    def total(self) -> int:
        """Bytes allocated by PyTorch at this moment."""
        return sum(self.terms.values())


@dataclass(frozen=True, slots=True)
class StepMemory:
    """Bytes allocated over one training step on the worst rank.

    moments: every candidate for the peak. weights: right after the model stands on the GPU.
    after_forward, after_backward, after_step: what stays between phases.
    """

    moments: tuple[Moment, ...]
    weights: int
    after_forward: int
    after_backward: int
    after_step: int
    assumptions: tuple[str, ...] = ()
    relative_error: float = 0.03
    largest_tensor: tuple[str, int] = ("", 0)
    details: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def peak(self) -> Moment:
        """The worst moment."""
        return max(self.moments, key=lambda moment: moment.total)

    def highest(self, *phases: Phase) -> int:
        """Highest total among the given phases, 0 where none was modelled."""
        return max((m.total for m in self.moments if m.phase in phases), default=0)
