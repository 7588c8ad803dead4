"""For which rank do all others wait, by the step times that every rank prints?

In a synchronous step all ranks take equally long. What tells them apart is what they do in it: one rank
waits for its data while the others wait for it, or the others see a long step that the rank at fault,
busy between two of its own timed steps, does not count.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from firstfault_tools.findings import (
    Category,
    Confidence,
    Finding,
    Level,
    Strength,
    Together,
)
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
            view.evidence(quoted, series, usual={*quoted} - {first}),
            page="dataloader-stall",
            confidence=Confidence.CONFIRMED,
            rank=int(worst),
            facts={
                "part": "data",
                "value_ms": late[worst],
                "others_ms": usual,
                "ranks": [int(worst)],
                "starts_at": 1,
            },
            strength=Strength(Together.SERIES),
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
    table = {rank: dict(zip(steps[own].tolist(), own.tolist(), strict=True)) for rank, own in rows.items()}  # fmt: skip
    rank, long = _find_busy(table, times, usual)
    if rank is None:
        return []
    other = next(r for r in table if r != rank)
    paused = float(np.median([times[table[other][s]] for s in long]))
    cost = (paused - usual) * len(long) / max(float(np.sum(times[rows[other]])), 1e-9)
    if cost < 0.1 or paused - usual < 100:
        return []
    period = _find_period(long)
    when = f"every {period} steps" if period is not None else f"at {len(long)} steps"
    first = table[other][long[0]], table[rank][long[0]]
    return [
        make_finding(
            "rank_pauses",
            f"Long steps {when}, first at {series.label(first[0])}: {number(paused)} ms "
            f"against {number(usual)} ms usually on rank {other}, while rank {rank} itself reports "
            f"{number(float(times[first[1]]))} ms: rank {rank} is busy between its timed "
            "steps (evaluation, a save, logging, garbage collection) and the others wait for it; "
            f"{cost:.0%} of all time",
            Level.CAUSE if cost >= 0.2 else Level.FAILURE,
            Category.PERFORMANCE,
            view.evidence(first, series),
            confidence=Confidence.LIKELY,
            facts={
                "busy_rank": int(rank),
                "period_steps": period,
                "pause_ms": paused,
                "usual_ms": usual,
                "cost_share": cost,
                "starts_at": 1,
            },
            strength=Strength(Together.SERIES),
        )
    ]


def _find_busy(
    table: dict[int, dict[int, int]], times: NDArray[np.float64], usual: float
) -> tuple[int | None, list[int]]:
    """The one rank whose own time stays short in steps that are long on all others, and those steps.

    table: rank -> step -> row. The first three steps are left out, they are long for other reasons.
    """
    if usual <= 0:
        return None, []
    shared = sorted(set.intersection(*(set(own) for own in table.values())))[3:]
    long: list[int] = []
    ranks: set[int] = set()
    for step in shared:
        short = [rank for rank, own in table.items() if times[own[step]] < LONG * usual]
        if len(short) == 1:
            long.append(step)
            ranks.add(short[0])
    if len(ranks) != 1 or not 3 <= len(long) <= 0.5 * len(shared):
        return None, []
    return ranks.pop(), long


def _find_period(steps: list[int]) -> int | None:
    """The distance of steps that come regularly."""
    import numpy as np

    gaps = np.diff(steps)
    period = int(np.median(gaps))
    return period if np.all(np.abs(gaps - period) <= max(1, 0.1 * period)) else None


def judge_straggler(view: View) -> list[Finding]:
    """One rank whose own step time lies well above that of all others, step after step."""
    for metric in ("step_time_ms", "samples_per_s", "tokens_per_s"):
        found = _judge_metric(view, metric)
        if found is not None:
            return [found]
    return []


LEAST_RANKS, LEAST_VALUES = 4, 5
"""Ranks, and values of each of them, from which a straggler can be told."""


def _judge_metric(view: View, metric: str) -> Finding | None:
    """The straggler by one column, whether it prints times or rates."""
    import numpy as np

    series = view.all
    rows = _rows_by_rank(view, metric)
    values = series.values(metric)
    level = {r: float(np.median(values[own][1:])) for r, own in rows.items() if len(own) >= LEAST_VALUES}  # fmt: skip
    if len(level) < LEAST_RANKS:
        return None
    is_time = metric == "step_time_ms"
    times = level if is_time else {r: 1.0 / max(v, 1e-12) for r, v in level.items()}
    worst = max(times, key=lambda r: times[r])
    middle = _middle_of_others(times, worst)
    if middle is None or not _is_often_slow(values[rows[worst]], middle, is_time):
        return None
    slow = sorted(r for r, v in times.items() if v >= 1.2 * middle)
    usual = float(np.median([level[r] for r in level if r not in slow]))
    unit = "ms a step" if is_time else metric.replace("_per_s", "/s")
    who, host = f"Rank {worst} is the straggler", None
    if 1 < len(slow) <= len(times) / 2:
        host = _host_of_all(view, {r: int(rows[r][0]) for r in level}, slow)
        named = ", ".join(map(str, slow[:8]))
        who = f"Host {host} (ranks {named}) is slow" if host else f"Ranks {named} are the stragglers"  # fmt: skip
    own = rows[worst]
    first, last = int(own[0]), int(own[-1])
    return make_finding(
        "straggler",
        f"{who}: {number(level[worst])} {unit} against "
        f"{number(usual)} on the median of the other {len(level) - len(slow)} ranks, from "
        f"{series.label(first)} to {series.label(last)}",
        Level.FAILURE,
        Category.PERFORMANCE,
        view.evidence([first, int(own[len(own) // 2]), last], series),
        rank=int(worst) if len(slow) == 1 else None,
        host=host,
        facts={
            "rank": int(worst),
            "ranks": [int(r) for r in slow],
            "value": level[worst],
            "others": usual,
            "ratio": times[worst] / middle,
            "metric": metric,
        },
    )


def _rows_by_rank(view: View, metric: str) -> dict[int, NDArray[np.int64]]:
    """Rows with a value of `metric`, by rank; empty where fewer than four ranks print it."""
    import numpy as np

    values, ranks = view.all.values(metric), view.all.ranks()
    good = (values != MISSING) & np.isfinite(values) & (ranks != NO_RANK)
    names = np.unique(ranks[good])
    if len(names) < LEAST_RANKS:
        return {}
    return {rank: np.flatnonzero(good & (ranks == rank)) for rank in names.tolist()}


def _middle_of_others(times: dict[int, float], worst: int) -> float | None:
    """The usual time of all other ranks; None where the worst does not stand out from their spread."""
    import numpy as np

    others = np.array([v for r, v in times.items() if r != worst])
    middle = float(np.median(others))
    spread = float(np.median(np.abs(others - middle))) * 1.4826
    stands_out = times[worst] >= 1.2 * middle and times[worst] >= middle + 6 * spread
    return middle if stands_out else None


def _is_often_slow(values: NDArray[np.float64], middle: float, is_time: bool) -> bool:
    """At least four of five values lie beyond the usual time of the others."""
    beyond = values > 1.1 * middle if is_time else values < 0.9 / max(middle, 1e-12)
    return bool(beyond.mean() >= 0.8)


def _host_of_all(view: View, rows: dict[int, int], slow: list[int]) -> str | None:
    """The host on which all slow ranks are and none of the others, by the prefixes of their lines."""
    from firstfault_tools.log.prefix import read_prefix

    hosts = {r: read_prefix(view.text(view.all, row))[0].host for r, row in rows.items()}
    mine = {hosts[r] for r in slow}
    host = mine.pop() if len(mine) == 1 else None
    others = {h for r, h in hosts.items() if r not in slow}
    return host if host is not None and host not in others else None
