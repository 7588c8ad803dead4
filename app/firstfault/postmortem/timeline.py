"""What happened when? Rows from the times that the logs print, in UTC, each with its line."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import NamedTuple

from firstfault.investigation.diagnosis import ChainLink, ChainRole, Diagnosis
from firstfault.postmortem.evidence import Artefacts, Book, TimedLine
from firstfault.postmortem.report import TimelineRow
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Finding
from firstfault_tools.log.prefix import read_prefix

SAYS = {
    ChainRole.INITIATING: "cause named",
    ChainRole.CASCADE: "follows",
    ChainRole.TEARDOWN: "shutdown",
}
MAX_ROWS, MAX_TEXT, MAX_ALIKE = 40, 220, 2
_ALERT = expression(
    r"(?i)(?<!no )\b(?:alert(?:ed|manager)?|paged|pagerduty|alarm|opsgenie)\b(?!\s?[(=]|s?: (?:no|false|off|0)\b)"
)
_ACTION = expression(
    r"(?i)\b(?:acknowledged|paus(?:ed|ing)|resum(?:ed|ing)|restart(?:ed|ing)|rolled back|drained|cordoned|"
    r"(?<!is )(?<!entered )disabled|rerouted|replaced|rebooted|stop requested|launch(?:ed)?:|checkpoint: (?:saved|loaded)|requeued|"
    r"asked the|took [\w-]+ out)\b"
)
_SHAPE = expression(r"[\d.:,]+")


def is_alert(line: TimedLine) -> bool:
    """The line tells that somebody or something was alerted."""
    return _ALERT.search(line.text) is not None


def is_action(line: TimedLine) -> bool:
    """The line tells what was done: acknowledged, paused, drained, restarted."""
    return _ACTION.search(line.text) is not None


def write_timeline(
    diagnosis: Diagnosis, artefacts: Artefacts, book: Book
) -> tuple[TimelineRow, ...]:
    """Rows by time, those without one last."""
    first = diagnosis.first_line
    measured = [f for f in artefacts.findings if f.kind.startswith("metrics.") and f.evidence and f.level not in ("context", "benign")]  # fmt: skip
    told = chain(
        [_Told(first.file, first.line, first.text, "cause named")] if first is not None else (),
        (_Told(*_place_of(f), f.title, "measured") for f in measured),
        _tell_actions(artefacts),
        _tell_others(diagnosis),
        _tell_cascade(diagnosis, {(e.file, e.line) for f in measured for e in f.evidence}),
    )
    rows: dict[tuple[str, int], TimelineRow] = {}
    for file, line, text, source, more in told:
        if (file, line) not in rows and len(rows) < MAX_ROWS:
            time, about = artefacts.time_at(file, line, text)
            mark = (book.line(file, line, artefacts.text_of(file, line) or text),)
            rows[file, line] = TimelineRow(time, tell_line(text) + more, source, mark, about)
    return tuple(sorted(rows.values(), key=lambda r: (r.time is None, r.time or 0.0)))


class _Told(NamedTuple):
    """One row before it has its time."""

    file: str
    line: int
    text: str
    source: str
    more: str = ""


def _place_of(finding: Finding) -> tuple[str, int]:
    """The row that shows it: not one that is only there to compare with."""
    odd = [e for e in finding.evidence if not e.usual]
    told = odd if len(odd) < len(finding.evidence) else finding.evidence[1:]
    place = next(iter(told), finding.evidence[0])
    return place.file, place.line


def _tell_actions(artefacts: Artefacts) -> Iterator[_Told]:
    """Alerts, and what people or programs did."""
    alike: Counter[str] = Counter()
    for line in artefacts.lines:
        if line.time is None or not (is_alert(line) or is_action(line)):
            continue
        shape = _SHAPE.sub("", line.text)[:80]
        alike[shape] += 1
        if alike[shape] <= MAX_ALIKE:
            yield _Told(line.file, line.line, line.text, "alert" if is_alert(line) else "action")


def _tell_others(diagnosis: Diagnosis) -> Iterator[_Told]:
    """The first quote of each of the next two explanations."""
    quotes = {c.n: c for c in diagnosis.citations}
    for other in diagnosis.hypotheses[1:3]:
        quote = quotes.get(other.for_[0]) if other.for_ else None
        if quote is not None and quote.file and quote.line:
            yield _Told(quote.file, quote.line, quote.quote, "also seen")


def _tell_cascade(diagnosis: Diagnosis, told: set[tuple[str, int]]) -> Iterator[_Told]:
    """What followed, each kind of line once."""
    first = diagnosis.first_line
    alike: dict[str, list[ChainLink]] = {}
    for link in diagnosis.cascade:
        alike.setdefault(shape_of(link.text), []).append(link)
    if first is not None:
        alike.pop(shape_of(first.text), None)
    for link in diagnosis.cascade[1:]:
        shape = shape_of(link.text)
        if link.file and link.line and (link.file, link.line) not in told and shape in alike:
            same = alike.pop(shape)
            yield _Told(link.file, link.line, link.text, SAYS[link.role], say_alike(same))


def say_alike(links: Sequence[ChainLink]) -> str:
    """` (the first of 15 ranks)`, where several say the same; ` (and 2 more alike)` where it is known of no ranks."""
    ranks = {x.rank for x in links if x.rank is not None}
    if len(ranks) > 1:
        return f" (the first of {len(ranks)} ranks)"
    lines = {(x.file, x.line) for x in links}
    return f" (and {len(lines) - 1} more alike)" if len(lines) > 1 else ""


def shape_of(text: str) -> str:
    """What lines of one kind share: their message without numbers."""
    return _SHAPE.sub("", text[read_prefix(text)[1] :])[:60]


_LIBRARY = expression(
    r"^\W{0,2}(?:[EWIF]\d{3,4} \d\d:\d\d:\d\d\.\d+ (?:\d+ )?[\w./]+:\d+\] ?|\w{3} \w{3} [ \d]\d \d\d:\d\d:\d\d \d{4}\] ?)(?:\[PG [^\]\n]{1,80}\] ?)?(?:\[Rank \d+\] ?)?"
)
"""Stamp and place in a library's source, and the stamp of a kernel: the row has its own time."""


def tell_line(text: str) -> str:
    """What a line says, and which rank says it, without the prefixes of launcher and library: the source has those."""
    place, end = read_prefix(text)
    said = short_text(_LIBRARY.sub("", text[end:]))
    if place.rank is None or not said:
        return short_text(_LIBRARY.sub("", text))
    named = re.match(rf"(?i)\W*rank[ :=]?{place.rank}\b", said) is not None
    return said if named else f"rank {place.rank}: {said}"


_STAMP = expression(r"^\W*\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?\W*\s*")


def short_text(text: str) -> str:
    """Text without the stamp that the row shows anyway."""
    flat = " ".join(_STAMP.sub("", text).split())
    return flat if len(flat) <= MAX_TEXT else flat[: MAX_TEXT - 1] + "…"
