"""Does the loss still fall, how fast, and is that slow? Its fall with every doubling of the steps.

Learning curves fall by a power of the steps (arXiv 2001.08361, section 4), which within one run looks like the same
amount with every doubling. What falls by as much in its second half as in the whole is on its curve, however flat it
looks over single steps; what falls by less levels off.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from firstfault_tools.dataclass import dataclass
from firstfault_tools.metrics.learning.loss_shape import usable_loss
from firstfault_tools.metrics.series import MISSING, NO_STEP, StepSeries
from firstfault_tools.metrics.view import View

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

LEAST_ROWS = 6
ON_CURVE = 0.5
"""Share of the whole fall per doubling that the second half must keep to be on its curve."""
SLOW_SHARE = 0.01
"""Fall per doubling, of the loss itself, below which all of a long run brings little: ten doublings for a tenth."""
CERTAIN = 2.0
"""Standard errors of the slope below which a fall is not told from its scatter."""


class Pace(StrEnum):
    """How the loss goes on."""

    ON_CURVE = "falls as learning curves do"
    SLOW = "falls, but too slowly"
    LEVELS_OFF = "levels off"
    FLAT = "does not fall any more"
    RISES = "rises"


@dataclass(frozen=True, slots=True)
class Trend:
    """Rows are those of the series. per_doubling: fall of the second half with each doubling of the steps."""

    pace: Pace
    first_row: int
    last_row: int
    first: float
    last: float
    whole_per_doubling: float
    per_doubling: float
    first_step: int
    last_step: int
    rate_left: float | None = None
    """Learning rate of the last row as a share of its peak; None where none is printed."""

    def steps_for(self, fall: float) -> float | None:
        """Step at which the loss would be lower by `fall`, if it stays on its curve."""
        if self.per_doubling <= 0:
            return None
        doublings = fall / self.per_doubling
        return self.last_step * 2.0**doublings if doublings < 30 else None


def read_trend(series: StepSeries) -> Trend | None:
    """The trend of the loss; None where too few rows name a step."""
    import numpy as np

    curve = usable_loss(View(series, series, ""))
    steps = series.steps()[curve.rows]
    keep = np.isfinite(curve.values) & (steps != NO_STEP) & (steps > 0)
    rows, values, steps = curve.rows[keep], curve.values[keep], steps[keep].astype(float)
    if len(rows) < LEAST_ROWS or steps[-1] <= steps[0]:
        return None
    doublings = np.log2(steps)
    half = max(len(rows) // 2, 3)
    whole, _ = _fit(doublings, values)
    recent, error = _fit(doublings[-half:], values[-half:])
    level = abs(float(np.median(values[-half:]))) or 1.0
    if recent > CERTAIN * error and recent > SLOW_SHARE * level:
        pace = Pace.RISES
    elif -recent <= CERTAIN * error:
        pace = Pace.FLAT
    elif -recent < ON_CURVE * -whole:
        pace = Pace.LEVELS_OFF
    elif -recent < SLOW_SHARE * level:
        pace = Pace.SLOW
    else:
        pace = Pace.ON_CURVE
    return Trend(
        pace, int(rows[0]), int(rows[-1]), float(values[0]), float(values[-1]), -whole, -recent,
        int(steps[0]), int(steps[-1]), _rate_left(series, rows),
    )  # fmt: skip


def _fit(xs: NDArray[np.float64], ys: NDArray[np.float64]) -> tuple[float, float]:
    """(slope, its standard error) of the line of least squares."""
    import numpy as np

    spread = xs - xs.mean()
    below = float((spread**2).sum())
    if below == 0 or len(xs) < 3:
        return 0.0, float("inf")
    slope = float((spread * ys).sum()) / below
    left = ys - ys.mean() - slope * spread
    return slope, float(np.sqrt((left**2).sum() / (len(xs) - 2) / below))


def _rate_left(series: StepSeries, rows: NDArray[np.int64]) -> float | None:
    import numpy as np

    rates = series.values("lr")[rows]
    rates = rates[np.isfinite(rates) & (rates != MISSING)]
    return float(rates[-1] / rates.max()) if len(rates) and rates.max() > 0 else None
