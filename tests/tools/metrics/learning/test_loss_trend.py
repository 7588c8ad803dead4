"""Does the loss still fall, and is that slow?"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from tests.rows import each_row

from firstfault_tools.metrics.learning.loss_trend import Pace, read_trend
from firstfault_tools.metrics.sources.steps import parse_steps


def log(loss: Callable[[int], float], last: int = 2000, every: int = 10, noise: float = 0.005) -> list[tuple[int, str]]:  # fmt: skip
    chance = random.Random(3)
    return [
        (n, f"step {step} | loss {loss(step) + chance.gauss(0, noise):.4f} | lr 1e-4")
        for n, step in enumerate(range(every, last + 1, every), 1)
    ]


@each_row(
    ("loss", "pace"),
    [
        (lambda s: 1.7 + 6.0 * s**-0.3, Pace.ON_CURVE),
        (lambda s: 10.0 * s**-0.2, Pace.ON_CURVE),
        (lambda s: 2.0 + 2.0 * 0.5 ** (s / 150), Pace.LEVELS_OFF),
        (lambda s: 2.5 if s > 400 else 4.0 - 1.5 * s / 400, Pace.FLAT),
        (lambda s: 3.0 - 0.01 * (s**0.08), Pace.FLAT),
        (lambda s: 2.0 + max(0.0, 1.0 - s / 500) + 0.03 * (1 - s / 2000), Pace.LEVELS_OFF),
        (lambda s: 3.0 - 0.02 * (s / 10) ** 0.4 * 0.5, Pace.SLOW),
        (lambda s: 2.0 + abs(s - 900) / 900, Pace.RISES),
    ],
    ids=["with a floor", "power", "exponential to a floor", "stops", "still", "levels off", "slow", "rises"],
)  # fmt: skip
def test_pace(loss: Callable[[int], float], pace: Pace) -> None:
    trend = read_trend(parse_steps(log(loss, noise=0.002)))
    assert trend is not None
    assert trend.pace is pace, trend


def test_the_step_of_a_further_fall() -> None:
    trend = read_trend(parse_steps(log(lambda s: 3.0 - 0.1 * (s.bit_length() - 1), noise=0.0)))
    assert trend is not None
    assert trend.rate_left == 1.0
    ahead = trend.steps_for(trend.per_doubling)
    assert ahead == pytest.approx(2 * trend.last_step)


def test_too_few_rows_are_no_trend() -> None:
    assert read_trend(parse_steps(log(lambda s: 2.0, last=40))) is None
