"""What does one question about one incident stand on? Its lines, its verdict, its first line and the marks of both."""

from __future__ import annotations

import time

from firstfault.conversation.evidence import Line
from firstfault.conversation.telling import Telling
from firstfault_tools.dataclass import dataclass


@dataclass(frozen=True)
class Facts(Telling):
    """The evidence and the verdict of one incident, for one question."""

    @property
    def text(self) -> str:
        return self.asked.text

    @property
    def where(self) -> str:
        return f" at {self.place}" if self.place else ""

    @property
    def year(self) -> int:
        window = self.diagnosis.input.time_range
        return int(window[0][:4]) if window else time.gmtime().tm_year

    @property
    def first_line(self) -> Line | None:
        first = self.diagnosis.first_line
        if first is None or not first.file or not first.line:
            return None
        return Line(first.file, first.line, first.text)

    def mark(self, line: Line) -> str:
        return self.sources.add(line.cited)

    def at(self, line: Line) -> str:
        return f"{line.file}:{line.number} {self.mark(line)}"
