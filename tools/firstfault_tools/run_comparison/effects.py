"""In what is one run worse than the other? Columns at the same steps, bandwidths, kernels, its end.

Median over the steps that both runs printed (the first two left out: compilation and warm-up), so that
a run that is simply longer does not look different.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from functools import partial
from operator import attrgetter

from firstfault_tools.averages import median
from firstfault_tools.dataclass import dataclass
from firstfault_tools.findings import Complaint
from firstfault_tools.hardware.network.nccl_tests import NcclRun, read_runs
from firstfault_tools.metrics.pace.profile_table import read_times
from firstfault_tools.metrics.series import MISSING, NO_STEP, StepSeries
from firstfault_tools.metrics.view import lead_of
from firstfault_tools.profile.trace import Kernel, RankTrace

WARM_STEPS = 2
LEAST_STEPS = 3
LEAST_CHANGE = 0.05
"""Relative change below which two medians are told as alike; step times of one healthy run vary by as much."""

LEAST_LOSS = 0.02
"""The same of a loss: a curve is smoother than a clock."""


class Effect(StrEnum):
    """What is worse."""

    SLOW = "slow"
    DIVERGED = "diverged"
    MEMORY = "memory"
    HANG = "hang"
    CRASH = "crash"


EFFECT_OF = {
    Complaint.SLOW: Effect.SLOW,
    Complaint.STALLED: Effect.HANG,
    Complaint.DIVERGED: Effect.DIVERGED,
    Complaint.UNLEARNED: Effect.DIVERGED,
    Complaint.SETBACK: Effect.DIVERGED,
    Complaint.MEMORY: Effect.MEMORY,
}
"""What is worse where a person complains; a complaint that is not here names none."""


@dataclass(frozen=True, slots=True)
class Change:
    """One measured quantity in both runs. worse: the bad run is worse by more than the least change."""

    what: str
    unit: str
    good: float
    bad: float
    effect: Effect | None
    worse: bool
    over: str

    @property
    def ratio(self) -> float:
        """Bad over good; 0 where good is 0."""
        return self.bad / self.good if self.good else 0.0

    @property
    def times(self) -> float:
        """By how much the two differ, whichever is greater; a hundred where one of them is 0."""
        return max(self.ratio, 1 / self.ratio if self.ratio else 100.0)


_LESS_IS_WORSE = {
    "tokens_per_s": ("throughput", "tokens/s"),
    "samples_per_s": ("throughput", "samples/s"),
    "iterations_per_s": ("throughput", "iterations/s"),
    "tflops": ("throughput", "TFLOP/s a GPU"),
    "mfu_pct": ("MFU", "%"),
}
_MORE_IS_WORSE = {
    "step_time_ms": ("step time", "ms", Effect.SLOW),
    "data_time_ms": ("time in the loader", "ms", Effect.SLOW),
    "loss": ("loss", "", Effect.DIVERGED),
    "grad_norm": ("gradient norm", "", Effect.DIVERGED),
    "mem_peak_gib": ("peak memory", "GiB", Effect.MEMORY),
    "mem_allocated_gib": ("allocated memory", "GiB", Effect.MEMORY),
    "mem_reserved_gib": ("reserved memory", "GiB", Effect.MEMORY),
    "host_mem_gib": ("host memory", "GiB", Effect.MEMORY),
}


def compare_columns(good: StepSeries, bad: StepSeries) -> tuple[Change, ...]:
    """Every column that both runs printed, worst first."""
    mine, theirs = lead_of(good), lead_of(bad)
    found = []
    for metric in sorted(set(mine.columns) & set(theirs.columns)):
        pairs = _pair(mine, theirs, metric)
        if len(pairs) >= LEAST_STEPS:
            found.append(_change(metric, pairs))
    return tuple(sorted(found, key=lambda c: (not c.worse, c.effect is None, c.what)))


def _pair(good: StepSeries, bad: StepSeries, metric: str) -> list[tuple[int, float, float]]:
    """(step, good, bad) at the steps both printed, warm-up left out; by order where none has steps."""
    a, b = _values(good, metric), _values(bad, metric)
    shared = sorted(a.keys() & b.keys())
    if len(shared) < LEAST_STEPS and min(len(a), len(b)) >= LEAST_STEPS + WARM_STEPS:
        # no step in common, as after a resume: beside each other in the order they were printed
        return [
            (k, x, y)
            for k, (x, y) in enumerate(zip(a.values(), b.values(), strict=False))
            if k >= WARM_STEPS
        ]
    kept = shared[WARM_STEPS:] if len(shared) > LEAST_STEPS + WARM_STEPS else shared
    return [(step, a[step], b[step]) for step in kept]


def _values(series: StepSeries, metric: str) -> dict[int, float]:
    values = series.values(metric)
    return {
        (step if step != NO_STEP else row): float(values[row])
        for row, step in enumerate(series.step)
        if values[row] != MISSING
    }


def _change(metric: str, pairs: Sequence[tuple[int, float, float]]) -> Change:
    good, bad = median(p[1] for p in pairs), median(p[2] for p in pairs)
    if metric == "loss":
        # what counts is where a curve leads: the last fifth of the shared steps
        tail = pairs[-max(LEAST_STEPS, len(pairs) // 5) :]
        good, bad = median(p[1] for p in tail), median(p[2] for p in tail)
    over = f"steps {pairs[0][0]} to {pairs[-1][0]}" if pairs[-1][0] != len(pairs) - 1 else f"{len(pairs)} steps"  # fmt: skip
    if metric in _LESS_IS_WORSE:
        what, unit = _LESS_IS_WORSE[metric]
        worse = bad < good * (1 - LEAST_CHANGE)
        return Change(what, unit, good, bad, Effect.SLOW, worse, over)
    what, unit, effect = _MORE_IS_WORSE.get(metric, (metric.replace("_", " "), "", None))
    least = LEAST_LOSS if metric == "loss" else LEAST_CHANGE
    worse = effect is not None and (bad != bad or bad > good + least * abs(good))
    return Change(what, unit, good, bad, effect, worse, over)


def compare_bandwidth(
    good: Sequence[tuple[str, str]], bad: Sequence[tuple[str, str]]
) -> tuple[Change, ...]:
    """Bus bandwidth of nccl-tests tables (file name, text) at the sizes both runs measured."""
    mine, theirs = _best_by_size(good), _best_by_size(bad)
    found = []
    for size in sorted(mine.keys() & theirs.keys(), reverse=True)[:3]:
        a, b = mine[size], theirs[size]
        what = f"nccl-tests bus bandwidth at {_bytes(size)}"
        found.append(Change(what, "GB/s", a, b, Effect.SLOW, b < a * (1 - LEAST_CHANGE), "one table each"))  # fmt: skip
    return tuple(found)


def _best_by_size(texts: Sequence[tuple[str, str]]) -> Mapping[int, float]:
    runs: list[NcclRun] = []
    for name, text in texts:
        runs += read_runs(list(enumerate(text.splitlines(), 1)), name)
    found: dict[int, float] = {}
    for run in runs:
        for size, rate in (run.by_size or ({0: run.average_gbs} if run.average_gbs else {})).items():  # fmt: skip
            found[size] = min(rate, found.get(size, rate))
    return found


def _bytes(size: int) -> str:
    if size == 0:
        return "its average"
    for unit, scale in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= scale:
            return f"{size / scale:g} {unit}"
    return f"{size} B"


MOST_ROWS = 8


def compare_kernels(good: Sequence[RankTrace], bad: Sequence[RankTrace]) -> tuple[Change, ...]:
    """Time per traced step by class of kernel, exposed communication and idle time; then single kernels."""
    if not good or not bad:
        return ()
    found = [_kernel_change(what, a, b) for what, a, b in _per_step(good, bad)]
    mine, theirs = _each_kernel(good), _each_kernel(bad)
    for name in sorted(mine.keys() & theirs.keys(), key=lambda n: mine[n] - theirs[n])[:5]:
        found.append(_kernel_change(f"kernel {name[:80]}, mean of one", mine[name], theirs[name]))
    return tuple(c for c in found if c.good or c.bad)


def compare_tables(
    good: Sequence[tuple[str, str]], bad: Sequence[tuple[str, str]]
) -> tuple[Change, ...]:
    """Rows of profiler tables that both runs print, those that grew most first."""
    mine, theirs = (
        {name: ms for _, text in texts for name, ms in read_times(list(enumerate(text.splitlines(), 1))).items()}
        for texts in (good, bad)
    )  # fmt: skip
    shared = sorted(mine.keys() & theirs.keys(), key=lambda n: mine[n] - theirs[n])
    return tuple(
        Change(
            f"profile row {name[:80]}", "ms", mine[name], theirs[name], Effect.SLOW,
            theirs[name] > mine[name] * (1 + LEAST_CHANGE), "the profiler's table",
        )
        for name in shared[:MOST_ROWS]
    )  # fmt: skip


def _kernel_change(what: str, good: float, bad: float) -> Change:
    worse = bad > good * (1 + LEAST_CHANGE) and bad - good > 1
    return Change(what, "us", good, bad, Effect.SLOW, worse, "the profiled steps")


def _per_step(
    good: Sequence[RankTrace], bad: Sequence[RankTrace]
) -> list[tuple[str, float, float]]:
    def mean(traces: Sequence[RankTrace], part: Callable[[RankTrace], float]) -> float:
        return sum(map(part, traces)) / sum(max(1, len(t.steps_us)) for t in traces)

    kinds = [k for k in Kernel if any(k in t.busy_us for t in (*good, *bad))]
    parts: list[tuple[str, Callable[[RankTrace], float]]] = [
        (f"{kind} kernels a step", partial(_busy, kind)) for kind in kinds
    ]
    parts.append(("communication no computation hides, a step", attrgetter("exposed_us")))
    parts.append(("idle GPU a step", attrgetter("idle_us")))
    return [(what, mean(good, part), mean(bad, part)) for what, part in parts]


def _busy(kind: Kernel, trace: RankTrace) -> float:
    return trace.busy_us.get(kind, 0.0)


def _each_kernel(traces: Sequence[RankTrace]) -> Mapping[str, float]:
    spent: dict[str, float] = {}
    calls: dict[str, int] = {}
    for trace in traces:
        for name, total, count in trace.top_kernels:
            spent[name] = spent.get(name, 0.0) + total
            calls[name] = calls.get(name, 0) + count
    return {name: spent[name] / max(1, calls[name]) for name in spent}
