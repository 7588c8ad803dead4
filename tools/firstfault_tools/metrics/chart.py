"""Which points does a chart of a run need? Curves thinned to what a screen can show."""

from __future__ import annotations

import math
from collections.abc import Sequence

from firstfault_tools.findings import Json
from firstfault_tools.metrics.series import NO_STEP, StepSeries
from firstfault_tools.metrics.view import lead_of


def thin_curve(x: Sequence[float], y: Sequence[float], points: int) -> list[int]:
    """Indices to draw: of each stretch the first, lowest, highest and last value, and every NaN border.

    A spike of one step stays visible however long the run is.
    """
    count = len(y)
    if count <= points:
        return list(range(count))
    width = max(1, math.ceil(4 * count / points))
    kept: set[int] = set()
    for start in range(0, count, width):
        part = range(start, min(count, start + width))
        finite = [i for i in part if math.isfinite(y[i])]
        kept.update((part[0], part[-1]))
        if finite:
            kept.add(min(finite, key=y.__getitem__))
            kept.add(max(finite, key=y.__getitem__))
            if len(finite) < len(part):
                kept.add(finite[-1])
                kept.add(next(i for i in part if not math.isfinite(y[i])))
    return sorted(kept)


def chart_columns(series: StepSeries, points: int = 1500) -> dict[str, Json]:
    """metric -> {"x", "y", "line"} of the lead rank; x is the step, or the row where none is printed.

    Values that are not finite are null, which a chart shows as a gap.
    """
    lead = lead_of(series)
    charts: dict[str, Json] = {}
    for metric in lead.columns:
        rows = lead.rows_with(metric).tolist()
        values = lead.values(metric)
        x = [lead.step[r] if lead.step[r] != NO_STEP else r for r in rows]
        y = [float(values[r]) for r in rows]
        keep = thin_curve(x, y, points)
        charts[metric] = {
            "x": [x[i] for i in keep],
            "y": [y[i] if math.isfinite(y[i]) else None for i in keep],
            "line": [lead.line[rows[i]] for i in keep],
        }
    return charts


def summarise_columns(series: StepSeries) -> dict[str, Json]:
    """metric -> count, first, last, lowest, median, highest of the finite values, and how many are not."""
    import numpy as np

    lead = lead_of(series)
    out: dict[str, Json] = {}
    for metric in lead.columns:
        values = lead.values(metric)[lead.rows_with(metric)]
        good = values[np.isfinite(values)]
        if not len(good):
            out[metric] = {"count": len(values), "not_finite": len(values)}
            continue
        out[metric] = {
            "count": len(values),
            "not_finite": len(values) - len(good),
            "first": float(good[0]),
            "last": float(good[-1]),
            "lowest": float(good.min()),
            "median": float(np.median(good)),
            "highest": float(good.max()),
        }
    return out
