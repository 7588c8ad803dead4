"""What do the artefacts say beyond the verdict? Lines with times, step curves, claims, all quotable."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from functools import cached_property
from pathlib import Path

from firstfault.investigation.diagnosis import Citation, CitationKind
from firstfault.investigation.waits import wait_in
from firstfault_tools.dataclass import dataclass
from firstfault_tools.errors import ToolError
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Evidence, Finding
from firstfault_tools.log.clock import NO_YEAR, read_time
from firstfault_tools.log.kept import NumberedLines
from firstfault_tools.log.window import read_window
from firstfault_tools.metrics.series import MISSING, StepSeries
from firstfault_tools.registry import line_finders

NEAR_BEFORE, NEAR_AFTER = 200, 40
NEXT_TO, CLOSER = 3, 3
"""Lines within which the next time counts before an earlier one that is so many times further off."""
MAX_LINES, MAX_FILES, PIECE, MAX_QUOTE = 60_000, 200, 2_000, 400
ANY_FILE = ""
"""Times of this year stand for times whose year is not known."""
_YEAR = expression(
    r"\b(20[12]\d)([-/])(?:0\d|1[0-2])\2[0-3]\d|\d\d:\d\d:\d\d (?:[A-Z]{3,4} )?(20[12]\d)\b|"
    r"\b(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]*\.? (?:\d{1,2},? )?(20[12]\d)\b"
)
"""A year within a date: a bare 2048 is a length."""


class Book:
    """Numbers citations in order of first use, each place once."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[object, ...], int] = {}
        self._citations: list[Citation] = []

    @property
    def citations(self) -> tuple[Citation, ...]:
        return tuple(self._citations)

    def line(self, file: str, line: int, text: str) -> int:
        """Number of a line of the evidence."""
        quote = " ".join(text.split())[:MAX_QUOTE]
        return self._add(Citation(0, CitationKind.LOG, quote, file=file, line=line))

    def evidence(self, found: Sequence[Evidence], limit: int = 2) -> tuple[int, ...]:
        """Numbers of a finding's quoted lines."""
        return tuple(self.line(e.file, e.line, e.text) for e in found[:limit] if e.line)

    def again(self, citation: Citation) -> int:
        """Number here of a citation of the diagnosis."""
        if citation.kind is CitationKind.LOG and citation.file and citation.line:
            return self.line(citation.file, citation.line, citation.quote)
        return self._add(citation)

    def _add(self, c: Citation) -> int:
        quote = "" if c.kind is CitationKind.LOG else c.quote
        key = (c.kind, c.file, c.line, c.page, c.heading, quote)
        if key not in self._numbers:
            n = self._numbers[key] = len(self._citations) + 1
            self._citations.append(
                Citation(n, c.kind, c.quote, c.file, c.line, c.page, c.heading, c.url)
            )
        return self._numbers[key]


@dataclass(frozen=True, slots=True)
class TimedLine:
    """One line with its time in seconds since the epoch, where it prints one."""

    file: str
    line: int
    text: str
    time: float | None


