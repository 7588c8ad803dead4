"""For which rank do all others wait, by the step times that every rank prints?

In a synchronous step all ranks take equally long. What tells them apart is what they do in it: one rank
waits for its data while the others wait for it, or the others see a long step that the rank at fault,
busy between two of its own timed steps, does not count.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from firstfault_tools.findings import Category, Confidence, Finding, Level
from firstfault_tools.metrics.series import MISSING, NO_RANK, NO_STEP
from firstfault_tools.metrics.view import View, make_finding, number

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

LEAST_ROWS = 6
ALONE, SHARE = 5.0, 0.25
"""Data time of the one rank against that of the others, and against the step."""
LONG = 3.0


def _by_rank(view: View, metric: str) -> dict[int, NDArray[np.int64]]:
    """Rows with a value of `metric` and a step, by rank; empty where fewer than two ranks print it."""
    import numpy as np

    series = view.all
    values, ranks = series.values(metric), series.ranks()
    good = (values != MISSING) & np.isfinite(values) & (ranks != NO_RANK)
    good &= series.steps() != NO_STEP
    found = {}
    for rank in np.unique(ranks[good])[:4096].tolist():
        rows = np.flatnonzero(good & (ranks == rank))
        if len(rows) >= LEAST_ROWS:
            found[rank] = rows
    return found if len(found) >= 2 else {}


def judge_rank_data(view: View) -> list[Finding]:
    """One rank that waits for its data while all others have theirs."""
    import numpy as np

    series = view.all
    rows = _by_rank(view, "data_time_ms")
    if not rows:
        return []
    data, step = series.values("data_time_ms"), series.values("step_time_ms")
    late = {rank: float(np.median(data[own[len(own) // 2 :]])) for rank, own in rows.items()}
    worst = max(late, key=lambda rank: late[rank])
    others = [value for rank, value in late.items() if rank != worst]
    own = rows[worst]
    half = own[len(own) // 2 :]
    whole = float(np.median(np.where(step[half] != MISSING, step[half], 0.0)))
    usual = max(others)
    if late[worst] < max(ALONE * usual, 50.0) or (whole and late[worst] < SHARE * whole):
        return []
    first = int(own[int(np.argmax(data[own] >= 0.5 * late[worst]))])
    at = int(np.flatnonzero(own == first)[0])
    since = f" since {series.label(first)}" if at else ""
    rest = [r for r, v in late.items() if r != worst]
    beside = rows[rest[0]]
    same = beside[np.isin(series.steps()[beside], [series.step[first]])]
    quoted = [*([int(own[at - 1])] if at else []), first, *same[:1].tolist()]
    seconds = f" of a step of {number(whole / 1000)} s" if whole else ""
    return [
        make_finding(
            "rank_waits",
            f"Rank {worst} alone waits for its input data{since}: {number(late[worst] / 1000)} s"
            f"{seconds}, the other {len(rest)} rank(s) at most {number(usual / 1000)} s; they wait "
            f"for rank {worst} in the collective",
            Level.CAUSE,
            Category.PERFORMANCE,
            view.evidence(quoted, series),
            page="dataloader-stall",
            confidence=Confidence.CONFIRMED,
            rank=int(worst),
            facts={
                "part": "data",
                "value_ms": late[worst],
                "others_ms": usual,
                "ranks": [int(worst)],
                "starts_at": 1,
                "specificity": 5_000,
            },
        )
    ]


def judge_rank_pauses(view: View) -> list[Finding]:
    """Steps that are long on all ranks but one, again and again: that rank is busy between its steps."""
    import numpy as np

    series = view.all
    rows = _by_rank(view, "step_time_ms")
    if not rows:
        return []
    times = series.values("step_time_ms")
    steps = series.steps()
    usual = float(np.median(times[np.concatenate(list(rows.values()))]))
    if usual <= 0:
        return []
    table = {rank: dict(zip(steps[own].tolist(), own.tolist(), strict=True)) for rank, own in rows.items()}  # fmt: skip
    shared = sorted(set.intersection(*(set(t) for t in table.values())))[3:]
    long: list[tuple[int, int]] = []
    for step in shared:
        short = [rank for rank, own in table.items() if times[own[step]] < LONG * usual]
        if len(short) == 1:
            long.append((step, short[0]))
    ranks = {rank for _, rank in long}
    if len(ranks) != 1 or len(long) < 3 or len(long) > 0.5 * len(shared):
        return []
    rank = ranks.pop()
    other = next(r for r in table if r != rank)
    paused = float(np.median([times[table[other][s]] for s, _ in long]))
    gaps = np.diff([s for s, _ in long])
    period = int(np.median(gaps))
    regular = bool(np.all(np.abs(gaps - period) <= max(1, 0.1 * period)))
    cost = (paused - usual) * len(long) / max(float(np.sum(times[rows[other]])), 1e-9)
    if cost < 0.1 or paused - usual < 100:
        return []
    step = long[0][0]
    when = f"every {period} steps" if regular else f"at {len(long)} steps"
    return [
        make_finding(
            "rank_pauses",
            f"Long steps {when}, first at {series.label(table[other][step])}: {number(paused)} ms "
            f"against {number(usual)} ms usually on rank {other}, while rank {rank} itself reports "
            f"{number(float(times[table[rank][step]]))} ms: rank {rank} is busy between its timed "
            "steps (evaluation, a save, logging, garbage collection) and the others wait for it; "
            f"{cost:.0%} of all time",
            Level.CAUSE if cost >= 0.2 else Level.FAILURE,
            Category.PERFORMANCE,
            view.evidence([table[other][step], table[rank][step]], series),
            page="rank-zero-work",
            confidence=Confidence.LIKELY,
            facts={
                "busy_rank": int(rank),
                "period_steps": period if regular else None,
                "pause_ms": paused,
                "usual_ms": usual,
                "cost_share": cost,
                "starts_at": 1,
                "specificity": 5_000,
            },
        )
    ]
