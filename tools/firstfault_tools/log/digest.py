"""What is kept of one log after a scan? A small digest that holds everything the diagnosis needs.

A digest never holds a whole large log: of files beyond `COMPLETE_BYTES` only the head, the tail and
windows round interesting lines stay. What was passed over is said in `complete` and `lines_total`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from firstfault_tools.findings import Evidence
from firstfault_tools.log.speaker import Speaker

COMPLETE_BYTES = 24 * 1024 * 1024
"""Logs up to this size are kept line by line."""


class Mark(StrEnum):
    """Structure the scanner looks for besides signatures."""

    TRACEBACK = "traceback"
    WORK = "work"
    EXIT = "exit"
    WORLD = "world"
    SEAT = "seat"


@dataclass(frozen=True, slots=True)
class Line:
    """One normalised and redacted line. `body` is where its text begins after the prefixes."""

    file: str
    number: int
    text: str
    speaker: Speaker = field(default_factory=Speaker)
    body: int = 0
    time: float | None = None

    @property
    def message(self) -> str:
        return self.text[self.body :]

    def evidence(self) -> Evidence:
        """This line as a quotable place."""
        return Evidence(
            self.file, self.number, self.text, self.speaker.rank, self.speaker.host, self.time
        )


@dataclass(frozen=True, slots=True)
class Hit:
    """One line that matched a signature; `index` is the signature's place in the set."""

    index: int
    line: Line
    captures: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class RankTrace:
    """First and last line seen of one rank in one file."""

    rank: int
    first: int
    last: int
    lines: int


@dataclass(frozen=True, slots=True)
class FileDigest:
    """What one log said. `hits` is bounded per signature; `hit_counts` has the true numbers."""

    file: str
    bytes_total: int
    lines_total: int
    kept: Sequence[tuple[int, str]]
    complete: bool
    year: int
    hits: tuple[Hit, ...] = ()
    hit_counts: Mapping[int, int] = field(default_factory=dict)
    conditions: frozenset[int] = frozenset()
    marked: Mapping[Mark, tuple[int, ...]] = field(default_factory=dict)
    ranks: Mapping[int, RankTrace] = field(default_factory=dict)
    redactions: Mapping[str, int] = field(default_factory=Counter)
    name_rank: int | None = None
    """Rank that the file's name gives (rank3.log, worker-12.out), for files of one rank each."""

    offsets: Sequence[tuple[int, int]] = ()
    """(lines before, byte offset) of places in the raw file, about one a MiB, to seek by line."""

    def lines_after(self, number: int, limit: int) -> Iterator[tuple[int, str]]:
        """Kept lines that follow line `number`, at most `limit`, stopping at a gap."""
        start = self.position(number) + 1
        expected = number + 1
        for index in range(start, min(start + limit, len(self.kept))):
            if self.kept[index][0] != expected:
                return
            yield self.kept[index]
            expected += 1

    def marked_lines(self, mark: Mark) -> Iterator[tuple[int, str]]:
        """Kept lines that carry a mark, in order."""
        for number in self.marked.get(mark, ()):
            position = self.position(number)
            if position >= 0 and self.kept[position][0] == number:
                yield self.kept[position]

    def position(self, number: int) -> int:
        """Index in `kept` of line `number`, or of the last kept line before it."""
        low, high = 0, len(self.kept)
        while low < high:
            middle = (low + high) // 2
            if self.kept[middle][0] <= number:
                low = middle + 1
            else:
                high = middle
        return low - 1