@dataclass(frozen=True)
class Artefacts:
    """The evidence of an incident, read once and bounded: the first and last lines of long files."""

    files: Mapping[str, Path] = field(default_factory=dict)
    quoted: tuple[Citation, ...] = ()
    """Quotes to fall back on where the files are not at hand."""

    given: tuple[tuple[str, int, str], ...] = ()
    """(file, line, text) to go by instead of reading the files whole."""

    @cached_property
    def lines(self) -> tuple[TimedLine, ...]:
        """Lines of all files, normalised and redacted."""
        years = self._years
        return tuple(
            TimedLine(name, number, text, read_time(text, years.get(name, years[ANY_FILE])))
            for name, number, text in self._texts
        )

    @cached_property
    def _texts(self) -> tuple[tuple[str, int, str], ...]:
        """(file, line, text) of everything that is at hand."""
        if self.given:
            return self.given
        if not self.files:
            return tuple((c.file, c.line, c.quote) for c in self.quoted if c.file and c.line)
        return tuple(
            (name, number, text)
            for name, path in list(self.files.items())[:MAX_FILES]
            for number, text in _read(path)
        )

    @cached_property
    def _years(self) -> Mapping[str, int]:
        """Year for the stamps of a file that print none: the file's first, else that of any file."""
        years: dict[str, int] = {}
        for name, _, text in self._texts:
            if name not in years and (year := _year_of(text)) is not None:
                years[name] = year
        return {ANY_FILE: next(iter(years.values()), NO_YEAR), **years}

    @cached_property
    def findings(self) -> tuple[Finding, ...]:
        """What the line readers find when they see every line, not only the conspicuous ones."""
        out: list[Finding] = []
        for name in dict.fromkeys(line.file for line in self.lines):
            pairs = NumberedLines((x.line, x.text) for x in self.lines if x.file == name)
            for find in line_finders().values():
                try:
                    out += find(pairs, name)
                except ToolError:
                    continue  # the receipt of the diagnosis already names what could not be read
        return tuple(out)

    @cached_property
    def steps(self) -> Mapping[str, StepSeries]:
        """Step curves by file, where a file has any."""
        from firstfault_tools.metrics.sources.steps import parse_steps
        from firstfault_tools.metrics.view import lead_of

        found = {}
        for name in dict.fromkeys(line.file for line in self.lines):
            series = parse_steps([(x.line, x.text) for x in self.lines if x.file == name])
            if len(series):
                found[name] = lead_of(series)
        return found

    def time_at(self, file: str, line: int, text: str = "") -> tuple[float | None, bool]:
        """(time, whether it is only about then): of the line, else of the nearest one before, or of the one that
        follows where that is much closer.

        `text` is the line itself, for files that are not at hand: of those only quotes are known, and
        the nearest quote may lie far away.
        """
        own = self._times.get(file, [])
        place = bisect_left(own, (line, float("-inf")))
        if place < len(own) and own[place][0] == line:
            return own[place][1], False
        time = read_time(text, self._years.get(file, self._years[ANY_FILE]))
        if time is not None or not self.files:
            return time, False
        before = line - own[place - 1][0] if place else MAX_LINES
        after = own[place][0] - line if place < len(own) else MAX_LINES
        if before <= NEAR_BEFORE and not (after <= NEXT_TO and before > CLOSER * after):
            return own[place - 1][1], True
        if after <= NEAR_AFTER:
            # what a watchdog reports began when its wait did
            return own[place][1] - wait_in(self.text_of(file, own[place][0])), True
        return None, False

    def begun_at(self, file: str, line: int, text: str = "") -> float | None:
        """Time at which what a line reports began: before the wait that it tells of."""
        time, about = self.time_at(file, line, text)
        return time if time is None or about else time - wait_in(text or self.text_of(file, line))

    @cached_property
    def _times(self) -> dict[str, list[tuple[int, float]]]:
        out: dict[str, list[tuple[int, float]]] = {}
        for x in self.lines:
            if x.time is not None:
                out.setdefault(x.file, []).append((x.line, x.time))
        return out

    def text_of(self, file: str, line: int) -> str:
        """Text of one line; empty when it was not read."""
        return self._by_place.get((file, line), "")

    @cached_property
    def _by_place(self) -> dict[tuple[str, int], str]:
        return {(x.file, x.line): x.text for x in self.lines}


def _read(path: Path) -> Iterator[tuple[int, str]]:
    for first in range(1, MAX_LINES, PIECE):
        window = read_window(path, first, first + PIECE - 1)
        yield from window
        if len(window) < PIECE:
            return


def _year_of(text: str) -> int | None:
    """Year that a line names."""
    found = _YEAR.search(text[:200])
    return int(found[1] or found[3] or found[4]) if found else None


@dataclass(frozen=True, slots=True)
class StepRow:
    """One logged step: time in seconds since the epoch, duration of a step in milliseconds."""

    file: str
    line: int
    step: int
    time: float
    step_ms: float
    tokens_per_s: float | None
    text: str
    by_rate: bool = False
    """The log prints a rate and no duration: step_ms is only its inverse, of use for ratios."""


def timed_steps(artefacts: Artefacts) -> tuple[StepRow, ...]:
    """Logged steps of all files that have a time and a duration, by time."""
    rows = []
    for name, series in artefacts.steps.items():
        # plain columns: a short log needs no arrays
        none = [MISSING] * len(series)
        duration = series.columns.get("step_time_ms", none)
        tokens = series.columns.get("tokens_per_s", none)
        for row in range(len(series)):
            rate = float(tokens[row]) if tokens[row] != MISSING else None
            timed = duration[row] != MISSING and duration[row] > 0
            if series.time[row] == MISSING or not (timed or rate):
                continue
            took = float(duration[row]) if timed else 1e9 / (rate or 1.0)
            place = (int(series.line[row]), int(series.step[row]), float(series.time[row]))
            rows.append(
                StepRow(name, *place, took, rate, artefacts.text_of(name, place[0]), not timed)
            )
    return tuple(sorted(rows, key=lambda r: r.time))
