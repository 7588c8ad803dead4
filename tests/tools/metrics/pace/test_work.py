"""Steps that take longer because each does more, and those that only take longer."""

from __future__ import annotations

import random
from collections.abc import Callable

from tests.rows import each_row

from firstfault_tools.findings import Level
from firstfault_tools.metrics.judgement import judge_steps
from firstfault_tools.metrics.sources.steps import parse_steps

Shape = Callable[[int], float]


def grow(start: float, end: float) -> Shape:
    return lambda step: start + (end - start) * step / 60


def judge(tokens: Shape, seconds: Shape, column: str) -> dict[str, tuple[Level, str]]:
    chance = random.Random(4)
    lines = []
    for step in range(1, 61):
        noise = 1 + 0.01 * chance.gauss(0, 1)
        work, took = tokens(step) * noise, seconds(step) * noise
        lines.append(
            f"step:{step} - actor/pg_loss:0.01 - {column}:{work:.1f} - timing_s/step:{took:.2f}"
        )
    found = judge_steps(parse_steps(list(enumerate(lines, 1))), "a.log")
    return {f.kind.removeprefix("metrics."): (f.level, f.title) for f in found}


@each_row("column", ["response_length/mean", "completions/mean_length", "global_seqlen/mean"])  # fmt: skip
def test_steps_that_grow_with_the_tokens_are_no_slowdown(column: str) -> None:
    found = judge(grow(400, 800), grow(90, 180), column)
    level, title = found["work_grew"]
    assert level is Level.BENIGN
    assert "for 1.51 times the work" in title
    assert "throughput_drift" not in found


@each_row(
    ("tokens", "seconds"),
    [
        (grow(400, 404), grow(90, 180)),  # the work is what it was
        (grow(400, 500), grow(90, 270)),  # the time grows faster than the work
        (grow(800, 400), grow(90, 180)),  # the work shrinks
    ],
)
def test_steps_that_grow_without_it_are_one(tokens: Shape, seconds: Shape) -> None:
    found = judge(tokens, seconds, "response_length/mean")
    assert "work_grew" not in found
    assert {"throughput_drift", "throughput_drop"} & found.keys()


def test_a_total_since_the_start_is_no_amount_of_work() -> None:
    lines = [
        f"step:{i} - loss:0.5 - num_tokens:{100_000 + 5_000 * i} - timing_s/step:{90 + i}.0"
        for i in range(1, 61)
    ]
    found = judge_steps(parse_steps(list(enumerate(lines, 1))), "a.log")
    assert "metrics.work_grew" not in {f.kind for f in found}
