"""Will it fit? Low, expected and high need against a card, with the dominant term named."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import NamedTuple

from firstfault_tools.dataclass import dataclass
from firstfault_tools.memory.architecture import Architecture
from firstfault_tools.memory.cards import Card
from firstfault_tools.memory.eager_step import estimate_eager
from firstfault_tools.memory.estimate import Fit, Moment, StepMemory
from firstfault_tools.memory.megatron_step import estimate_megatron
from firstfault_tools.memory.setup import Framework, Recompute, Sharding, TrainingSetup
from firstfault_tools.memory.sizes import GIB

CONTEXT_GIB = (0.5, 0.75, 1.2)
"""CUDA context, loaded kernels and library handles of one process, low, expected, high. Measured on
H200 with CUDA 13: 0.61 for the context, 0.75 in use beyond PyTorch's own after a step."""
FIRST_COMMUNICATOR_GIB = (0.4, 0.82, 1.2)
"""Buffers of the first NCCL communicator: 1.57 - 0.75 GiB measured between two H200s."""
NEXT_COMMUNICATOR_GIB = (0.3, 0.55, 0.9)
"""Each further one; 544 to 688 MiB a group reported for A100 (NVIDIA/nccl issue 964)."""
CACHE_STEADY = (1.00, 1.045, 1.10)
CACHE_SHIFTING = (1.01, 1.12, 1.27)
"""reserved / allocated at the peak. Steady: one process, no recomputation (1.014 to 1.085 measured).
Shifting: recomputation, FSDP or ZeRO, whose sizes alternate (1.06 to 1.26 measured). An allocator
under pressure gives cached blocks back first, so the low end is what must fit."""


class Range(NamedTuple):
    """Low, expected and high, in GiB."""

    low: float
    expected: float
    high: float


@dataclass(frozen=True, slots=True)
class Verdict:
    """What one rank needs, all in GiB. `needed` = allocated x cache overhead + outside."""

    allocated: Range
    needed: Range
    outside: Range
    fit: Fit
    capacity: float | None
    card: str | None
    phase: str
    stage: int
    terms: Mapping[str, float]
    dominant: str
    step: StepMemory


def estimate_step(
    shape: Architecture, setup: TrainingSetup, *, peak_only: bool = False
) -> StepMemory:
    """The step by the model that fits the run: fused and split, or eager. peak_only: its worst moment alone."""
    split = setup.tensor > 1 or setup.pipeline > 1 or setup.expert > 1
    if setup.framework is Framework.MEGATRON or split:
        step = estimate_megatron(shape, setup, peak_only=peak_only and not shape.partial)
    else:
        step = estimate_eager(shape, setup, peak_only=peak_only and not shape.partial)
    if not shape.partial:
        return step
    # A tower keeps what its share of the model may keep: the decoder beside it is known to the tensor.
    part = min(1.0, shape.unspelled / shape.parameters) if shape.unspelled else 1.0
    low = max(moment.total - 0.5 * part * _count_activations(moment) for moment in step.moments)
    high = max(
        moment.total + PARTIAL_ABOVE * part * _count_activations(moment) for moment in step.moments
    )
    beside = step.relative_error if shape.unspelled else 0.0
    whole = max(1, step.peak.total)
    return step._replace(
        relative_error=beside + 1 - low / whole, upward_error=beside + high / whole - 1
    )


def _count_activations(moment: Moment) -> int:
    return sum(moment.terms.get(name, 0) for name in ACTIVATION_TERMS)


ACTIVATION_TERMS = ("activations", "logits and loss")
PARTIAL_ABOVE = 5.0
"""Activations of a layer that is not spelled out, against a plain one of its width: half to six times.
The upper end is the reference path of state-space layers without their kernels (2.4 to 5.4 measured,
evals/truth/memory_families.jsonl)."""


def count_communicators(setup: TrainingSetup) -> int:
    """Process groups that will build NCCL communicators."""
    if setup.world == 1:
        return 0
    axes = (
        setup.tensor > 1,
        setup.pipeline > 1,
        setup.data * setup.context > 1,
        setup.context > 1,
        setup.expert > 1,
    )
    return max(1, sum(axes))


def size_need(
    step: StepMemory, setup: TrainingSetup, beside: int = 0
) -> tuple[Range, Range, Range]:
    """Allocated, needed and outside PyTorch. beside: bytes that stand there through the whole step."""
    allocated = (step.peak.total + beside) / GIB
    shifting = setup.recompute is Recompute.FULL or setup.sharding not in (
        Sharding.NONE,
        Sharding.DDP,
    )
    overhead = CACHE_SHIFTING if shifting else CACHE_STEADY
    groups = count_communicators(setup)
    outside = _size_outside(groups)
    spread = step.relative_error
    above = step.upward_error or spread
    tensors = Range(allocated * (1 - spread), allocated, allocated * (1 + above))
    needed = Range(
        tensors.low * overhead[0] + outside.low,
        tensors.expected * overhead[1] + outside.expected,
        tensors.high * overhead[2] + outside.high,
    )
    return tensors, needed, outside


@cache
def _size_outside(groups: int) -> Range:
    """The context and the buffers of so many communicators."""
    return Range(
        *(
            context + (first + (groups - 1) * further if groups else 0.0)
            for context, first, further in zip(
                CONTEXT_GIB, FIRST_COMMUNICATOR_GIB, NEXT_COMMUNICATOR_GIB, strict=True
            )
        )
    )


def choose_fit(needed: Range, card: Card | None) -> Fit:
    """Whether it fits the card: even the high end, the expected need, or not."""
    if card is None:
        return Fit.UNKNOWN
    if needed.high <= card.total_gib:
        return Fit.FITS
    if needed.low <= card.total_gib and needed.expected <= card.total_gib * 1.02:
        return Fit.TIGHT
    return Fit.NO


def judge(step: StepMemory, setup: TrainingSetup, card: Card | None = None) -> Verdict:
    """Compare a step with a card."""
    peak = step.peak
    allocated, needed, outside = size_need(step, setup)
    terms = {name: size / GIB for name, size in peak.terms.items()}
    return Verdict(
        allocated=allocated,
        needed=needed,
        outside=outside,
        fit=choose_fit(needed, card),
        capacity=card.total_gib if card else None,
        card=card.name if card else None,
        phase=str(peak.phase),
        stage=peak.stage,
        terms=terms,
        dominant=max(terms, key=lambda name: terms[name]),
        step=step,
    )
