"""Was a quantity of the run read, and is it as it should be up to the end? Loss, gradient norm, memory, reward, accuracy.

What a healthy run prints beside its steps: a loss that does not end above where it began, gradients and memory that
end at their usual level, a reward or score that moves and is not worse than at first.
"""

from __future__ import annotations

from itertools import pairwise

from firstfault.investigation.curves import Curve, read_curve
from firstfault.investigation.examination import Examination
from firstfault_tools.averages import mean, median

LEVEL = 1.05
"""Share of its usual level up to which the end of a quantity that should stay is no rise."""

USUAL_NORM = 2.0
"""Gradient norms vary from batch to batch; a run that is about to diverge leaves twice its middle."""

LEAST_VALUES = 8
RISEN, NORM_RISEN, FALLEN = 1.05, 2.5, 0.8
"""Shares of its first values from which the end of a loss, a gradient norm or a reward is plainly worse."""

LEAST_LOSS = 0.05
"""A loss about zero is that of a policy gradient, whose level tells nothing."""


def tell_worse(examination: Examination) -> str:
    """A quantity that plainly ends worse than it began, in words; empty where none that was read does."""
    for quantity in ("loss", "gradient norm", "reward", "accuracy"):
        curve = read_curve(examination, quantity)
        if curve is not None and len(curve.values) >= LEAST_VALUES and is_worse(quantity, curve):
            return f"the {quantity} ends at {curve.end:.4g}, where it began at {curve.start:.4g}"
    return ""


def is_worse(quantity: str, curve: Curve) -> bool:
    """Worse by more than runs that are well vary."""
    if curve.start <= 0:
        return False
    share = curve.end / curve.start
    match quantity:
        case "loss":
            return curve.start > LEAST_LOSS and share > RISEN
        case "gradient norm":
            return share > NORM_RISEN
        case _:
            return share < FALLEN


def is_steady(examination: Examination, quantity: str) -> bool:
    """The quantity was read and ends as it does in a run that is well; False where it was not read."""
    names = [quantity, "peak memory"] if quantity == "memory" else [quantity]
    curves = [c for name in names if (c := read_curve(examination, name)) is not None]
    moving = [c for c in curves if len(set(c.values)) > 1 or "memory" in quantity]
    return bool(moving) and all(ends_well(quantity, c) for c in moving)


def ends_well(quantity: str, curve: Curve) -> bool:
    """The last values are those of a run that is well: below the first, risen to its best, or at their usual level."""
    values = curve.values
    third = len(values) // 3
    usual, last = mean(values[third : 2 * third + 1]), mean(values[-third - 1 :])
    match quantity:
        case "loss":
            return curve.end <= curve.start
        case "reward" | "accuracy":
            noise = median(abs(b - a) for a, b in pairwise(values))
            return curve.end > curve.start + noise and curve.end > max(values) - 2 * noise
        case "gradient norm":
            return curve.end <= USUAL_NORM * median(values)
        case _:
            return last <= LEVEL * usual
