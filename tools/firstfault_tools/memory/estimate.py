"""What does an estimate say? Phases, terms, stages, range and verdict, as one small object."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from firstfault_tools.memory.setup import Choice


class Phase(Choice):
    """Moments of a training step at which memory may peak."""

    FORWARD = "forward"
    LOSS = "loss"
    LOSS_BACKWARD = "loss backward"
    BACKWARD_START = "backward of the last layer"
    BACKWARD_END = "backward of the first layer"
    EMBEDDING_BACKWARD = "backward of the embedding"
    STEP = "optimizer step"
    LOAD = "checkpoint load"


class Fit(Choice):
    """fits: even the high estimate does. tight: the expected one does. no: it does not."""

    FITS = "fits"
    TIGHT = "tight"
    NO = "does not fit"
    UNKNOWN = "no card given"


class Moment(NamedTuple):
    """One phase of a step on one pipeline stage, and what is alive then, in bytes by term."""

    phase: Phase
    terms: Mapping[str, int]
    stage: int = 0

    @property
    def total(self) -> int:
        """Bytes allocated by PyTorch at this moment."""
        return sum(self.terms.values())


class StepMemory(NamedTuple):
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
    staged: bool = False
    """Whether stages were compared; then `after_step` is states alone."""
    relative_error: float = 0.03
    upward_error: float = 0.0
    """Where activations are only a range: how far above the expected value they may lie."""
    largest_tensor: tuple[str, int] = ("", 0)

    @property
    def peak(self) -> Moment:
        """The worst moment."""
        if len(self.moments) == 1:
            return self.moments[0]
        return max(self.moments, key=lambda moment: moment.total)

    def with_terms(self, beside: Mapping[str, int]) -> StepMemory:
        """The step with something that stands beside it all the time."""
        if not beside:
            return self
        moments = tuple(
            Moment(moment.phase, {**moment.terms, **beside}, moment.stage)
            for moment in self.moments
        )
        return self._replace(moments=moments)

    def highest(self, *phases: Phase) -> int:
        """Highest total among the given phases, 0 where none was modelled."""
        return max((m.total for m in self.moments if m.phase in phases), default=0)
