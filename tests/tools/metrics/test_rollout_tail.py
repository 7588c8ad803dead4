"""A rollout held by long answers: is it told from what the lines give, wherever they end?"""

from __future__ import annotations

from firstfault_tools.metrics.pace.rollout_tail import Rollouts, judge_tail

FULL = {"mean": 100.0, "max": 4_000.0, "gen": 80.0, "step": 100.0}


def test_a_last_line_that_was_cut_before_its_times_is_no_error() -> None:
    rows = [FULL, FULL, FULL, {"mean": 100.0, "max": 4_000.0}]
    found = judge_tail(Rollouts(rows, [(n, f"line {n}") for n in range(1, 5)]), "log.txt")
    assert found is not None
    assert "80 s" in found.title
