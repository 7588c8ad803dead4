"""When was the run slow, when did it stand still, and is it well again? From its logged steps."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from firstfault.postmortem.evidence import StepRow, TimedLine
from firstfault.postmortem.report import FixCheck, FixState, MeasuredChange
from firstfault_tools.averages import median
from firstfault_tools.dataclass import dataclass

LEAST_ROWS, SLOWER, RECOVERED = 12, 1.15, 0.95
GAP_FACTOR, GAP_SECONDS = 6.0, 300.0


@dataclass(frozen=True, slots=True)
class Pace:
    """Healthy, slow and later rows. pause: (start, end) of a standstill between slow and later."""

    healthy: tuple[StepRow, ...]
    slow: tuple[StepRow, ...]
    pause: tuple[float, float] | None
    later: tuple[StepRow, ...]

    @property
    def lost_share(self) -> float:
        """Share of the work that was not done while slow, between 0 and 1."""
        return 1 - mid(self.healthy) / mid(self.slow)


def mid(rows: Sequence[StepRow]) -> float:
    """Median step time in milliseconds."""
    return median(r.step_ms for r in rows)


def read_pace(rows: Sequence[StepRow], lines: Sequence[TimedLine] = ()) -> Pace | None:
    """The slow stretch of a run, by a lasting change of its step time; None when there is none.

    lines: what else was logged, for the exact times at which stepping ended and began.
    """
    if len(rows) < 2 * LEAST_ROWS:
        return None
    import numpy as np

    from firstfault_tools.metrics.change_points import find_shift

    cut = _pause_at(rows)
    before = rows[:cut] if cut else rows
    shift = find_shift(np.array([r.step_ms for r in before]))
    if shift is None or shift.ratio < SLOWER:
        return None
    at = _turn(before, shift.index)
    healthy, slow = tuple(before[:at]), tuple(before[at:])
    pause = (
        (_ended(slow[-1], rows[cut], lines), _began(rows[cut], rows[cut + 1 :], lines))
        if cut
        else None
    )
    return Pace(healthy, slow, pause, tuple(rows[cut:]) if cut else ())


def _turn(rows: Sequence[StepRow], index: int) -> int:
    """First slow row: rows before the index that are nearer to the later pace than to the earlier one belong to it."""
    between = (mid(rows[:index]) * mid(rows[index:])) ** 0.5
    while index > LEAST_ROWS and rows[index - 1].step_ms > between:
        index -= 1
    return index


def _pause_at(rows: Sequence[StepRow]) -> int | None:
    """Index of the first row after the longest standstill."""
    gaps = [b.time - a.time for a, b in pairwise(rows)]
    usual = median(gaps)
    place = max(range(len(gaps)), key=lambda i: gaps[i])
    if gaps[place] < max(GAP_SECONDS, GAP_FACTOR * usual):
        return None
    return place + 1


def _ended(last: StepRow, following: StepRow, lines: Sequence[TimedLine]) -> float:
    """When stepping ended: the last line of the same log before the next step, else its last step."""
    later = [
        x.time for x in lines if x.file == last.file and x.time is not None and x.line > last.line
    ]
    return max((t for t in later if last.time <= t < following.time), default=last.time)


def _began(first: StepRow, following: Sequence[StepRow], lines: Sequence[TimedLine]) -> float:
    """When stepping began: an interval before the first step was logged, not before the line above."""
    interval = following[0].time - first.time if following else 0.0
    guess = first.time - min(interval, 600.0)
    above = [
        x.time for x in lines if x.file == first.file and x.time is not None and x.line < first.line
    ]
    return max((t for t in above if guess <= t <= first.time), default=guess)


def check_fix(pace: Pace) -> FixCheck | None:
    """Verdict on the fix from the steps after it; None when there are none."""
    from firstfault_tools.metrics.verification import FixVerdict, Trial, verify_fix

    if not pace.later:
        return None
    states = {
        FixVerdict.FIXED: FixState.FIXED,
        FixVerdict.NOT_FIXED: FixState.NOT_FIXED,
        FixVerdict.REGRESSION: FixState.REGRESSION,
        FixVerdict.INCONCLUSIVE: FixState.INCONCLUSIVE,
    }
    healthy = mid(pace.healthy)

    def trials(rows: Sequence[StepRow]) -> list[Trial]:
        size = max(1, len(rows) // 4)
        blocks = [rows[i : i + size] for i in range(0, len(rows), size)][:5]
        return [Trial(mid(b) > SLOWER * healthy, {"step_time_ms": mid(b)}) for b in blocks if b]

    found = verify_fix(trials(pace.slow), trials(pace.later))
    reached = healthy / mid(pace.later)
    reason = f"{found.reason}; the speed after it is {100 * reached:.0f} % of the healthy one"
    state = states[found.verdict]
    if state is FixState.FIXED and reached < RECOVERED:
        state = FixState.INCONCLUSIVE
    by_rate = any(row.by_rate for row in pace.slow)
    changes = [] if by_rate else [MeasuredChange("step time (ms)", healthy, mid(pace.slow), mid(pace.later))]  # fmt: skip
    rates = [[r.tokens_per_s for r in p if r.tokens_per_s is not None] for p in (pace.healthy, pace.slow, pace.later)]  # fmt: skip
    if all(rates):
        changes.append(MeasuredChange("throughput (tokens/s)", *(median(r) for r in rates)))
    return FixCheck(state, reason, tuple(changes))
