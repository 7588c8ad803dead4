"""What does the schedule look like? A Gantt chart as data and as a few lines of text."""

from __future__ import annotations

from collections.abc import Sequence

from firstfault_tools.findings import Json
from firstfault_tools.pipeline.simulation import Task

MAX_TASKS = 20_000


def gantt_rows(tasks: Sequence[Task]) -> list[dict[str, Json]]:
    """One mapping a bar: stage, microbatch, kind (F, B, I input gradient, W), chunk, start, end."""
    return [
        {
            "stage": task.stage,
            "microbatch": task.microbatch,
            "kind": task.kind,
            "chunk": task.chunk,
            "start": task.start,
            "end": task.end,
        }
        for task in tasks[:MAX_TASKS]
    ]


def draw_gantt(tasks: Sequence[Task], width: int = 100, rows: int = 16) -> str:
    """Fixed-width chart: one line a stage, the letter of what fills most of each cell, '.' for
    idle.

    Long steps are squeezed to `width` cells; of many stages the first, middle and last are shown.
    """
    if not tasks:
        return ""
    stages = sorted({task.stage for task in tasks})
    if len(stages) > rows:
        take = [round(i * (len(stages) - 1) / (rows - 1)) for i in range(rows)]
        stages = [stages[i] for i in take]
    begin = min(task.start for task in tasks)
    total = max(task.end for task in tasks) - begin
    cell = total / width
    lines = []
    for stage in stages:
        fill: list[dict[str, float]] = [{} for _ in range(width)]
        for task in tasks:
            if task.stage != stage:
                continue
            start, end = (task.start - begin) / cell, (task.end - begin) / cell
            for i in range(int(start), min(width, int(end) + 1)):
                part = min(end, i + 1) - max(start, i)
                if part > 0:
                    fill[i][task.kind] = fill[i].get(task.kind, 0.0) + part
        text = "".join(
            max(f, key=lambda k: f[k]) if f and sum(f.values()) >= 0.5 else "." for f in fill
        )
        lines.append(f"{stage:>4} {text}")
    return "\n".join(lines)
