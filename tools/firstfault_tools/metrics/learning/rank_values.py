"""On which rank did a number break first, while the same number was normal on all other ranks?

A gradient norm that explodes on one rank under a normal loss was corrupted there or came from that
rank's batch; a loss that is NaN on one rank first has its reason on that rank, whoever asserts later.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from firstfault_tools.expressions import expression
from firstfault_tools.findings import (
    Category,
    Confidence,
    Finding,
    Json,
    Level,
    Strength,
    Together,
)
from firstfault_tools.metrics.series import MISSING, NO_RANK, NO_STEP
from firstfault_tools.metrics.view import View, make_finding, number

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

LEAST = 3
EXPLODED, ALIKE = 100.0, 8.0
"""Times the median of the others; how far apart the others may lie."""

_LOSS = expression(r"(?i)loss['\"]?\s?[:= ]\s?(\d{1,4}(?:\.\d+)?)(?![\d.e])")
METRICS = {"grad_norm": "gradient norm", "loss": "loss"}


def judge_rank_value(view: View) -> list[Finding]:
    """The first step at which one rank alone has an absurd gradient norm or loss."""
    import numpy as np

    series = view.all
    ranks, steps = series.ranks(), series.steps()
    known = (ranks != NO_RANK) & (steps != NO_STEP)
    if len(np.unique(ranks[known])) < LEAST:
        return []
    best: tuple[int, str] | None = None
    for metric in METRICS:
        values = series.values(metric)
        rows = np.flatnonzero(known & (values != MISSING))
        at = _first_odd(steps[rows], ranks[rows], values[rows])
        if at is not None and (best is None or int(rows[at]) < best[0]):
            best = (int(rows[at]), metric)
    return [] if best is None else _describe(view, *best)


def _first_odd(
    steps: NDArray[np.int64], ranks: NDArray[np.int32], values: NDArray[np.float64]
) -> int | None:
    """Index of the first value that alone of its step is far from all others."""
    import numpy as np

    if len(steps) < LEAST:
        return None
    finite = values[np.isfinite(values)]
    if not len(finite):
        return None
    # A look at the extremes first: a healthy run ends here.
    typical = float(np.median(np.abs(finite)))
    suspect = ~np.isfinite(values) | (np.abs(values) > EXPLODED * max(typical, 1e-12))
    for index in np.flatnonzero(suspect)[:64].tolist():
        same = np.flatnonzero((steps == steps[index]) & (ranks != ranks[index]))
        # a rank may print its own value and then that of the whole run
        others = same[np.unique(ranks[same], return_index=True)[1]]
        if len(others) < LEAST - 1:
            continue
        rest = values[others]
        if not np.all(np.isfinite(rest)) or np.any(suspect[others]):
            return None  # by then it is everywhere
        level = float(np.median(np.abs(rest)))
        if float(np.max(np.abs(rest))) <= ALIKE * max(level, 1e-12):
            return int(index)
    return None


def _describe(view: View, row: int, metric: str) -> list[Finding]:
    import numpy as np

    series = view.all
    rank, step = series.rank[row], series.step[row]
    values, ranks = series.values(metric), series.ranks()
    same = np.flatnonzero((series.steps() == step) & (values != MISSING) & (ranks != NO_RANK))
    same = same[ranks[same] != rank]
    others = same[np.unique(ranks[same], return_index=True)[1]]
    value = float(values[row])
    low, high = float(np.min(values[others])), float(np.max(values[others]))
    label, name = series.label(row), METRICS[metric]
    shown = "NaN" if value != value else f"{value:.4g}"
    title = (
        f"At {label} rank {rank} alone has a {name} of {shown}; the other {len(others)} ranks lie "
        f"between {number(low)} and {number(high)}"
    )
    facts: dict[str, Json] = {
        "rank": rank,
        "step": step,
        "value": shown,
        "others_low": low,
        "others_high": high,
        "ranks": [rank],
        "starts_at": 1,
    }
    loss = _LOSS.search(view.text(series, row))
    if metric == "grad_norm" and loss is not None:
        title += (
            f", and its own loss is normal ({loss[1]}): the value was corrupted on that rank's "
            "GPU in the backward pass (silent data corruption suspected) or comes from its batch"
        )
    else:
        title += ": the reason lies on that rank, in its batch or its GPU"
    later = _breaks_later(view, row)
    if later is not None:
        title += f"; {later[0]}"
    quoted = [row, *others[:2].tolist(), *([later[1]] if later else [])]
    evidence = view.evidence(quoted, series, usual=set(others[:2].tolist()))
    evidence = (*(e for e in evidence if e.line == series.line[row]), *(e for e in evidence if e.line != series.line[row]))  # fmt: skip
    goes_on = later is None and np.isfinite(value) and _goes_on(view, row)
    return [
        make_finding(
            "rank_value",
            title,
            Level.CONTEXT if goes_on else Level.CAUSE,
            Category.NUMERICAL,
            evidence,
            confidence=Confidence.LIKELY,
            rank=int(rank),
            facts=facts,
            strength=Strength(Together.SERIES),
        )
    ]


def _breaks_later(view: View, row: int) -> tuple[str, int] | None:
    """(words, row) of the first value of any rank that is not finite after the odd one."""
    import numpy as np

    series = view.all
    for metric, name in (("loss", "loss"), ("grad_norm", "gradient norm")):
        values = series.values(metric)
        bad = np.flatnonzero((values != MISSING) & ~np.isfinite(values))
        bad = bad[bad > row]
        if len(bad):
            return f"the {name} of the run is not finite since {series.label(int(bad[0]))}", int(
                bad[0]
            )
    return None


def _goes_on(view: View, row: int) -> bool:
    """At least five later steps with finite values."""
    import numpy as np

    series = view.all
    steps = series.steps()
    later = steps[row + 1 :]
    return len(np.unique(later[later > steps[row]])) >= 5
