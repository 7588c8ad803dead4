"""Rollouts held by a few long answers, by lengths and by the requests an engine still runs."""

from __future__ import annotations

from firstfault_tools.findings import Level
from firstfault_tools.metrics.pace.rollout_tail import find_in_lines


def number(lines: list[str]) -> list[tuple[int, str]]:
    return list(enumerate(lines, start=1))


def verl(step: int, longest: float, gen: float, total: float) -> str:
    return (
        f"step:{step} - response_length/mean:900.0 - response_length/max:{longest} - "
        f"timing_s/gen:{gen} - timing_s/step:{total}"
    )


def engine(running: int, waiting: int = 0) -> str:
    return f"INFO 05-28 07:41:03 [loggers.py:118] Engine 001: Avg generation throughput: 90.1 tokens/s, Running: {running} reqs, Waiting: {waiting} reqs, GPU KV cache usage: 2.0%"


def test_long_answers_hold_the_step() -> None:
    lines = [verl(s, 8192.0, 200.0 + s, 260.0 + s) for s in range(6)]
    (found,) = find_in_lines(number(lines), "a.log")
    assert found.level is Level.CONTEXT
    assert "8192 tokens, the mean 900" in found.title


def test_even_lengths_or_a_short_generation_do_not() -> None:
    even = [verl(s, 1500.0, 200.0, 260.0) for s in range(6)]
    short = [verl(s, 8192.0, 20.0, 260.0) for s in range(6)]
    assert find_in_lines(number(even), "a.log") == find_in_lines(number(short), "a.log") == ()


def test_an_engine_that_drains_slowly() -> None:
    drained = [engine(n) for n in (64, 60, 31, 4, 2, 2, 1, 1)]
    (found,) = find_in_lines(number(drained), "a.log")
    assert "64 requests" in found.title
    assert find_in_lines(number([engine(n, 20) for n in (64, 2, 1, 1, 1, 1)]), "a.log") == ()
    assert find_in_lines(number([engine(n) for n in (64, 64, 63, 64, 62)]), "a.log") == ()
