"""Which of many like values is the odd one out? Median and MAD, and plain ratios where there are few.

With four values or more, the modified z-score 0.6745 (x - median) / MAD (Iglewicz and Hoaglin, 1993)
with cut-off 3.5. Healthy GPUs agree so well that the MAD alone would call a 0.5 % difference an
outlier, hence also a least relative deviation. With two or three values no statistic tells which one is
odd; the slower is named if it lies far enough below the best.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Generic, TypeVar

from firstfault_tools.averages import median
from firstfault_tools.dataclass import dataclass

K = TypeVar("K")
Z_CUT = 3.5
FEW = 4
# Floor of the scale: 1 % of the median, about the spread between healthy cards.
SCALE_FLOOR = 0.01


@dataclass(frozen=True, slots=True)
class Outlier(Generic[K]):
    """One odd value. below: relative distance to the median (or to the best of few)."""

    key: K
    value: float
    reference: float
    below: float
    z: float | None


def find_low(values: Mapping[K, float], least: float) -> list[Outlier[K]]:
    """Keys whose value is oddly low by at least the share `least`, lowest first.

    Keys whose value is oddly high are no fault of a node and are not reported.
    """
    if len(values) < 2:
        return []
    if len(values) < FEW:
        best = max(values.values())
        found = [
            Outlier(key, value, best, 1 - value / best, None)
            for key, value in values.items()
            if best > 0 and 1 - value / best >= least
        ]
        return sorted(found, key=lambda outlier: outlier.value)
    middle = median(values.values())
    if middle <= 0:
        return []
    deviation = median(abs(value - middle) for value in values.values())
    scale = max(deviation, SCALE_FLOOR * middle)
    found = []
    for key, value in values.items():
        z = 0.6745 * (value - middle) / scale
        below = 1 - value / middle
        if z <= -Z_CUT and below >= least:
            found.append(Outlier(key, value, middle, below, z))
    return sorted(found, key=lambda outlier: outlier.value)
