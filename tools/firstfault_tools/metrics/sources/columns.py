"""How do rows become columns? The table under construction, and numbers and stamps read in bulk."""

from __future__ import annotations

import calendar
from array import array
from collections import defaultdict
from dataclasses import replace
from functools import cache
from itertools import pairwise

from firstfault_tools.averages import median
from firstfault_tools.metrics.series import MISSING, NO_STEP, Event, StepSeries
from firstfault_tools.metrics.sources.templates import MAX_LINE
from firstfault_tools.metrics.sources.tokens import to_number

MAX_TEXTS = 50_000
EDGE_TEXTS = 2_000
LEAST_ROWS, LEAST_GROWTH, ALIKE = 5, 3.0, 0.25
"""Of a counter of time: rows, last value over the first, and how far its end may lie off its usual rate."""
RESET_WITHIN = 0.1

_WHOLE = {f"{second:02d}": float(second) for second in range(61)}


@cache
def _minute(stamp: str) -> float:
    year, month, day = int(stamp[:4]), int(stamp[5:7]), int(stamp[8:10])
    if not (1970 <= year <= 2200 and 1 <= month <= 12 and 1 <= day <= 31):
        return MISSING
    return float(
        calendar.timegm((year, month, day, int(stamp[11:13]), int(stamp[14:16]), 0, 0, 1, 0))
    )


def read_stamp(stamp: str) -> float:
    """Seconds since the epoch of `YYYY-MM-DD hh:mm:ss[,frac]`, taken as UTC; MISSING if impossible."""
    base = _minute(stamp[:16])
    if base == MISSING:
        return MISSING
    second = stamp[17:]
    return base + (_WHOLE[second] if second in _WHOLE else float(second.replace(",", ".")))


def read_stamps(stamps: tuple[str, ...]) -> array[float]:
    """`read_stamp` of many: neighbours share their minute, and often the whole stamp."""
    made = array("d")
    last, value, minute, base = "", MISSING, "", MISSING
    for stamp in stamps:
        if stamp != last:
            last = stamp
            if stamp[:16] != minute:
                minute = stamp[:16]
                base = _minute(minute)
            second = stamp[17:]
            whole = _WHOLE.get(second)
            if base == MISSING:
                value = MISSING
            else:
                value = base + (float(second.replace(",", ".")) if whole is None else whole)
        made.append(value)
    return made


def read_numbers(values: tuple[str, ...], factor: float) -> array[float]:
    """Numbers of one column times `factor`; what is none becomes MISSING."""
    first = values[0]
    try:
        if first == values[-1] and values.count(first) == len(values):
            return array("d", [float(first) * factor]) * len(values)
        if factor == 1.0:
            return array("d", map(float, values))
        return array("d", [float(value) * factor for value in values])
    except ValueError:
        made = array("d")
        for value in values:
            try:
                made.append(to_number(value) * factor)
            except ValueError:
                made.append(MISSING)
        return made


class ColumnTable:
    """Columns under construction. All columns of a row are appended before the next row starts."""

    def __init__(self) -> None:
        self.step: array[int] = array("q")
        self.line: array[int] = array("q")
        self.rank: array[int] = array("i")
        self.time: array[float] = array("d")
        self.columns: dict[str, array[float]] = {}
        self.texts: dict[int, str] = {}
        self.recent: list[tuple[int, str]] = []
        self.units: dict[str, int] = {}
        self.total: int | None = None

    def pad(self) -> None:
        """Fill every column up to the current row with MISSING."""
        rows = len(self.line)
        for column in self.columns.values():
            short = rows - len(column)
            if short:
                column.extend([MISSING] * short)

    def column(self, metric: str) -> array[float]:
        """The column of `metric`, padded to the current row."""
        column = self.columns.get(metric)
        if column is None:
            column = self.columns[metric] = array("d", [MISSING]) * len(self.line)
        return column

    def keep(self, texts: list[str], odd: set[int]) -> None:
        """Keep the texts of the rows just added: all up to a bound, then odd ones and the last."""
        first = len(self.line) - len(texts)
        if len(self.texts) + len(texts) <= MAX_TEXTS:
            for index, text in enumerate(texts):
                self.texts[first + index] = text[:MAX_LINE]
            return
        for index in odd:
            if len(self.texts) < 2 * MAX_TEXTS:
                self.texts[first + index] = texts[index][:MAX_LINE]
        start = max(0, len(texts) - EDGE_TEXTS)
        self.recent += zip(range(first + start, first + len(texts)), texts[start:], strict=True)
        del self.recent[:-EDGE_TEXTS]

    def series(self, events: list[Event]) -> StepSeries:
        """The finished series."""
        self.pad()
        self.texts.update((row, text[:MAX_LINE]) for row, text in self.recent)
        unit = max(self.units, key=lambda u: self.units[u]) if self.units else "step"
        return StepSeries(
            step=self.step,
            line=self.line,
            rank=self.rank,
            time=self.time,
            columns=self.columns,
            step_unit=unit,
            total_steps=self.total,
            texts=self.texts,
            events=tuple(events),
        )


