"""Which numbered lines can matter to a reader, and how is one quoted?

Readers work on numbered lines, because the output of a command is as often pasted into a training log
as it is saved to a file of its own. A reader names its *markers*: plain substrings without which it
finds nothing. One pass over the joined text tells which markers occur at all, so a log without them
costs a few substring searches and no regular expression.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, cached_property, lru_cache
from typing import Any, TypeAlias

from firstfault_tools.artefact import Artefact
from firstfault_tools.findings import Evidence
from firstfault_tools.log.kept import (
    KeptLines,
    NumberedLines,
    fold_digits,
    fold_lines,
    read_once,
)

NumberedLine: TypeAlias = tuple[int, str]

LINE_CHARS = 4096
QUOTE_CHARS = 400
TEXT_BYTES = 64 * 1024 * 1024
QUOTES_PER_FINDING = 5


def number_lines(text: str) -> NumberedLines:
    """1-based lines of `text`, each cut at 4,096 characters."""
    rows = enumerate(text.split("\n"), start=1)
    return NumberedLines((number, line[:LINE_CHARS]) for number, line in rows)


def read_lines(artefact: Artefact) -> NumberedLines:
    """The first 64 MiB of an artefact as numbered lines; undecodable bytes become U+FFFD."""
    text = artefact.data(TEXT_BYTES).decode("utf-8", errors="replace")
    return number_lines(text.replace("\r\n", "\n"))


def keep_marked(lines: Sequence[NumberedLine], markers: Sequence[str]) -> list[NumberedLine]:
    """The lines that hold at least one marker, in order."""
    if not may_hold(lines, markers):
        return []
    page = read_once(_Page, lines)
    present = [marker for marker in markers if marker.encode() in page.text]
    kept = []
    for number, line in lines:
        for marker in present:
            if marker in line:
                kept.append((number, line[:LINE_CHARS]))
                break
    return kept


def may_hold(lines: Sequence[NumberedLine], markers: Sequence[str]) -> bool:
    """Some line may hold one of the markers: a look for finders that walk the lines themselves."""
    if isinstance(lines, KeptLines):
        return lines.holds(markers)
    return bool(lines) and read_once(_Page, lines).may_hold(tuple(markers))


class _Page:
    """Lines joined once for all readers, and which readers' markers may occur in them."""

    def __init__(self, lines: Sequence[NumberedLine]) -> None:
        self.text = "\n".join([line for _, line in lines]).encode("utf-8", errors="replace")
        self._places = {markers: place for place, markers in enumerate(tuple(_known))}
        self._found: frozenset[int] | None = None

    def may_hold(self, markers: tuple[str, ...]) -> bool:
        """False where none of them occurs. The markers of all readers met before in one pass."""
        if len(self.text) <= SHORT_PAGE:
            return any(marker.encode() in self.text for marker in markers)
        place = self._places.get(markers)
        if place is None or len(self._places) < WORTH_A_SET:
            _known[markers] = None
            return bool(_compile_markers(markers).search(self.shapes))
        if self._found is None:
            self._found = frozenset(_compile_set(tuple(self._places)).Match(self.shapes) or ())
        return place in self._found

    @cached_property
    def shapes(self) -> bytes:
        """Each line once of those that differ in digits alone: a fiftieth of a long log."""
        return b"\n".join(fold_lines(self.text))


WORTH_A_SET = 8
SHORT_PAGE = 2_048
"""Bytes up to which looking for each marker is quicker than compiling them."""

_known: dict[tuple[str, ...], None] = {}
"""Markers of the readers met so far, in order."""


def join_lines(lines: Sequence[NumberedLine]) -> bytes:
    """The lines as one UTF-8 text, joined once for all who ask for the same lines."""
    return read_once(_Page, lines).text


def _any_of(markers: tuple[str, ...]) -> bytes:
    import re2

    return b"|".join(re2.escape(fold_digits(marker)) for marker in markers)


@cache
def _compile_markers(markers: tuple[str, ...]) -> Any:
    """One pass for all markers: six times faster than a search for each of fifty."""
    import re2

    return re2.compile(_any_of(markers))


@lru_cache(maxsize=4)
def _compile_set(known: tuple[tuple[str, ...], ...]) -> Any:
    import re2

    options = re2.Options()
    options.max_mem = 128 << 20
    found = re2.Set.SearchSet(options)
    for markers in known:
        found.Add(_any_of(markers))
    found.Compile()
    return found


def quote_line(
    file: str,
    number: int,
    text: str,
    *,
    host: str | None = None,
    time: float | None = None,
    rank: int | None = None,
) -> Evidence:
    """Evidence for one line, cut to a length that a page can show."""
    return Evidence(file, number, text.strip()[:QUOTE_CHARS], rank=rank, host=host, time=time)


def keep_near(
    lines: Sequence[NumberedLine], markers: Sequence[str], before: int, after: int
) -> list[NumberedLine]:
    """The lines within `before` and `after` lines of a marked one, for blocks of several lines."""
    marked = {number for number, _ in keep_marked(lines, markers)}
    if not marked:
        return []
    wanted: set[int] = set()
    for place, (number, _) in enumerate(lines):
        if number in marked:
            wanted.update(range(max(0, place - before), min(len(lines), place + after + 1)))
    return [(lines[place][0], lines[place][1][:LINE_CHARS]) for place in sorted(wanted)]
