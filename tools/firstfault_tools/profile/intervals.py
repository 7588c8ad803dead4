"""How much time do sets of intervals cover together, and without each other? Pure arithmetic.

An interval is `(start, end)` in microseconds with start <= end; sets are merged lists of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

Interval = tuple[float, float]


def merge_intervals(intervals: Iterable[Interval]) -> list[Interval]:
    """Union as disjoint intervals, ascending. O(n log n)."""
    merged: list[Interval] = []
    for start, end in sorted(intervals):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    return merged


def length(merged: Sequence[Interval]) -> float:
    """Total of disjoint intervals, in microseconds."""
    return sum(end - start for start, end in merged)


def subtract(merged: Sequence[Interval], other: Sequence[Interval]) -> list[Interval]:
    """Parts of `merged` that `other` does not cover; both merged."""
    left: list[Interval] = []
    index = 0
    for start, end in merged:
        at = start
        while index < len(other) and other[index][1] <= at:
            index += 1
        probe = index
        while probe < len(other) and other[probe][0] < end:
            if other[probe][0] > at:
                left.append((at, other[probe][0]))
            at = max(at, other[probe][1])
            probe += 1
        if at < end:
            left.append((at, end))
    return left


def gaps(merged: Sequence[Interval]) -> list[Interval]:
    """Holes between consecutive intervals."""
    return [(a[1], b[0]) for a, b in pairwise(merged)]
