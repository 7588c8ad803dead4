"""Did GPU memory climb step by step until a process ran out of it?

A step that does not fit fails in the first steps. Memory that climbs by about the same amount every
step and then runs out is kept from step to step: a loss, a metric or a state that still carries its
graph, outputs gathered in a list, a cache without a bound.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Sequence

from firstfault_tools.expressions import expression
from firstfault_tools.findings import Category, Confidence, Evidence, Finding, Level
from firstfault_tools.hardware.excerpt import may_hold
from firstfault_tools.metrics.series import MISSING, NO_RANK, NO_STEP, StepSeries

LEAK = "memory.leak"
MIN_ROWS = 6
COLUMNS = ("mem_allocated_gib", "mem_peak_gib", "mem_reserved_gib")
FEW_ROWS = 4
LEAST_GROWTH, LARGE_GROWTH = 0.15, 0.35
"""Share of the last value that must have been gained after the first steps; where only a few rows tell."""

OUT_OF_MEMORY = expression(
    r"CUDA out of memory\. Tried|OutOfMemoryError|HIP out of memory|CUDA error: out of memory"
)


def find_in_lines(lines: Sequence[tuple[int, str]], file: str) -> Iterable[Finding]:
    """One finding where logged GPU memory climbs up to the first out-of-memory message."""
    end = find_end(lines)
    if end is None or end < FEW_ROWS:
        return []
    from firstfault_tools.metrics.log_lines import read_steps

    series = read_steps(lines)
    for column in COLUMNS:
        found = _climb(series, column, file, lines[end][0])
        if found is not None:
            return [found]
    return []


def find_end(lines: Sequence[tuple[int, str]]) -> int | None:
    """Index of the first out-of-memory message of a GPU, or None."""
    if not may_hold(lines, ("emory",)):
        return None
    told = (i for i, (_, text) in enumerate(lines) if "emory" in text)
    return next((i for i in told if OUT_OF_MEMORY.search(lines[i][1]) is not None), None)


def _climb(series: StepSeries, column: str, file: str, end: int) -> Finding | None:
    if column not in series.columns:
        return None
    by_rank: dict[int, list[int]] = defaultdict(list)
    values = series.columns[column]
    for row in range(len(series)):
        if series.line[row] >= end:
            break
        if values[row] != MISSING and values[row] > 0:
            by_rank[series.rank[row]].append(row)
    best: tuple[float, int, list[int]] | None = None
    for rank, rows in by_rank.items():
        if len(rows) < FEW_ROWS:
            continue
        few = len(rows) < MIN_ROWS
        start = 1 if len(rows) < 12 else 2
        tail = [values[r] for r in rows[start:]]
        gained, third = tail[-1] - tail[0], len(tail) // 3
        falls = sum(max(0.0, a - b) for a, b in itertools.pairwise(tail))
        steady = tail[-1] - tail[-1 - third] > 0.2 * gained and falls < 0.1 * gained
        if few and not all(b > 1.05 * a for a, b in itertools.pairwise(tail)):
            continue
        least = LARGE_GROWTH if few else LEAST_GROWTH
        if gained > least * tail[-1] and steady and (best is None or gained > best[0]):
            best = gained, rank, rows
    if best is None:
        return None
    _, rank, rows = best
    first, last = rows[0], rows[-1]
    numbered = NO_STEP not in (series.step[first], series.step[last])
    numbered = numbered and series.step[first] < series.step[last]
    steps = max(1, series.step[last] - series.step[first] if numbered else len(rows) - 1)
    each = (values[last] - values[first]) / steps
    at = (f"step {series.step[first]}", f"step {series.step[last]}") if numbered else (
        f"line {series.line[first]}", f"line {series.line[last]}")  # fmt: skip
    title = (
        f"GPU memory grew steadily before, from {values[first]:.4g} GiB at {at[0]} to {values[last]:.4g} GiB "
        f"at {at[1]} ({each:.3g} GiB a {'step' if numbered else 'printed row'}): a leak, "
        "something keeps tensors from step to step (a loss, metric or state that still carries its "
        "graph and was not detached, or outputs gathered in a list)"
    )
    evidence = tuple(
        Evidence(file, series.line[r], series.texts.get(r) or "", None if rank == NO_RANK else rank)
        for r in (first, last)
    )
    return Finding(
        kind=LEAK,
        title=title,
        level=Level.FAILURE,
        category=Category.OOM,
        confidence=Confidence.LIKELY,
        evidence=tuple(e for e in evidence if e.text),
        page="memory-growth",
        facts={"first_gib": values[first], "last_gib": values[last], "per_step_gib": each},
    )
