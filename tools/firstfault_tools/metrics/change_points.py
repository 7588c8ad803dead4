"""When did a curve change its level, and is that more than chance? Change points with a budget.

A healthy run must hardly ever be called sick, so three things have to agree: the change is large in
itself, large against the scatter between blocks of the curve, and lasting. Candidate places come from
`ruptures` (binary segmentation, L2 cost) on block medians; short curves are scanned directly. The
share of false alarms and of found faults is measured by evals/metrics_alarms.py, not assumed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from firstfault_tools.dataclass import dataclass
from firstfault_tools.metrics.view import block_medians, blocks_of, noise_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

LEAST = 24
BLOCKS = 200
SHIFT = 1.15
DRIFT = 1.15
SIGMAS = 7.0
CLIMB, CLIMB_ROWS, CLIMB_STEADY = 1.4, 9, 0.88
"""Of a curve too short for a fitted drift: rise, rows, and share of the steps that go up."""

SHORT_GAP, SHORT_SPREAD = 1.35, 1.25
"""Of a short curve: the lowest slow value over the highest fast one; the spread within a level."""


@dataclass(frozen=True, slots=True)
class Shift:
    """A lasting change. index: first value of the new level. before, after: medians. ratio: after/before."""

    index: int
    before: float
    after: float
    ratio: float


def _candidates(blocks: NDArray[np.float64]) -> list[int]:
    """Up to three places where the mean of the blocks changes most."""
    import ruptures

    search = ruptures.Binseg(model="l2", min_size=3, jump=1).fit(blocks)
    places: set[int] = set()
    for count in range(1, min(3, len(blocks) // 6) + 1):
        places.update(search.predict(n_bkps=count)[:-1])
    return sorted(places)


def find_shift(values: NDArray[np.float64]) -> Shift | None:
    """The lasting change of level of a positive curve, or None.

    The new level has to hold to the end of the curve: a pause that is over is no shift.
    """
    import numpy as np

    if np.any(values <= 0):
        return None
    if len(values) < LEAST:
        return _find_short_shift(values)
    curve = np.log(values)
    borders = blocks_of(curve, min(BLOCKS, len(curve) // 3))
    blocks = block_medians(curve, min(BLOCKS, len(curve) // 3))
    if float(np.ptp(blocks)) < np.log(SHIFT) or len(blocks) < 8:
        return None
    noise = max(noise_of(blocks), 1e-4)
    best: tuple[float, int, float, float] | None = None
    for place in _candidates(blocks):
        left, right = blocks[:place], blocks[place:]
        if len(left) < 3 or len(right) < 3:
            continue
        before, after = float(np.median(left)), float(np.median(right))
        step = abs(after - before)
        spread = max(
            noise,
            1.4826 * float(np.median(np.abs(left - before))),
            1.4826 * float(np.median(np.abs(right - after))),
        )
        score = step / (spread * (1 / len(left) + 1 / len(right)) ** 0.5)
        # Both sides have to be levels of their own, apart, and the last blocks on the new one.
        apart = step > 3.0 * spread
        lasting = np.all((blocks[-3:] - before) * np.sign(after - before) > 0.5 * step)
        if step < np.log(SHIFT) or score < SIGMAS or not apart or not lasting:
            continue
        if best is None or score > best[0]:
            best = (score, place, before, after)
    if best is None:
        return None
    _, place, before, after = best
    index = _refine(curve, int(borders[place]), int(borders[1] - borders[0]), before, after)
    return Shift(index, float(np.exp(before)), float(np.exp(after)), float(np.exp(after - before)))


def _find_short_shift(values: NDArray[np.float64]) -> Shift | None:
    """A jump between two levels that do not overlap, in a curve too short for statistics.

    At least three values on either side, each level tight, and a wide gap between them.
    """
    import numpy as np

    best: Shift | None = None
    for place in range(3, len(values) - 2):
        left, right = values[:place], values[place:]
        before, after = float(np.median(left)), float(np.median(right))
        low, high = (left, right) if after > before else (right, left)
        apart = float(np.min(high)) >= SHORT_GAP * float(np.max(low))
        tight = all(float(np.max(x)) <= SHORT_SPREAD * float(np.min(x)) for x in (left, right))
        if apart and tight and (best is None or after / before > best.ratio):
            best = Shift(place, before, after, after / before)
    return best


def _refine(curve: NDArray[np.float64], at: int, block: int, before: float, after: float) -> int:
    """The single value at which the level changes, by least absolute deviation around `at`."""
    import numpy as np

    low, high = max(1, at - 2 * block), min(len(curve) - 1, at + 2 * block)
    part = curve[low:high]
    cost_left = np.concatenate([[0.0], np.cumsum(np.abs(part - before))])
    cost_right = np.concatenate([[0.0], np.cumsum(np.abs(part - after)[::-1])])[::-1]
    return low + int(np.argmin(cost_left + cost_right))


def find_drift(values: NDArray[np.float64]) -> Shift | None:
    """A slow, steady change over the whole of a positive curve, or None."""
    import numpy as np

    if np.any(values <= 0):
        return None
    if len(values) < LEAST:
        return _find_climb(values)
    least = DRIFT if len(values) >= 48 else SHORT_GAP
    blocks = block_medians(np.log(values), 24 if len(values) >= 48 else 12)
    noise = max(noise_of(blocks), 1e-4)
    size = len(blocks)
    slope = float(np.median((blocks[size // 2 :] - blocks[: size - size // 2]) / (size // 2)))
    total = slope * (size - 1)
    if abs(total) < np.log(least) or abs(total) < SIGMAS * noise:
        return None
    fitted = np.median(blocks) + slope * (np.arange(size) - (size - 1) / 2)
    if float(np.std(blocks - fitted)) > 0.2 * abs(total):
        return None
    steps = np.diff(block_medians(blocks, 8)) * np.sign(total)
    if np.sum(steps > 0) < 6:
        return None
    before, after = float(np.exp(fitted[0])), float(np.exp(fitted[-1]))
    return Shift(0, before, after, after / before)


def _find_climb(values: NDArray[np.float64]) -> Shift | None:
    """A rise of a short curve in which nearly every value lies above the one before."""
    import numpy as np

    size = len(values)
    if size < CLIMB_ROWS or np.sum(np.diff(values) > 0) < CLIMB_STEADY * (size - 1):
        return None
    before, after = float(np.median(values[: size // 3])), float(np.median(values[-(size // 3) :]))
    return Shift(0, before, after, after / before) if after >= CLIMB * before else None
