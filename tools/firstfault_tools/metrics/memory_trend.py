"""Does memory stay flat, climb a slope or climb stairs, and when does it run out?"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from firstfault_tools.dataclass import dataclass
from firstfault_tools.findings import Category, Confidence, Finding, Json, Level
from firstfault_tools.kind_pages import page_of_kind
from firstfault_tools.metrics.series import MISSING, NO_RANK, NO_STEP, StepSeries
from firstfault_tools.metrics.view import View, block_medians, make_finding, noise_of, number

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

HOST = "host_mem_gib"
HOST_SHARE = "host_mem_pct"
HOST_FREE = "host_free_gib"
HOSTS = (HOST, HOST_SHARE, HOST_FREE)
GPU = ("mem_allocated_gib", "mem_peak_gib", "mem_reserved_gib")
NAMES = {
    HOST: "Host memory",
    HOST_SHARE: "Host memory use",
    HOST_FREE: "Free host memory",
    "mem_allocated_gib": "GPU memory",
    "mem_peak_gib": "Peak GPU memory",
    "mem_reserved_gib": "Reserved GPU memory",
}


@dataclass(frozen=True, slots=True)
class Growth:
    """A steady climb. per_row: GiB a row. stairs: most of it came in a few jumps."""

    rows: NDArray[np.int64]
    values: NDArray[np.float64]
    per_row: float
    stairs: bool


def _climb(
    rows: NDArray[np.int64],
    values: NDArray[np.float64],
    metric: str,
    scale: float | None = None,
) -> Growth | None:
    """Growth that goes on to the end of the log, or None. scale: what a share of it refers to."""
    import numpy as np

    host = metric in HOSTS
    if len(values) < (7 if host else 16):
        return None
    # The first steps allocate optimizer state, caches and workers; that is no leak.
    skip = max(2 if len(values) >= 8 else 1, len(values) // 10)
    whole = rows, values
    rows, values = rows[skip:], values[skip:]
    blocks = block_medians(values, 64)
    size = len(blocks)
    total = float(blocks[-1] - blocks[0])
    size_of = scale if scale is not None else float(blocks[0])
    if not _is_large(blocks, size_of, len(values), host):
        return None
    creeps = not host and len(values) >= LONG_LOG and total < 0.05 * size_of
    if not _goes_on(blocks, host, creeps):
        return None
    slopes = (blocks[size // 2 :] - blocks[: size - size // 2]) / (size // 2)
    per_row = float(np.median(slopes)) * size / len(values)
    if per_row <= 0:
        return None
    early = float(whole[1][skip] - whole[1][0])
    stairs = _climbs_stairs(values, total)
    if abs(early - per_row * skip) < 0.5 * per_row * skip:
        rows, values = whole  # it climbed at the same pace from the first row on
    return Growth(rows, values, per_row, stairs)


LONG_LOG = 40
"""Rows from which a small climb says something, too."""


def _is_large(blocks: NDArray[np.float64], size_of: float, rows: int, host: bool) -> bool:
    """A short log has to show a large climb, a long one may show a small one."""
    share = 0.05 if rows >= LONG_LOG else (0.1 if rows >= 14 else 0.3)
    if not host and rows >= LONG_LOG:
        share = 0.01  # a card that is nearly full dies of one percent
    noise = max(noise_of(blocks), 1e-6)
    return float(blocks[-1] - blocks[0]) >= max(0.5, share * size_of, 5 * noise)


def _goes_on(blocks: NDArray[np.float64], host: bool, creeps: bool) -> bool:
    """It hardly ever falls, and climbs in each third. creeps: the climb is small, so more is asked of it."""
    import numpy as np

    size, total = len(blocks), float(blocks[-1] - blocks[0])
    steps = np.diff(blocks)
    rising = float(np.sum(steps[steps > 0]))
    falling = float(-np.sum(steps[steps < 0]))
    if falling > (0.05 if creeps else 0.35) * rising:
        return False
    # A cache that fills up, or a ratcheting maximum, slows down; a leak does not.
    gains = np.diff([blocks[0], blocks[size // 3], blocks[2 * size // 3], blocks[-1]])
    capped = host and gains[1] >= 0.25 * total and gains[0] >= 0.2 * total
    if not capped and float(gains[2]) < (0.28 if creeps else 0.2) * total:
        return False
    if float(gains[1]) < 0.12 * total:
        return False
    order = np.argsort(np.argsort(blocks))
    return bool(np.corrcoef(np.arange(size), order)[0, 1] >= 0.9)


def _climbs_stairs(values: NDArray[np.float64], total: float) -> bool:
    """A few jumps make most of it, and it is flat between them."""
    import numpy as np

    jumps = np.sort(np.diff(values))[::-1]
    top = float(np.sum(jumps[: max(1, len(jumps) // 8)]))
    flat = float(np.mean(np.abs(np.diff(values)) < 0.02 * total))
    return bool(top > 0.85 * (values[-1] - values[0]) and flat > 0.7)


def _capacity(series: StepSeries, metric: str, row: int) -> float | None:
    if metric == HOST_SHARE:
        return 100.0
    if metric == HOST:
        total = series.columns.get("host_mem_total_gib")
        if total is not None and total[row] != MISSING:
            return total[row]
    return None


def _describe(
    view: View, series: StepSeries, metric: str, growth: Growth, rank: int | None
) -> Finding:
    first, last = int(growth.rows[0]), int(growth.rows[-1])
    shown = series.values(metric)
    start, end = float(shown[first]), float(shown[last])
    unit, suffix = ("%", "pct") if metric == HOST_SHARE else ("GiB", "gib")
    facts: dict[str, Json] = {
        "metric": metric,
        f"from_{suffix}": start,
        f"to_{suffix}": end,
        "first": series.label(first),
        "last": series.label(last),
        "shape": "staircase" if growth.stairs else "slope",
    }
    went = "fell" if metric == HOST_FREE else "grew"
    title = (
        f"{NAMES[metric]}{'' if rank is None else f' of rank {rank}'} {went} from {number(start)} "
        f"to {number(end)} {unit} between {series.label(first)} and {series.label(last)}"
    )
    per_step = _per_step(series, growth)
    if per_step is not None:
        facts[f"{suffix}_per_1000_steps"] = 1000 * per_step
        title += f", {number(1000 * per_step)} {unit} per 1000 steps"
    title += ", in steps" if growth.stairs else ", steadily"
    room = _capacity(series, metric, last)
    used = end
    if metric == HOST_FREE:
        room, used = max(start, end), max(start, end) - end
    if room is not None:
        if metric == HOST:
            facts["capacity_gib"] = room
            title += f"; {end / room:.0%} of {number(room)} GiB"
        words, more = _foresee_end(series, growth, room, used)
        title += words
        facts |= more
    host = metric in HOSTS
    why = _explain_host(view, series, growth) if host else ""
    opening = title if why == COPY_ON_WRITE else ""
    full = room is not None and used >= 0.9 * room
    where = "host" if host else "gpu"
    found = make_finding(
        f"{where}_memory_growth",
        title + why,
        Level.CAUSE if host or full else Level.FAILURE,
        Category.OOM,
        view.evidence([first, int(growth.rows[len(growth.rows) // 2]), last], series),
        page=page_of_kind(f"metrics.{where}_memory_growth"),
        confidence=Confidence.CONFIRMED if full else Confidence.LIKELY,
        rank=rank,
        facts=facts,
    )
    return replace(found, opening=opening)


COPY_ON_WRITE = (
    "; possible: data-loader workers touch a large Python list or dict, whose reference "
    "counts defeat copy-on-write"
)
STAGED = (
    "; a checkpoint is staged before every one of these rows, so buffers of the asynchronous save "
    "may not be given back"
)


def _explain_host(view: View, series: StepSeries, growth: Growth) -> str:
    """The usual reason of host memory that grows; saves, where one goes before every row."""
    last = int(growth.rows[-1])
    staged = [e for e in view.events("checkpoint_staged") if e.line < series.line[last]]
    return STAGED if len(staged) >= len(growth.rows) - 1 else COPY_ON_WRITE


def _per_step(series: StepSeries, growth: Growth) -> float | None:
    """Growth a step; None where steps are not printed."""
    first, last = int(growth.rows[0]), int(growth.rows[-1])
    span = series.step[last] - series.step[first]
    if series.step[first] == NO_STEP or span <= 0:
        return None
    return growth.per_row * (len(growth.rows) - 1) / span


def _foresee_end(
    series: StepSeries, growth: Growth, room: float, used: float
) -> tuple[str, dict[str, Json]]:
    """When memory is full at this pace, in words and as facts."""
    left = room - used
    if left <= 0.03 * room:
        return ", so it is used up", {}
    per_step = _per_step(series, growth)
    if not per_step:
        return "", {}
    facts: dict[str, Json] = {"steps_to_full": left / per_step}
    words = f", full in about {left / per_step:.0f} steps"
    first, last = int(growth.rows[0]), int(growth.rows[-1])
    took, span = series.time[last] - series.time[first], series.step[last] - series.step[first]
    if series.time[first] != MISSING and took > 0:
        hours = left / per_step * took / span / 3600
        facts["hours_to_full"] = hours
        words += f" ({hours:.1f} h)"
    return words, facts


def judge_memory_growth(view: View) -> list[Finding]:
    """Memory that keeps growing, on the rank where it grows most; GPU memory at most once."""
    import numpy as np

    series = view.all
    ranks = series.ranks()
    found = []
    for metrics in (HOSTS, GPU):
        best: tuple[float, Finding] | None = None
        for metric in metrics:
            if not series.has(metric):
                continue
            values = series.values(metric)
            good = (values != MISSING) & np.isfinite(values)
            for rank in np.unique(ranks[good]).tolist()[:4096]:
                rows = np.flatnonzero(good & (ranks == rank))
                mine = values[rows]
                scale = 100.0 if metric == HOST_SHARE else None
                if metric == HOST_FREE:
                    scale = float(mine.max())
                    mine = scale - mine
                growth = _climb(rows, mine, metric, scale)
                if growth is None:
                    continue
                size = float(growth.values[-1] - growth.values[0])
                if best is None or size > 1.05 * best[0]:
                    named = None if rank == NO_RANK else int(rank)
                    best = (size, _describe(view, series, metric, growth, named))
        if best is not None:
            found.append(best[1])
    return found


FEW_ROWS, LEAST_CREEP = (4, 8), 0.3
"""Rows of an excerpt that is too short for a curve, and GiB that it must have grown by."""


def judge_small_creep(view: View) -> list[Finding]:
    """GPU memory that never falls and is higher at the end, in an excerpt of a few rows: for who says that it grows."""
    import numpy as np

    for metric in GPU:
        curve = view.curve(metric)
        values = curve.values
        if not FEW_ROWS[0] <= len(values) <= FEW_ROWS[1]:
            continue
        rise = float(values[-1] - values[0])
        if rise < LEAST_CREEP or float(np.min(np.diff(values))) < 0 or values[-1] <= values[-2]:
            continue
        row, last = (
            int(curve.rows[int(np.flatnonzero(values <= values[0])[-1])]),
            int(curve.rows[-1]),
        )
        series = view.lead
        span = series.step[last] - series.step[row]
        pace = f", {number(1000 * rise / span)} GiB per 1000 steps" if span > 0 and series.step[row] != NO_STEP else ""  # fmt: skip
        return [
            make_finding(
                "gpu_memory_creep",
                f"{NAMES[metric]} grew from {number(float(values[0]))} to {number(float(values[-1]))} GiB between "
                f"{series.label(row)} and {series.label(last)}{pace}; {len(values)} rows do not show what holds "
                "it: a snapshot of the allocator does",
                Level.CONTEXT,
                Category.OOM,
                view.evidence([row, last]),
                facts={"explains": {"memory": 0.6}, "rise_gib": round(rise, 3)},
            )
        ]
    return []


def judge_fragmentation(view: View) -> list[Finding]:
    """Reserved memory that grows while allocated memory does not."""
    import numpy as np

    series = view.lead
    reserved, allocated = series.values("mem_reserved_gib"), series.values("mem_allocated_gib")
    if not series.has("mem_allocated_gib"):
        allocated = series.values("mem_peak_gib")
    rows = np.flatnonzero((reserved != MISSING) & (allocated != MISSING))
    if len(rows) < 16:
        return []
    gap = reserved[rows] - allocated[rows]
    growth = _climb(rows, gap, "mem_reserved_gib")
    if growth is None or _climb(rows, allocated[rows], "mem_allocated_gib") is not None:
        return []
    first, last = int(growth.rows[0]), int(growth.rows[-1])
    return [
        make_finding(
            "fragmentation_growth",
            f"Reserved but unallocated GPU memory grew from {number(float(growth.values[0]))} to "
            f"{number(float(growth.values[-1]))} GiB between {series.label(first)} and "
            f"{series.label(last)} while allocated memory stayed level: fragmentation",
            Level.FAILURE,
            Category.OOM,
            view.evidence([first, last]),
            facts={
                "from_gib": float(growth.values[0]),
                "to_gib": float(growth.values[-1]),
                "last": series.label(last),
            },
        )
    ]
