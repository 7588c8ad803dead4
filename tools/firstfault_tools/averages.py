"""What is usual among values? As the standard library, whose module takes decimals, fractions and chance along."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from math import fsum


def median(values: Iterable[float]) -> float:
    """The middle value, or the mean of the two in the middle. Raises ValueError where there is none."""
    ordered = sorted(values)
    if not ordered:
        raise ValueError("nothing lies in the middle of nothing")
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def mean(values: Collection[float]) -> float:
    """Their sum, exactly added up, over their number. Raises ZeroDivisionError where there is none."""
    return fsum(values) / len(values)
