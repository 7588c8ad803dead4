"""How does this run differ from a healthy one, step by step?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from firstfault_tools.findings import Category, Finding, Json, Level
from firstfault_tools.metrics.series import MISSING, NO_STEP, StepSeries
from firstfault_tools.metrics.view import View, lead_of, make_finding, noise_of, number

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

PACE = ("step_time_ms", "tokens_per_s", "samples_per_s", "iterations_per_s", "tflops", "mfu_pct")
MEMORY = ("mem_peak_gib", "mem_allocated_gib", "mem_reserved_gib", "host_mem_gib")


def _by_step(series: StepSeries, metric: str) -> dict[int, tuple[float, int]]:
    values = series.values(metric)
    found: dict[int, tuple[float, int]] = {}
    for row, step in enumerate(series.step):
        if step != NO_STEP and values[row] != MISSING:
            found[step] = (float(values[row]), row)
    return found


def _shared(
    mine: StepSeries, theirs: StepSeries, metric: str
) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
    """Rows of this run, its values and the baseline's, at the steps that both logged."""
    import numpy as np

    a, b = _by_step(mine, metric), _by_step(theirs, metric)
    steps = sorted(a.keys() & b.keys())
    return (
        np.array([a[s][1] for s in steps], dtype=np.int64),
        np.array([a[s][0] for s in steps]),
        np.array([b[s][0] for s in steps]),
    )


def _first_lasting(bad: NDArray[np.bool_]) -> int | None:
    """First index from which at least four of every five values are bad, to the end."""
    import numpy as np

    if len(bad) < 5 or not bad[-1]:
        return None
    share = np.cumsum(bad[::-1])[::-1] / np.arange(len(bad), 0, -1)
    good = np.flatnonzero(bad & (share >= 0.8))
    return int(good[0]) if len(good) and len(bad) - good[0] >= 5 else None


def compare_baseline(
    series: StepSeries, baseline: StepSeries, file: str, tolerance: float = 0.1
) -> tuple[Finding, ...]:
    """Where this run leaves the baseline: loss, learning rate, pace, memory. tolerance: relative."""
    import numpy as np

    view = View(all=series, lead=lead_of(series), file=file)
    mine, theirs = view.lead, lead_of(baseline)
    found: list[Finding] = []
    rows, a, b = _shared(mine, theirs, "lr")
    if len(rows):
        apart = np.abs(a - b) > np.maximum(0.02 * np.abs(b), 1e-12)
        at = _first_lasting(apart)
        if at is not None:
            found.append(
                _finding(view, "lr", Level.FAILURE, rows[at], a[at], b[at], Category.NUMERICAL)
            )
    rows, a, b = _shared(mine, theirs, "loss")
    good = np.isfinite(a) & np.isfinite(b)
    rows, a, b = rows[good], a[good], b[good]
    if len(rows) >= 10:
        scatter = max(noise_of(a), noise_of(b))
        at = _first_lasting(a - b > np.maximum(4 * scatter, tolerance * np.abs(b)))
        if at is not None:
            found.append(
                _finding(view, "loss", Level.FAILURE, rows[at], a[at], b[at], Category.NUMERICAL)
            )
    for metric in PACE:
        rows, a, b = _shared(mine, theirs, metric)
        if len(rows) < 10:
            continue
        now, then = float(np.median(a[2:])), float(np.median(b[2:]))
        ratio = now / then if metric == "step_time_ms" else then / max(now, 1e-12)
        if ratio > 1 + tolerance:
            slower = (
                a > (1 + tolerance) * b if metric == "step_time_ms" else a < b / (1 + tolerance)
            )
            at = _first_lasting(slower) or 0
            found.append(
                _finding(view, metric, Level.FAILURE, rows[at], now, then, Category.PERFORMANCE)
            )
        break
    for metric in MEMORY:
        rows, a, b = _shared(mine, theirs, metric)
        if len(rows) >= 5 and float(np.max(a)) > (1 + tolerance) * float(np.max(b)):
            top = int(np.argmax(a))
            found.append(
                _finding(
                    view, metric, Level.CONTEXT, rows[top], a[top], float(np.max(b)), Category.OOM
                )
            )
            break
    return tuple(found)


def _finding(
    view: View,
    metric: str,
    level: Level,
    row: int,
    now: float,
    then: float,
    category: Category,
) -> Finding:
    label = view.lead.label(int(row))
    change = f" ({now / then - 1:+.0%})" if then else ""
    facts: dict[str, Json] = {
        "metric": metric,
        "at": label,
        "value": float(now),
        "baseline": float(then),
    }
    page = {"lr": "learning-rate-schedules", "loss": "loss-curve-reading"}.get(metric)
    if page is None:
        page = "memory-growth" if metric in MEMORY else "throughput-drop"
    return make_finding(
        f"baseline_{metric}",
        f"{metric} leaves the baseline at {label}: {number(float(now))} against "
        f"{number(float(then))}{change}",
        level,
        category,
        view.evidence([int(row)]),
        page=page,
        facts=facts,
    )
