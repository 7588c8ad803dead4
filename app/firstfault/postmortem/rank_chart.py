"""Which rank stopped when? A chart in plain characters, the same in every format of the report."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from firstfault.investigation.diagnosis import ChainRole, Diagnosis
from firstfault.postmortem.evidence import Artefacts
from firstfault_tools.dataclass import dataclass
from firstfault_tools.log.prefix import read_file_name, read_prefix

WIDTH, MOST_RANKS = 32, 24
WROTE, SILENT = "#", "."
SIGNS = {ChainRole.INITIATING: "X", ChainRole.CASCADE: "o", ChainRole.TEARDOWN: "-"}
LEGEND = "# wrote, . silent, X first fault, o follows from it, - shutdown"


@dataclass(frozen=True, slots=True)
class RankRow:
    """One rank: its bar over the whole time, and when it wrote last (UTC)."""

    rank: int
    bar: str
    last: str


@dataclass(frozen=True, slots=True)
class RankChart:
    """Bars from `start` to `end`, UTC; left_out: ranks that are not drawn."""

    rows: tuple[RankRow, ...]
    start: str
    end: str
    left_out: int = 0


def draw_ranks(diagnosis: Diagnosis, artefacts: Artefacts) -> RankChart | None:
    """The chart; None where fewer than two ranks wrote lines with times or nothing stopped."""
    times: dict[int, list[float]] = {}
    for line in artefacts.lines:
        if line.time is None:
            continue
        place = read_prefix(line.text)[0].within(read_file_name(line.file))
        if place.rank is not None:
            times.setdefault(place.rank, []).append(line.time)
    for link in diagnosis.cascade:
        if link.rank is not None and link.file:
            at, _ = artefacts.time_at(link.file, link.line, link.text)
            times.setdefault(link.rank, []).extend(() if at is None else (at,))
    times = {rank: found for rank, found in times.items() if found}
    if len(times) < 2 or not diagnosis.cascade:
        return None
    start = min(min(t) for t in times.values())
    end = max(max(t) for t in times.values())
    if end <= start:
        return None
    signs = _signs(diagnosis, artefacts, start, end)
    first = diagnosis.first_failing_rank
    wanted = sorted(times, key=lambda r: (r != first, r))[:MOST_RANKS]
    rows = tuple(
        RankRow(r, _bar(times[r], signs.get(r, {}), start, end), _clock(max(times[r])))
        for r in sorted(wanted)
    )
    return RankChart(rows, _clock(start), _clock(end), len(times) - len(wanted))


def _signs(
    diagnosis: Diagnosis, artefacts: Artefacts, start: float, end: float
) -> Mapping[int, Mapping[int, str]]:
    """Rank -> column -> sign of the event there; the first fault wins."""
    out: dict[int, dict[int, str]] = {}
    for link in reversed(diagnosis.cascade):
        if link.rank is None or not link.file:
            continue
        at, _ = artefacts.time_at(link.file, link.line, link.text)
        if at is not None:
            out.setdefault(link.rank, {})[_column(at, start, end)] = SIGNS[link.role]
    return out


def _bar(times: list[float], signs: Mapping[int, str], start: float, end: float) -> str:
    filled = {_column(t, start, end) for t in times}
    return "".join(signs.get(i) or (WROTE if i in filled else SILENT) for i in range(WIDTH))


def _column(at: float, start: float, end: float) -> int:
    return min(WIDTH - 1, max(0, int(WIDTH * (at - start) / (end - start))))


def _clock(at: float) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%H:%M:%S}"
