"""What do the files of an incident hold, line by line? Read once for one question, with the place, time and step of a line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property

from firstfault.conversation.answerer import Question
from firstfault.investigation.diagnosis import Citation, CitationKind
from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.log.clock import read_time
from firstfault_tools.log.place import Place
from firstfault_tools.log.prefix import read_prefix
from firstfault_tools.log.window import read_window

MAX_LINES, PIECE, MAX_QUOTE = 60_000, 2_000, 600
_STEP = expression(
    r"(?i)\b(?:(?:global[ _])?step|iteration|iter|batch)s?\b\s{0,4}[:=\[#]?\s{0,4}(\d{1,9})(?:\s*/\s*\d{1,9})?"
)
_BEFORE_STEP = expression(r"(?i)\b(?:loss|time|lr|grad|tokens|throughput|step|iteration|batch)\b")


@dataclass(frozen=True, slots=True)
class Line:
    """One line of one file."""

    file: str
    number: int
    text: str

    @property
    def place(self) -> Place:
        """Who wrote it, by its prefixes."""
        return read_prefix(self.text)[0]

    @property
    def step(self) -> int | None:
        """Step or iteration that it reports."""
        found = _STEP.search(self.text)
        return int(found[1]) if found is not None and _BEFORE_STEP.search(self.text) else None

    @property
    def cited(self) -> Citation:
        """The line as a quote."""
        return Citation(
            0, CitationKind.LOG, self.text[:MAX_QUOTE], file=self.file, line=self.number
        )


@dataclass(frozen=True)
class Evidence:
    """Every line of the artefacts, up to a bound for each file."""

    question: Question

    @cached_property
    def lines(self) -> tuple[Line, ...]:
        return tuple(self._read())

    def _read(self) -> Iterator[Line]:
        for file, path in self.question.artefacts.items():
            for first in range(1, MAX_LINES, PIECE):
                if self.question.is_stopped():
                    return
                window = read_window(path, first, first + PIECE - 1)
                yield from (Line(file, n, text) for n, text in window)
                if len(window) < PIECE:
                    break

    def find(self, pattern: re.Pattern[str], most: int = 4) -> list[tuple[Line, re.Match[str]]]:
        """The first lines that match."""
        out = []
        for line in self.lines:
            found = pattern.search(line.text)
            if found is not None:
                out.append((line, found))
                if len(out) >= most:
                    break
        return out

    @cached_property
    def hosts(self) -> tuple[str, ...]:
        """Hosts that wrote lines or gave a file its name."""
        found = [line.place.host for line in self.lines if line.place.host]
        return tuple(dict.fromkeys(found))

    @cached_property
    def stepped(self) -> tuple[Line, ...]:
        """Lines that report a step."""
        return tuple(line for line in self.lines if line.step is not None)

    def time_of(self, line: Line, year: int) -> float | None:
        """Seconds since the epoch that the line tells; None where it has no time."""
        return read_time(line.text, year)
