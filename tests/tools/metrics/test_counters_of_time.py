"""A total that grows is not the time of a step; a step that grows longer stays one."""

from __future__ import annotations

from tests.rows import each_row

from firstfault_tools.metrics.log_lines import find_in_lines
from firstfault_tools.metrics.series import MISSING
from firstfault_tools.metrics.sources.steps import parse_steps


def lines(pattern: str, values: list[float], every: int = 10) -> list[tuple[int, str]]:
    return [(i, pattern.format(step=i * every, value=v)) for i, v in enumerate(values, start=1)]


def read(pattern: str, values: list[float], every: int = 10) -> list[float]:
    series = parse_steps(lines(pattern, values, every))
    return [v for v in series.columns["step_time_ms"] if v != MISSING]


TOTALS = [141.0 * n * 10 + n % 3 for n in range(1, 20)]


def test_a_total_becomes_the_time_of_a_step() -> None:
    made = read("step:{step}/2000 train_time:{value:.0f}ms loss:3.1", TOTALS)
    assert all(139 < value < 143 for value in made)
    kinds = {
        f.kind
        for f in find_in_lines(
            lines("step:{step}/2000 train_time:{value:.0f}ms loss:3.1", TOTALS), "a"
        )
    }
    assert not kinds & {
        "metrics.throughput_drift",
        "metrics.throughput_drop",
        "metrics.periodic_pauses",
    }


@each_row(
    "values",
    [
        [1000 + 90.0 * n for n in range(19)],
        [141.0 + n % 3 for n in range(19)],
        [141.0 * n for n in range(4)],
        [5000.0 if n == 18 else 141.0 for n in range(19)],
    ],
    ids=["grows from a base", "steady", "too few", "one long step"],
)
def test_times_of_steps_stay(values: list[float]) -> None:
    assert read("step {step} step time {value:.0f} ms loss 3.1", values) == [
        round(v) for v in values
    ]


def test_the_clock_decides() -> None:
    stamped = "2026-01-05 10:{minute:02d}:00 step {step} time {value:.1f}s loss 3.1"
    grows = [(n, stamped.format(minute=n, step=n * 10, value=n * 60.0)) for n in range(1, 12)]
    series = parse_steps(grows)
    assert {round(v) for v in series.columns["step_time_ms"] if v != MISSING} == {6000}
    # each line's value is far less than the clock moved: no total
    other = [(n, stamped.format(minute=n, step=n * 10, value=n * 0.5)) for n in range(1, 12)]
    kept = parse_steps(other).columns["step_time_ms"]
    assert max(kept) == 5500
