"""Curves that rise on purpose: steps with more work in them, memory that has seen its largest batch."""

from __future__ import annotations

from tests.rows import each_row

from firstfault_tools.findings import Level
from firstfault_tools.metrics.log_lines import find_in_lines


def number(lines: list[str]) -> list[tuple[int, str]]:
    return list(enumerate(lines, start=1))


def megatron(step: int, ms: float, batch: int) -> str:
    return (
        f" iteration {step:8d}/  100000 | consumed samples: {step * batch:12d} | elapsed time per iteration "
        f"(ms): {ms:.1f} | learning rate: 3.000E-04 | global batch size: {batch:5d} | lm loss: "
        f"{4 - step / 1000:.6E} | loss scale: 1.0 | grad norm: 0.3 | number of skipped iterations: 0 | "
        "number of nan iterations: 0 |"
    )


@each_row(("factor", "planned"), [(1.0, True), (0.9, True), (1.6, False)])
def test_steps_grow_with_the_batch(factor: float, planned: bool) -> None:
    rows = [megatron(n, 1400, 128) for n in range(1, 9)]
    rows += [megatron(n, 2800 * factor, 256) for n in range(9, 17)]
    found = {f.kind: f.level for f in find_in_lines(number(rows), "t.log")}
    assert ("metrics.planned_load" in found) is planned
    if planned:
        assert found["metrics.planned_load"] is Level.BENIGN


def test_the_same_batch_is_no_reason() -> None:
    rows = [megatron(n, 1400 if n < 9 else 2800, 128) for n in range(1, 17)]
    assert "metrics.planned_load" not in {f.kind for f in find_in_lines(number(rows), "t.log")}


def memory(levels: list[int]) -> list[str]:
    return [
        f"[10/24 08:{n:02d}:05 d2.utils.events]:  eta: 7:45:22  iter: {n * 100}  total_loss: {3 - n / 20:.3f}  "
        f"time: 0.3127  data_time: 0.062   lr: 0.0004  max_mem: {level}M"
        for n, level in enumerate(levels, start=1)
    ]


@each_row(
    ("levels", "settled"),
    [
        ([3900, 4400, 5200, 6900, 8000, 9500, 10000, *[10012] * 9], True),
        ([3900 + 400 * n for n in range(16)], False),
        ([3900, 4400, 5200, 6900, 8000, 9500, 9600, 9700, 9800, 9900, 9990, 10010, 10012, 10012], False),
    ],
)  # fmt: skip
def test_a_peak_that_stands_still_is_no_leak(levels: list[int], settled: bool) -> None:
    found = {f.kind for f in find_in_lines(number(memory(levels)), "t.log")}
    assert ("metrics.memory_settled" in found) is settled
