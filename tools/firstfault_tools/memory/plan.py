"""What first, second and third, until it fits? Changes one after the other, each weighed on top of those before.

Those that train the same thing come first, the one that saves most in front; what gives another result (shorter
context, adapters, rounded states) only where they are not enough.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from firstfault_tools.errors import InvalidParameter
from firstfault_tools.memory.architecture import Architecture
from firstfault_tools.memory.cards import Card
from firstfault_tools.memory.changes import Candidate, list_candidates
from firstfault_tools.memory.estimate import GIB, Fit
from firstfault_tools.memory.setup import TrainingSetup
from firstfault_tools.memory.verdict import choose_fit, estimate_peak, size_need

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
) -> tuple[PlannedStep, ...]:
    """Steps up to the one with which it fits; none where there is no card, or it fits as it is."""
    if card is None:
        return ()
    standing = sum(beside.values())
    needed = size_need(estimate_peak(shape, setup), setup, standing)[1]
    fit = choose_fit(needed, card)
    steps: list[PlannedStep] = []
    while fit is not Fit.FITS and len(steps) < MOST_STEPS:
        found = _choose(shape, setup)
        if found is None:
            break
        chosen, setup, saved = found
        needed = size_need(estimate_peak(shape, setup), setup, standing)[1]
        fit = choose_fit(needed, card)
        steps.append(
            PlannedStep(
                chosen.name, saved * scale, needed.expected, fit in (Fit.FITS, Fit.TIGHT),
                chosen.cost, chosen.side_effects, chosen.flag, chosen.alters,
            )
        )  # fmt: skip
    return tuple(steps)


def _choose(
    shape: Architecture, setup: TrainingSetup
) -> tuple[Candidate, TrainingSetup, float] | None:
    """The next change, the setup with it and what it saves."""
    peak = estimate_peak(shape, setup).peak.total
    best: tuple[Candidate, TrainingSetup, float] | None = None
    for candidate in list_candidates(shape, setup):
        if OTHER_GPUS & candidate.fields.keys():
            continue
        try:
            changed = setup.vary(candidate.fields)
            saved = (peak - estimate_peak(shape, changed).peak.total) / GIB
        except InvalidParameter:
            continue
        if saved < LEAST_GIB:
            continue
        if best is None or (best[0].alters, -best[2]) > (candidate.alters, -saved):
            best = candidate, changed, saved
    return best
