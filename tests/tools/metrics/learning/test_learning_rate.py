"""By how much is a schedule shorter than the run?"""

from __future__ import annotations

from tests.rows import each_row

from firstfault_tools.metrics.learning.learning_rate import _count_times

ROWS = [
    # (steps of the run, last step with a rate, first without, times)
    (10_000, 600, 625, 16),
    (8_000, 990, 1_000, 8),
    (8_000, 1_000, 1_010, 8),
    (10_000, 100, 1_000, 0),  # too coarse: ten whole numbers lie between
    (10_000, 9_700, 9_900, 0),  # it ends with the run
    (10_000, 0, 25, 0),
    (10_000, 625, 625, 0),
]


@each_row(("total", "before", "first", "times"), ROWS)
def test_times_a_schedule_is_too_short(total: int, before: int, first: int, times: int) -> None:
    assert _count_times(total, before, first) == times