def count_apart(series: StepSeries) -> StepSeries:
    """The series with step times that only count up ("train_time: 568 ms") turned into times of a step.

    A column that grows in proportion to the step, or as fast as the clock of its lines, holds the time
    since the start: no step costs nothing and each later one more.
    """
    column = series.columns.get("step_time_ms")
    if column is None or not _may_count(column):
        return series
    by_rank: dict[int, list[int]] = defaultdict(list)
    for row, value in enumerate(column):
        # "nan" stands in the first row of some trainers, before there is a step
        rows = by_rank[series.rank[row]]
        # a second row of a step is its validation
        new = not rows or series.step[row] > series.step[rows[-1]]
        if value != MISSING and value == value and series.step[row] != NO_STEP and new:
            rows.append(row)
    by_rank = {rank: _since_reset(column, rows) for rank, rows in by_rank.items() if rows}
    if not by_rank or not all(_is_counter(series, column, rows) for rows in by_rank.values()):
        return series
    made = array("d", [MISSING]) * len(column)
    for rows in by_rank.values():
        for before, row in pairwise(rows):
            made[row] = (column[row] - column[before]) / (series.step[row] - series.step[before])
    return replace(series, columns={**series.columns, "step_time_ms": made})


def _may_count(column: array[float]) -> bool:
    """A look at the ends, which settles it for nearly every log."""
    first = next((v for v in column if v != MISSING and v == v), 0.0)
    last = next((v for v in reversed(column) if v != MISSING and v == v), 0.0)
    return 0 <= first * LEAST_GROWTH < last


def _since_reset(column: array[float], rows: list[int]) -> list[int]:
    """The rows after the place, near the beginning, where a trainer sets its clock back: its warm-up is over."""
    early = rows[: int(len(rows) * RESET_WITHIN) + 2]
    falls = [n for n, (a, b) in enumerate(pairwise(early), 1) if column[b] <= column[a]]
    return rows[falls[-1] :] if falls else rows


def _is_counter(series: StepSeries, column: array[float], rows: list[int]) -> bool:
    """Rows of one rank, in order."""
    if len(rows) < LEAST_ROWS:
        return False
    first, last = column[rows[0]], column[rows[-1]]
    steps = series.step
    if not 0 <= first * LEAST_GROWTH < last or steps[rows[-1]] - steps[rows[0]] < LEAST_ROWS - 1:
        return False
    if any(steps[b] <= steps[a] or column[b] <= column[a] for a, b in pairwise(rows)):
        return False
    timed = [(a, b) for a, b in pairwise(rows) if MISSING not in (series.time[a], series.time[b])]
    if timed and sum(series.time[b] - series.time[a] for a, b in timed) >= 10:
        passed = sum(series.time[b] - series.time[a] for a, b in timed) * 1000
        return abs(sum(column[b] - column[a] for a, b in timed) / passed - 1) < ALIKE
    usual = median((column[b] - column[a]) / (steps[b] - steps[a]) for a, b in pairwise(rows))
    return abs(usual * steps[rows[-1]] - last) <= ALIKE * last
