"""What did a straggler do just before it became slow? The events between its last fast and first slow row.

A rank that was as fast as the others and then is not has a reason that begins then: a profiler that starts
to record, a thread, a fallback, an alarm. What it printed in between is the first thing to look at.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from firstfault_tools.averages import median
from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Evidence, Finding
from firstfault_tools.log.prefix import read_prefix
from firstfault_tools.placement.rank_table import RANK

LEAST_BEFORE, JUMP = 2, 1.4
EVENTS = 4
_PROFILER = expression(r"(?i)\bprofil\w*|\bprof\.step|tracing (?:started|on)|recording\b")


@dataclass(frozen=True, slots=True)
class Row:
    """One row of times of the rank: its line and what it computed."""

    number: int
    compute: float


def tell_onset(
    finding: Finding,
    lines: Sequence[tuple[int, str]],
    file: str,
    read: Callable[[int, str], float | None],
) -> Finding:
    """The straggler finding with what that rank printed when it became slow.

    read: compute time of a line of this rank, None for any other line.
    """
    rows = [Row(n, value) for n, text in lines if (value := read(n, text)) is not None]
    place = _find_jump(rows)
    if place is None:
        return finding
    before, after = rows[place - 1], rows[place]
    events = [
        (n, text)
        for n, text in lines
        if before.number < n < after.number and _speaks(text, finding.rank)
    ][-EVENTS:]
    title = (
        f"{finding.title}; it became slow between lines {before.number} and {after.number} "
        f"({before.compute:g} before, {after.compute:g} after)"
    )
    page = finding.page
    if not events:
        return finding
    profiler = next((e for e in events if _PROFILER.search(e[1])), None)
    if profiler is not None:
        title += (
            f", when the profiler began to record on rank {finding.rank} and did not stop: recording slows its "
            "forward and backward pass and fills its host memory"
        )
        page = "profiler-left-recording"
    else:
        title += f", right after «{events[-1][1].strip()[:160]}»"
    quotes = tuple(Evidence(file, n, text.strip()[:400], finding.rank) for n, text in events)
    return replace(
        finding,
        title=title,
        page=page,
        evidence=(*finding.evidence[:2], *quotes, *finding.evidence[2:4]),
    )


def _find_jump(rows: Sequence[Row]) -> int | None:
    """Index of the first row that is slow for good, after rows that were not."""
    for index in range(LEAST_BEFORE, len(rows)):
        usual = median(r.compute for r in rows[:index])
        if usual > 0 and rows[index].compute >= JUMP * usual:
            rest = [r.compute for r in rows[index:]]
            return index if median(rest) >= JUMP * usual else None
    return None


def _speaks(text: str, rank: int | None) -> bool:
    speaker, _ = read_prefix(text)
    if speaker.rank is not None:
        return speaker.rank == rank
    named = RANK.search(text[:200])
    return named is not None and int(named[1]) == rank
