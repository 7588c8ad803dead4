"""Do the steps take longer because each does more? Time against the printed amount of work.

Reinforcement learning answers at greater length as it learns, a curriculum feeds longer sequences: the
steps grow with the tokens, and what would be a slowdown by the clock is none per token.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from firstfault_tools.dataclass import dataclass
from firstfault_tools.metrics.change_points import find_drift, find_shift
from firstfault_tools.metrics.series import MISSING
from firstfault_tools.metrics.view import View

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

LEAST_ROWS = 9
GROWN = 1.1
"""Times the work must have grown from the first third to the last to lengthen anything."""

SLACK = 0.1
"""Share of a step by which the time may rise faster than in proportion to the work."""

AMOUNTS = (("response_tokens", "responses", "tokens a response"), ("step_tokens", "batches", "tokens a step"))  # fmt: skip
"""Column, what grew, and its unit; the responses first, since they are what a policy lengthens."""


@dataclass(frozen=True, slots=True)
class Growth:
    """Work that grew, and the time that grew with it: medians of the first and the last third."""

    name: str
    unit: str
    work: tuple[float, float]
    ms: tuple[float, float]
    rows: tuple[int, int]

    @property
    def ratio(self) -> float:
        """How many times as long the steps became."""
        return self.ms[1] / self.ms[0]

    def sentence(self) -> str:
        """What happened, in numbers."""
        (less, more), (fast, slow) = self.work, self.ms
        return (
            f"The steps grew with the {self.name}: {self.ratio:.2f} times as long ({fast / 1000:.4g} s, then {slow / 1000:.4g} s) for "
            f"{more / less:.2f} times the work ({less:.4g} {self.unit}, then {more:.4g}); per token they are not slower, so nothing slowed down"
        )


def find_growth(view: View, rows: NDArray[np.int64], ms: NDArray[np.float64]) -> Growth | None:
    """The printed amount of work that accounts for steps that became longer, or None.

    rows, ms: rows of the lead rank with a step time, and the times.
    """
    for column, name, unit in AMOUNTS:
        told = view.lead.values(column)[rows]
        good = (told != MISSING) & (told > 0)
        if int(good.sum()) >= LEAST_ROWS and _accounts_for(told[good], ms[good]):
            kept, third = rows[good], int(good.sum()) // 3
            return Growth(
                name=name,
                unit=unit,
                work=_ends(told[good], third),
                ms=_ends(ms[good], third),
                rows=(int(kept[0]), int(kept[-1])),
            )
    return None


def _accounts_for(work: NDArray[np.float64], ms: NDArray[np.float64]) -> bool:
    """The time rises with the work, at most in proportion, and what the work leaves of it is level."""
    import numpy as np

    if np.all(np.diff(work) > 0):
        return False  # a total since the start of the run, no amount of a step
    less, more = _ends(work, len(work) // 3)
    if more < GROWN * less:
        return False
    slope, base = np.polyfit(work, ms, 1)
    usual = float(np.median(ms))
    if slope <= 0 or base < -SLACK * usual:
        return False
    rest = ms - slope * (work - float(np.median(work)))
    changes = (find_shift(rest), find_drift(rest))
    return all(change is None or change.ratio < 1 for change in changes)


def _ends(values: NDArray[np.float64], third: int) -> tuple[float, float]:
    import numpy as np

    return float(np.median(values[:third])), float(np.median(values[-third:]))
