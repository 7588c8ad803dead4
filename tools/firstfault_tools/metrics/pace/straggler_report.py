"""Which ranks does a straggler report name, and do they share a node?

The detector of NVIDIA's resiliency extension scores each GPU against its peers and against its own best.
It prints the worst few even where nothing is wrong, so only a score below the threshold counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import field

from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Category, Confidence, Finding, Level
from firstfault_tools.hardware.excerpt import LINE_CHARS, keep_marked, quote_line
from firstfault_tools.log.place import name_ranks

GATE = ("STRAGGLER DETECTION WARNING", " Score=")
THRESHOLD = 0.7
"""Default of the detector, relative and individual."""

MOST_LINES = 20_000
_SCORE = expression(
    r"Rank=(?P<rank>\d{1,6}) Node=(?P<node>\S{1,128}) Score=(?P<score>\d(?:\.\d{1,4})?)"
)
_NAMED = expression(r"rank=(?P<rank>\d{1,6})(?:, node=['\"]?(?P<node>[\w.-]{1,128}))?")
_LIST = expression(r"Affected ranks: [\[{]?\s*(?P<ranks>\d{1,6}(?:\s*,\s*\d{1,6})*)")
_STAMP = expression(r"\b(\d\d:\d\d:\d\d)\b")


@dataclass(slots=True)
class Report:
    """What all reports of a log say together. scores: lowest score of each rank below the threshold."""

    nodes: dict[int, str] = field(default_factory=dict)
    scores: dict[int, float] = field(default_factory=dict)
    warned: Counter[int] = field(default_factory=Counter)
    first: tuple[int, str] | None = None
    places: list[tuple[int, str]] = field(default_factory=list)


def find_in_lines(lines: Sequence[tuple[int, str]], file: str) -> tuple[Finding, ...]:
    """One finding with all ranks that were below the threshold."""
    report = Report()
    for number, text in keep_marked(lines, GATE)[:MOST_LINES]:
        if "STRAGGLER DETECTION WARNING" in text:
            _read_warning(report, number, text[:LINE_CHARS])
        elif score := _SCORE.search(text):
            rank = int(score["rank"])
            report.nodes[rank] = score["node"]
            value = float(score["score"])
            if value < THRESHOLD:
                report.scores[rank] = min(value, report.scores.get(rank, value))
                _note(report, number, text)
    slow = sorted({*report.warned, *report.scores})
    return (_describe(report, slow, file),) if slow and report.first is not None else ()


def _note(report: Report, number: int, text: str) -> None:
    report.first = report.first or (number, text)
    if len(report.places) < 4:
        report.places.append((number, text))


def _read_warning(report: Report, number: int, text: str) -> None:
    _, _, tail = text.partition("Affected ranks:")
    named = list(_NAMED.finditer(tail))
    for one in named:
        report.warned[int(one["rank"])] += 1
        if one["node"]:
            report.nodes[int(one["rank"])] = one["node"]
    if not named and (listed := _LIST.search(text)):
        report.warned.update(int(rank) for rank in listed["ranks"].split(","))
    if report.warned:
        _note(report, number, text)


def _describe(report: Report, slow: Sequence[int], file: str) -> Finding:
    nodes = {report.nodes[rank] for rank in slow if rank in report.nodes}
    host = nodes.pop() if len(nodes) == 1 and all(r in report.nodes for r in slow) else None
    place = (
        f", all on node {host}," if host and len(slow) > 1 else f" on node {host}" if host else ""
    )
    lowest = min(report.scores.values(), default=None)
    score = (
        f" (relative performance down to {lowest:.2f} of the best)" if lowest is not None else ""
    )
    number, text = report.first or (0, "")
    stamp = _STAMP.search(text)
    since = f" since {stamp[1]}" if stamp else ""
    verb = "is a straggler" if len(slow) == 1 else "are stragglers"
    where = "that node" if host else "them" if len(slow) > 1 else "it"
    rank = slow[0] if len(slow) == 1 else None
    return Finding(
        kind="metrics.straggler_report",
        title=f"{name_ranks(slow)}{place} {verb}{score}{since}: every step of the job waits for {where}",
        level=Level.CAUSE,
        category=Category.PERFORMANCE,
        confidence=Confidence.CONFIRMED,
        evidence=tuple(
            quote_line(file, n, t, host=host)
            for n, t in dict.fromkeys([(number, text), *report.places])
        ),
        rank=rank,
        host=host,
        facts={"ranks": list(slow[:64]), "score": lowest},
    )
