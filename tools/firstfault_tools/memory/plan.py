"""What first, second and third, until it fits? Changes one after the other, each weighed on top of those before.

Those that train the same thing come first, the one that saves most in front; what gives another result (shorter
context, adapters, rounded states) only where they are not enough.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from firstfault_tools.dataclass import dataclass
from firstfault_tools.memory.architecture import Architecture
from firstfault_tools.memory.cards import Card
from firstfault_tools.memory.changes import Trial, try_changes
from firstfault_tools.memory.estimate import Fit, StepMemory
from firstfault_tools.memory.setup import TrainingSetup
from firstfault_tools.memory.sizes import GIB
from firstfault_tools.memory.verdict import choose_fit, estimate_step, size_need

MOST_STEPS = 6
LEAST_GIB = 0.05
"""Below it a change is no step: the estimate's own error is larger."""
OTHER_GPUS = frozenset({"world"})
"""Fields of a change that asks for other hardware, which is no change to the run at hand."""


@dataclass(frozen=True, slots=True)
class PlannedStep:
    """One step. saved_gib: on top of the steps before. needed_gib: with all of them."""

    name: str
    saved_gib: float
    needed_gib: float
    fits: bool
    cost: str
    side_effects: str
    flag: str
    alters: bool


def plan_changes(
    shape: Architecture,
    setup: TrainingSetup,
    card: Card | None,
    scale: float = 1.0,
    beside: Mapping[str, int] = MappingProxyType({}),
    step: StepMemory | None = None,
    trials: Sequence[Trial] | None = None,
) -> tuple[PlannedStep, ...]:
    """Steps up to the one with which it fits; none where there is no card, or it fits as it is.

    step, trials: the estimate as it is and with each single change, where they have been made.
    """
    if card is None:
        return ()
    standing = sum(beside.values())
    step = step or estimate_step(shape, setup, peak_only=True)
    fit = choose_fit(size_need(step, setup, standing)[1], card)
    steps: list[PlannedStep] = []
    while fit is not Fit.FITS and len(steps) < MOST_STEPS:
        before = step.peak.total
        best = _choose(shape, setup, before, trials)
        if best is None:
            break
        (chosen, setup, step), trials = best, None
        needed = size_need(step, setup, standing)[1]
        fit = choose_fit(needed, card)
        steps.append(
            PlannedStep(
                chosen.name, (before - step.peak.total) / GIB * scale, needed.expected,
                fit in (Fit.FITS, Fit.TIGHT), chosen.cost, chosen.side_effects, chosen.flag,
                chosen.alters,
            )
        )  # fmt: skip
    return tuple(steps)


def _choose(
    shape: Architecture, setup: TrainingSetup, before: int, trials: Sequence[Trial] | None
) -> Trial | None:
    """The change that saves most; one that alters the result only where no other saves anything."""
    for alters in (False, True):
        tried = try_changes(shape, setup, alters) if trials is None else trials
        found = [
            trial
            for trial in tried
            if trial.candidate.alters is alters
            and not OTHER_GPUS & trial.candidate.fields.keys()
            and before - trial.step.peak.total >= LEAST_GIB * GIB
        ]
        if found:
            return min(found, key=lambda trial: trial.step.peak.total)
    return None
