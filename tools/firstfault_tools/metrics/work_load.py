"""Do steps take longer because each of them does more? Batch size or sequence length that was raised.

A batch-size ramp-up or a curriculum of sequence lengths lengthens the steps on purpose. The step lines
print the load; where time grows with it and no faster, nothing is slow.
"""

from __future__ import annotations

from collections import defaultdict

from firstfault_tools.expressions import expression
from firstfault_tools.findings import Category, Confidence, Finding, Level
from firstfault_tools.metrics.view import View, make_finding, number

MOST_ROWS = 4_000
LEAST_ROWS = 2
RISE, SLACK = 1.15, 1.12
"""Times the step time must have risen; times it may rise faster than the load."""

_LOAD = expression(
    r"(?i)\b(?P<name>global[ _]batch[ _]size|batch[ _]size|actual seqlen|curriculum[ _]seqlen|"
    r"seq[ _]?len(?:gth)?|sequence[ _]length)['\"]?\W{1,6}(?P<value>\d{1,9})\b"
)


def judge_planned_load(view: View) -> list[Finding]:
    """Steps that grew longer in proportion to the batch size or sequence length in their lines."""
    import numpy as np

    times = view.curve("step_time_ms")
    if not 6 <= len(times) <= MOST_ROWS:
        return []
    levels: dict[int, list[float]] = defaultdict(list)
    rows: dict[int, int] = {}
    name = ""
    for row, ms in zip(times.rows.tolist(), times.values.tolist(), strict=True):
        told = _LOAD.search(view.text(view.lead, row))
        if told is None or (name and told["name"].lower() != name):
            return []
        name = told["name"].lower()
        levels[int(told["value"])].append(ms)
        rows.setdefault(int(told["value"]), row)
    order = [load for load in levels if load > 0]
    if len(order) < 2 or order != sorted(order) or len(levels[order[-1]]) < LEAST_ROWS:
        return []
    middle = {load: float(np.median(levels[load])) for load in order}
    low, high = order[0], order[-1]
    rise, load_rise = middle[high] / middle[low], high / low
    fits = load_rise if "batch" in name else load_rise**2
    if rise < RISE or rise > SLACK * fits:
        return []
    name = name.replace("_", " ")
    stages = ", ".join(f"{load}: {number(middle[load])} ms" for load in order[:8])
    what = "batch-size ramp-up" if "batch" in name else "longer sequences"
    return [
        make_finding(
            "planned_load",
            f"Steps take {rise:.2f} times as long because {name} was raised {load_rise:.3g}-fold, from "
            f"{low} to {high} ({stages}): {what}, as planned. Per sample the run is not slower "
            f"({number(middle[low] / low)} ms then, {number(middle[high] / high)} ms now)",
            Level.BENIGN,
            Category.PERFORMANCE,
            view.evidence([rows[low], rows[high] - 1, rows[high], int(times.rows[-1])]),
            page="batch-size-ramp-up",
            confidence=Confidence.CONFIRMED,
            facts={"load": name, "from": low, "to": high, "ratio": rise},
        )
    ]
