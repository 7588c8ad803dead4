"""Do the metric verdicts keep their false-alarm budget? A small, seeded part of the measurement.

The whole of it, 1,000 healthy runs and 40 of each fault: `python -m evals.metrics_alarms`.
"""

from collections import Counter
from pathlib import Path

from evals.metrics_alarms import (
    FAULTS,
    Alarms,
    load_alarms,
    measure_alarms,
    save_alarms,
    write_table,
)
from evals.simulated_runs import healthy_run, judge_lines, write_run


def test_budget_on_a_small_sample() -> None:
    result = measure_alarms(healthy=150, faults=4, seed=11)
    print(f"alarmed {result.alarmed} of {result.healthy}, found {result.found_rate:.1%}")
    # 1 % of 150 allows one; two have a chance of one in eight at exactly the budget.
    assert result.alarmed <= 2
    assert result.found_rate >= 0.95
    assert len(result.found) == len(FAULTS)


def test_simulated_logs_are_read_whole() -> None:
    for seed in range(40):
        run = healthy_run(seed)
        lines = write_run(run)
        assert len(lines) >= len(run.rows)
        assert isinstance(judge_lines(lines), tuple)


def test_a_kept_measurement_comes_back_whole(tmp_path: Path) -> None:
    result = Alarms(1000, 3, Counter({"metrics.drift": 3}), {"a (b, c)": (39, 40)})
    save_alarms(result, tmp_path / "x.json")
    assert load_alarms(tmp_path / "x.json") == (result, True)


def test_the_table_shows_figures_or_says_that_there_are_none() -> None:
    text = write_table()
    assert "not measured" in text or "healthy runs alarmed" in text
