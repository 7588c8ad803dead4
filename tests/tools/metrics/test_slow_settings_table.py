"""Every row of the table compiles, and a row for the end of a log counts there only."""

from __future__ import annotations

from firstfault_tools.findings import Category
from firstfault_tools.metrics.pace.slow_settings import find_in_lines, load_settings

BUILD = "Using /root/.cache/torch_extensions/py310_cu118 as PyTorch extensions root..."


def test_rows_hold_their_word_in_reach() -> None:
    rows = load_settings()
    assert len({row.id for row in rows}) == len(rows)
    assert all(row.page and 0 < row.weight <= 1 for row in rows)


def test_a_build_at_the_end_of_the_log() -> None:
    (found,) = find_in_lines([(1, "start"), (2, BUILD)], "a.log")
    assert found.category is Category.ENVIRONMENT
    later = [(1, BUILD), *((n, f"step {n} loss 2.1") for n in range(2, 12))]
    assert find_in_lines(later, "a.log") == ()
