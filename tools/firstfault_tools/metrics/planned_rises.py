"""Did a curve rise as it should? Memory that settles, steps that take longer since each does more.

A batch-size ramp-up or a curriculum of sequence lengths lengthens the steps on purpose, and a running
maximum of memory climbs until it has seen the largest batch: neither is a fault.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from firstfault_tools.expressions import expression
from firstfault_tools.findings import Category, Confidence, Finding, Level
from firstfault_tools.metrics.memory_trend import GPU, NAMES
from firstfault_tools.metrics.series import MISSING, Event, StepSeries
from firstfault_tools.metrics.view import Curve, View, make_finding, number

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MOST_ROWS = 4_000
LEAST_ROWS = 2
RISE, SLACK = 1.15, 1.12
"""Times the step time must have risen; times it may rise faster than the load."""

_LOAD = expression(
    r"(?i)\b(?P<name>global[ _]batch[ _]size|batch[ _]size|actual seqlen|curriculum[ _]seqlen|"
    r"seq[ _]?len(?:gth)?|sequence[ _]length)['\"]?\W{1,6}(?P<value>\d{1,9})\b"
)
LONGEST_START = len("curriculum ")
"""Characters of a name before the word that all names share."""

SETTLED = 0.35
"""Share of the steps, at the end, over which a running maximum must not have moved."""


def _list_levels(
    series: StepSeries, least: int
) -> Iterator[tuple[str, NDArray[np.int64], NDArray[np.float64]]]:
    """(metric, rows, values) of each GPU memory that is printed at least so often."""
    import numpy as np

    for metric in GPU:
        values = series.values(metric)
        rows = np.flatnonzero((values != MISSING) & np.isfinite(values))
        if len(rows) >= least:
            yield metric, rows, values[rows]


def judge_memory_step(view: View) -> list[Finding]:
    """Memory that rose once after the first step and is level since: optimizer state, no leak."""
    import numpy as np

    series = view.lead
    for metric, rows, level in _list_levels(series, 5):
        if series.step[int(rows[0])] > 2:
            continue
        early = min(3, len(level) - 3)
        settled = level[early:]
        rise = float(settled[0] - level[0])
        if rise < max(0.03 * float(level[0]), 0.1):
            continue
        if float(np.ptp(settled)) > max(0.01 * float(settled[0]), 0.02):
            continue
        row, last = int(rows[early]), int(rows[-1])
        return [
            make_finding(
                "memory_level",
                f"{NAMES[metric]} rose once from {number(float(level[0]))} GiB at "
                f"{series.label(int(rows[0]))} to {number(float(settled[0]))} GiB and is constant "
                f"up to {series.label(last)}: optimizer state allocated at the first step, not a "
                "leak",
                Level.BENIGN,
                Category.OOM,
                view.evidence([int(rows[0]), int(rows[1]), row, last]),
                confidence=Confidence.CONFIRMED,
                facts={"first_gib": float(level[0]), "level_gib": float(settled[0])},
            )
        ]
    return []


def judge_first_peak(view: View) -> list[Finding]:
    """A peak in the first row only, then a much lower level: start-up work, no leak."""
    import numpy as np

    series = view.lead
    for metric, rows, level in _list_levels(series, 5):
        if series.step[int(rows[0])] > 2:
            continue
        settled = level[1:]
        top, usual = float(level[0]), float(np.median(settled))
        if top < 1.3 * usual + 0.3 or float(np.ptp(settled)) > max(0.03 * usual, 0.05):
            continue
        return [
            make_finding(
                "memory_first_peak",
                f"{NAMES[metric]} was {number(top)} GiB at {series.label(int(rows[0]))} only and is constant at "
                f"{number(usual)} GiB since, up to {series.label(int(rows[-1]))}: no leak. The first step holds what "
                "is needed once (cuDNN benchmark workspaces, compilation, set-up), and PyTorch's caching allocator "
                "keeps the freed memory reserved, so nvidia-smi goes on showing the peak",
                Level.BENIGN,
                Category.OOM,
                view.evidence([int(rows[0]), int(rows[1]), int(rows[-1])]),
                confidence=Confidence.CONFIRMED,
                facts={"first_gib": top, "level_gib": usual},
            )
        ]
    return []


def judge_settled_peak(view: View) -> list[Finding]:
    """Peak GPU memory that climbed for a while and has stood still for a good part of the run."""
    import numpy as np

    series = view.lead
    steps = series.steps()
    for metric, rows, level in _list_levels(series, 8):
        top = float(level.max())
        start = int(np.argmax(level >= 0.995 * top))
        climbed = top - float(level[0])
        if climbed < max(0.1 * top, 0.3) or start < 3:
            continue  # judge_memory_step tells of a single rise at the start
        tail = level[start:]
        span = float(steps[rows[-1]] - steps[rows[0]])
        held = float(steps[rows[-1]] - steps[rows[start]])
        if len(tail) < 3 or float(np.ptp(tail)) > 0.005 * top or held < SETTLED * span or span <= 0:
            continue
        first, at, last = int(rows[0]), int(rows[start]), int(rows[-1])
        return [
            make_finding(
                "memory_settled",
                f"{NAMES[metric]} rose from {number(float(level[0]))} GiB at {series.label(first)} to "
                f"{number(top)} GiB at {series.label(at)} and is level since, up to "
                f"{series.label(last)}: a running maximum that has seen the largest batch, not a leak; "
                "what nvidia-smi shows beyond it is cached by the allocator",
                Level.BENIGN,
                Category.OOM,
                view.evidence([first, at, last]),
                confidence=Confidence.CONFIRMED,
                facts={"first_gib": float(level[0]), "level_gib": top, "since": series.label(at)},
            )
        ]
    return []


def _find_load(text: str) -> re.Match[str] | None:
    """The first named load of a line; every name holds one of two words near its start."""
    lower = text.lower()
    places = [at for word in ("batch", "seq") if (at := lower.find(word)) >= 0]
    if not places:
        return None
    longer = len(lower) - len(text)  # a few letters are two in lower case
    return _LOAD.search(text, max(0, min(places) - LONGEST_START - longer))


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
        told = _find_load(view.text(view.lead, row))
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
            confidence=Confidence.CONFIRMED,
            facts={"load": name, "from": low, "to": high, "ratio": rise},
        )
    ]


TIMES_SEEN, AFTER = 2, 0.04
"""Evaluations after each of which the loss must have risen; share of it by which it must have."""


def judge_loss_after_evaluation(view: View) -> list[Finding]:
    """A training loss that is higher after every evaluation than before it: something was not put back."""
    loss, series = view.curve("loss"), view.lead
    events = view.events("evaluation")
    if len(events) < TIMES_SEEN or len(loss) < 3 * TIMES_SEEN:
        return []
    values, rows = loss.values, loss.rows
    rises = _rises_after(view, loss, events[:200])
    falls = [float(values[i - 1] - values[i]) for i in range(1, len(values)) if i not in rises]
    if len(rises) < TIMES_SEEN or not falls:
        return []
    at, last = next(iter(rises)), next(reversed(rises))
    least = min(rises.values())
    level = float(abs(values[at - 1]))
    # between evaluations it must come down again, else it is a trend
    if least < AFTER * level or least < 3 * max(-min(falls), 0.0) or sum(falls) <= 0:
        return []
    first = int(rows[at])
    told = [e for e in events if e.line < series.line[first]][-1:]
    return [
        make_finding(
            "loss_after_evaluation",
            f"The training loss steps up after each of {len(rises)} evaluations (at {series.label(first)} from "
            f"{number(float(values[at - 1]))} to {number(float(values[at]))}) and comes down again until the next: the "
            "evaluation leaves something behind that training goes on with (EMA weights not swapped back, the model left in eval mode, "
            "a changed random state or batch statistics); validation data has no part in it",
            Level.CAUSE,
            Category.CODE_BUG,
            view.evidence([int(rows[at - 1]), first, int(rows[last])]) + view.event_evidence(told),
            facts={"evaluations": len(rises), "severity": "warning"},
        )
    ]


def _rises_after(view: View, curve: Curve, events: Sequence[Event]) -> dict[int, float]:
    """By place of the curve: how much its first value after an event lies above the last one before."""
    lines = [view.lead.line[int(r)] for r in curve.rows]
    rises: dict[int, float] = {}
    for event in events:
        at = bisect_left(lines, event.line)
        if 0 < at < len(lines):
            rises[at] = float(curve.values[at] - curve.values[at - 1])
    return rises
