"""Where does the loss go in the long run: does it creep up again, or has it stopped falling?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from firstfault_tools.findings import Category, Confidence, Finding, Level
from firstfault_tools.metrics.learning.loss_shape import RISE, usable_loss
from firstfault_tools.metrics.view import View, block_medians, make_finding, number

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

LEAST_ROWS, BLOCKS = 100, 20
CREPT = 0.08
"""Rise over the best level that counts where it goes on over a third of the run; a change of data lifts the loss at once."""
LEVEL, FELL, LEVEL_SHARE = 0.01, 0.1, 0.5
"""A loss that moves less than this in the last half, after it fell by a tenth before."""


def judge_creeping_loss(view: View) -> list[Finding]:
    """A loss that has risen slowly and steadily for at least a third of the run, and still does."""
    import numpy as np

    curve = usable_loss(view)
    levels = _levels(curve.values)
    if levels is None:
        return []
    best = int(np.argmin(levels))
    after = levels[best:]
    rise = float(levels[-1] - levels[best])
    if len(after) < BLOCKS // 3 or not CREPT * levels[best] <= rise <= RISE * levels[best]:
        return []
    climbs = np.diff(after)
    # steadily: nearly every block above the one before, none of them most of the rise
    if float(np.mean(climbs > 0)) < 0.85 or float(climbs.max()) > 0.4 * rise:
        return []
    row = int(curve.rows[min(len(curve) - 1, best * len(curve) // BLOCKS)])
    series, last = view.lead, int(curve.rows[-1])
    return [
        make_finding(
            "loss_creeps",
            f"The loss rises slowly: it was lowest, about {number(float(levels[best]))}, near {series.label(row)} and has "
            f"risen steadily to {number(float(levels[-1]))} at {series.label(last)} ({rise / levels[best]:+.0%}): a learning "
            "rate too high for this stage, data that changed, or an optimizer state that does not fit",
            Level.SYMPTOM,
            Category.NUMERICAL,
            view.evidence([row, last], usual=[row]),
            confidence=Confidence.LIKELY,
            facts={"explains": {"diverged": 0.6}, "rise": round(rise / float(levels[best]), 3)},
        )
    ]


def judge_level_loss(view: View) -> list[Finding]:
    """A loss that fell and has been level for half of the run: worth saying to who complains of it."""
    import numpy as np

    curve = usable_loss(view)
    levels = _levels(curve.values)
    if levels is None:
        return []
    half = levels[int(BLOCKS * LEVEL_SHARE) :]
    start, end = float(levels[0]), float(np.median(half))
    if start - end < FELL * start or float(np.ptp(half)) > LEVEL * end:
        return []
    near = np.flatnonzero(np.abs(levels - end) <= LEVEL * end)
    row = int(curve.rows[int(near[0]) * len(curve) // BLOCKS])
    series, last = view.lead, int(curve.rows[-1])
    rate = view.curve("lr")
    told = f"; learning rate {float(rate.values[-1]):.4g} there" if len(rate) else ""
    return [
        make_finding(
            "loss_level",
            f"The loss fell from {number(start)} to {number(end)} and has been level since about {series.label(row)} "
            f"(within {LEVEL:.0%} up to {series.label(last)}{told}): a plateau. Late in a run that is usual; early it "
            "is a learning rate that is too low or decayed, clipping, data that repeats, or a batch that changed",
            Level.CONTEXT,
            Category.NUMERICAL,
            view.evidence([row, last]),
            facts={"explains": {"unlearned": 0.5}, "since": series.label(row)},
        )
    ]


def _levels(values: NDArray[np.float64]) -> NDArray[np.float64] | None:
    """Medians of twenty blocks; None for a curve that is short or not above zero."""
    if len(values) < LEAST_ROWS:
        return None
    levels = block_medians(values, BLOCKS)
    return levels if len(levels) == BLOCKS and float(levels.min()) > 0 else None
