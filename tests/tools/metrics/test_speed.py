"""Does the work of reading and judging step lines grow with their number and no faster?"""

import random
from collections.abc import Callable

from tests.growth import grow_calls, grow_cpu
from tests.rows import each_row

from firstfault_tools.metrics.log_lines import find_in_lines, rank_of
from firstfault_tools.metrics.sources.steps import parse_steps


def make_lines(prefix: str, count: int) -> list[tuple[int, str]]:
    rng = random.Random(1)
    parts = [(971 + rng.random() * 20, 1.9 + rng.random() / 10, rng.random()) for _ in range(1000)]
    return [
        (
            i + 1,
            f"{prefix} iteration {i:8d}/ 1000000 | consumed samples: {i * 8:12d} | elapsed time per iteration "
            f"(ms): {parts[i % 1000][0]:.1f} | learning rate: 2.214063E-05 | global batch size:  1024 "
            f"| lm loss: {parts[i % 1000][1]:.6E} | loss scale: 1.0 | grad norm: "
            f"{parts[i % 1000][2]:.3f} | number of skipped iterations:   0 | number of nan "
            "iterations:   0 |",
        )
        for i in range(count)
    ]


@each_row("prefix", ["", "[2026-03-10 04:38:11,426] [rank0]: "])
def test_step_lines_cost_linear_work(prefix: str) -> None:
    """Speed itself is a row of `evals.bench`."""

    def judge(count: int) -> Callable[[], object]:
        lines = make_lines(prefix, count)
        return lambda: find_in_lines(lines, "run.log")

    lines = make_lines(prefix, 50_000)
    assert not find_in_lines(lines, "run.log")
    assert len(parse_steps(lines[:5000], rank_of)) == 5000
    assert grow_calls(judge, 5_000) < 6
    assert grow_cpu(judge, 10_000) < 9
