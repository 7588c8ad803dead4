"""Is what fills a host's memory only the page cache of files, which the kernel gives back?

Free memory falls to nearly nothing on any host that reads much. What a process can still get is MemAvailable
(proc(5), meminfo): where it stays while free memory falls and the cache grows by as much, nothing leaks.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from firstfault_tools.averages import median
from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Category, Confidence, Finding, Level
from firstfault_tools.hardware.excerpt import NumberedLine, quote_line

GATE = ("MemAvailable", "available", "Available")

LEAST_ROWS = 6
FELL, STAYED, GREW = 0.2, 0.1, 0.6
"""Share by which free memory must fall; within which what is available must stay; of the fall that the cache explains."""

_MEMINFO = expression(r"^\s*(?P<name>MemFree|MemAvailable|Cached):\s+(?P<value>\d{1,15}) kB")
_COLUMNS = {
    "free": expression(r"(?i)^(?:host_|sys_)?(?:mem(?:ory)?_?)?free(?:_(?:gi?b|mi?b|ki?b|bytes))?$"),
    "available": expression(r"(?i)^(?:host_|sys_)?(?:mem(?:ory)?_?)?avail(?:able)?(?:_(?:gi?b|mi?b|ki?b|bytes))?$"),
    "cache": expression(r"(?i)^(?:page_?cache|buff(?:ers)?/cache|(?:mem(?:ory)?_?)?cached?)(?:_(?:gi?b|mi?b|ki?b|bytes))?$"),
}  # fmt: skip
_SNAPSHOT = {"MemFree": "free", "MemAvailable": "available", "Cached": "cache"}


@dataclass(frozen=True, slots=True)
class _Row:
    """What was told at one time, in one unit."""

    place: NumberedLine
    free: float
    available: float
    cache: float


def find_in_lines(lines: Sequence[NumberedLine], file: str) -> tuple[Finding, ...]:
    """A benign finding where the cache alone took the free memory; nothing otherwise."""
    rows = _read_table(lines) or _read_snapshots(lines)
    if len(rows) < LEAST_ROWS:
        return ()
    size = max(2, len(rows) // 6)
    first, last = rows[:size], rows[-size:]
    free, free_now = (median([r.free for r in part]) for part in (first, last))
    left, left_now = (median([r.available for r in part]) for part in (first, last))
    cache, cache_now = (median([r.cache for r in part]) for part in (first, last))
    fell = free - free_now
    if free <= 0 or fell < FELL * free or cache_now - cache < GREW * fell:
        return ()
    if min(r.available for r in rows) < (1 - STAYED) * left or left_now < (1 - STAYED) * left:
        return ()
    words = (
        f"free memory fell from {free:.4g} to {free_now:.4g} because the page cache of files grew from {cache:.4g} to {cache_now:.4g}, "
        f"which the kernel gives back when it is asked; what is available stays level ({left:.4g} to {left_now:.4g}): no leak"
    )
    return (
        Finding(
            kind="metrics.page_cache",
            title=words,
            level=Level.BENIGN,
            category=Category.OOM,
            confidence=Confidence.CONFIRMED,
            evidence=(quote_line(file, *rows[0].place), quote_line(file, *rows[-1].place)),
        ),
    )


def _read_table(lines: Sequence[NumberedLine]) -> list[_Row]:
    """Rows of a table whose heading names all three."""
    for start, (_, heading) in enumerate(lines[:64]):
        names = _cells(heading)
        places = [_find(names, pattern) for pattern in _COLUMNS.values()]
        if None not in places:
            free, available, cache = (int(p) for p in places if p is not None)
            return _read_rows(lines[start + 1 :], len(names), free, available, cache)
    return []


def _find(names: Sequence[str], pattern: re.Pattern[str]) -> int | None:
    found = [i for i, name in enumerate(names) if pattern.match(name)]
    return found[0] if len(found) == 1 else None


def _read_rows(
    lines: Sequence[NumberedLine], width: int, free: int, available: int, cache: int
) -> list[_Row]:
    rows = []
    for place in lines:
        cells = _cells(place[1])
        if len(cells) != width:
            continue
        try:
            rows.append(_Row(place, *(float(cells[i]) for i in (free, available, cache))))
        except ValueError:
            continue
    return rows


def _cells(text: str) -> list[str]:
    return [c.strip() for c in (text.split(",") if "," in text else text.split())]


def _read_snapshots(lines: Sequence[NumberedLine]) -> list[_Row]:
    """One row for each /proc/meminfo that was printed."""
    rows: list[_Row] = []
    told: dict[str, float] = {}
    for place in lines:
        match = _MEMINFO.match(place[1])
        if match is None:
            continue
        told[_SNAPSHOT[match["name"]]] = float(match["value"]) / 1024 / 1024
        if len(told) == len(_SNAPSHOT):
            rows.append(_Row(place, **told))
            told = {}
    return rows
