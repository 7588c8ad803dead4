"""Which curves does a log hold? Step metrics of the lead rank, thinned so that a chart stays light."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.log.clock import read_time
from firstfault_tools.log.line import normalise
from firstfault_tools.metrics.log_lines import rank_of
from firstfault_tools.metrics.series import MISSING, NO_STEP
from firstfault_tools.metrics.sources.steps import parse_steps
from firstfault_tools.metrics.view import lead_of

MAX_BYTES = 256 * 1024 * 1024
MAX_ROWS = 4_000
NEAR = 60
MAX_POINTS = 800
MIN_POINTS = 5
METRICS: tuple[tuple[str, str], ...] = (
    ("loss", "Loss"),
    ("grad_norm", "Gradient norm"),
    ("step_time_ms", "Step time (ms)"),
    ("data_time_ms", "Data wait (ms)"),
    ("tokens_per_s", "Tokens per second"),
    ("samples_per_s", "Samples per second"),
    ("tflops", "TFLOP/s"),
    ("mem_allocated_gib", "GPU memory allocated (GiB)"),
    ("mem_reserved_gib", "GPU memory reserved (GiB)"),
    ("host_mem_gib", "Host memory (GiB)"),
    ("loss_scale", "Loss scale"),
    ("lr", "Learning rate"),
    ("eval_loss", "Evaluation loss"),
)
MAX_CURVES = 6
_STEP = expression(rb"(?i)loss|iter|step|epoch|grad")


@dataclass(frozen=True, slots=True)
class Point:
    """One printed value. value is None where NaN or infinity was printed. line: 1-based. at: its time, in
    seconds since the epoch, where the line prints one."""

    step: int
    value: float | None
    line: int
    at: float | None = None


@dataclass(frozen=True, slots=True)
class Curve:
    """One metric of one file."""

    file: str
    metric: str
    title: str
    unit: str
    points: tuple[Point, ...]

    @property
    def timed(self) -> bool:
        """Every point has a time."""
        return all(p.at is not None for p in self.points)


def read_curves(
    artefacts: Mapping[str, Path], cited: tuple[str, int] | None = None, year: int | None = None
) -> tuple[Curve, ...]:
    """Curves of the log that holds the most step lines; empty where no log holds any.

    cited: file and line of the first fault, around which no row is left out. year: of times printed without one.
    """
    best: tuple[Curve, ...] = ()
    left = MAX_BYTES
    for name, path in artefacts.items():
        try:
            left -= path.stat().st_size
        except OSError:
            continue
        if left < 0:
            break
        near = cited[1] if cited is not None and cited[0] == name else None
        found = _curves_of(name, path, near)
        if sum(len(c.points) for c in found) > sum(len(c.points) for c in best):
            best = found
    return _put_times(best, artefacts[best[0].file], year) if best and year is not None else best


def _put_times(curves: tuple[Curve, ...], path: Path, year: int) -> tuple[Curve, ...]:
    """The same curves with the time of every line that prints one."""
    wanted = {p.line for c in curves for p in c.points}
    with path.open("rb") as stream:
        times = {
            number: read_time(normalise(raw[:4096]), year)
            for number, raw in enumerate(stream, 1)
            if number in wanted
        }
    return tuple(
        replace(c, points=tuple(replace(p, at=times.get(p.line)) for p in c.points)) for c in curves
    )


def _curves_of(name: str, path: Path, near: int | None) -> tuple[Curve, ...]:
    series = parse_steps(_lines(path, near), rank_of)
    if len(series) < MIN_POINTS:
        return ()
    lead = lead_of(series)
    out = []
    for metric, title in METRICS:
        if not lead.has(metric):
            continue
        values = lead.columns[metric]
        rows = [r for r in range(len(lead)) if values[r] != MISSING]
        numbers = [values[r] for r in rows if math.isfinite(values[r])]
        steady = len(set(numbers)) <= 1 and len(numbers) == len(rows)
        if len(rows) < MIN_POINTS or steady:
            continue
        points = [
            Point(
                lead.step[r] if lead.step[r] != NO_STEP else r,
                values[r] if math.isfinite(values[r]) else None,
                lead.line[r],
            )
            for r in rows
        ]
        out.append(Curve(name, metric, title, lead.step_unit, tuple(thin_points(points))))
    return tuple(out[:MAX_CURVES])


def thin_points(points: list[Point]) -> list[Point]:
    """At most about MAX_POINTS points: the lowest and highest of each bucket, and every NaN border."""
    if len(points) <= MAX_POINTS:
        return points
    size = math.ceil(len(points) / (MAX_POINTS // 2))
    kept: list[Point] = []
    for start in range(0, len(points), size):
        bucket = points[start : start + size]
        finite = {place: p.value for place, p in enumerate(bucket) if p.value is not None}
        chosen = {place for place in range(len(bucket)) if place not in finite}
        chosen = {min(chosen)} if chosen else set()
        if finite:
            chosen |= {min(finite, key=finite.__getitem__), max(finite, key=finite.__getitem__)}
        kept += [bucket[place] for place in sorted(chosen)]
    return kept


def _lines(path: Path, near: int | None) -> Iterator[tuple[int, str]]:
    """Lines that may be step lines: all of a short log; of a long one an even share, all the ends,
    and all around line `near`. Nothing of them is shown but numbers, so nothing is redacted."""
    with path.open("rb") as stream:
        if b"\0" in stream.read(4096):
            return
        stream.seek(0)
        places = [number for number, raw in enumerate(stream, 1) if _STEP.search(raw)]
        stride = max(1, len(places) // MAX_ROWS)
        kept = set(places[::stride]) | set(places[:NEAR]) | set(places[-NEAR:])
        if near is not None:
            kept |= {n for n in places if abs(n - near) <= NEAR}
        stream.seek(0)
        for number, raw in enumerate(stream, 1):
            if number in kept:
                yield number, normalise(raw[:8192])
