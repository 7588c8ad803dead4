"""Which lines do several ranks say in the same words? Lines grouped by shape, each with who said it.

The shape of a line is what is left without digits, hexadecimal letters and blanks, taken from whole
blocks of bytes at once. Only groups in which at least three speakers are told apart come out.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from firstfault_tools.causality.incident import LogIncident
from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.log.digest import FileDigest, Line
from firstfault_tools.log.scan import make_line

LEAST = 3
"""Speakers without whom nobody can be the odd one."""

HEAD_LINES, TAIL_LINES = 1_500, 500
"""Lines looked at of each log: a difference shows at the start, or in what is printed at the end."""

LINES_IN_ALL, LINES_EACH = 60_000, 48
"""Lines looked at over all logs, and of each log at least."""

LINES_PER_SHAPE = 512
PROBE = 24
"""Lines of a shape after which one voice is enough to pass it over."""

SHAPES = 400
LONGEST = 2_000

_DROPPED = b"0123456789abcdef, \t\r"
_MARK = expression(rb"[ \t]*<[-=]+[^\n]*")
"""What somebody wrote behind a row to point at it."""

_SET = expression(rb"=[^\s,;|)\]}]+")
"""A value that is set: it may be any word."""

_LABEL = expression(
    r"\[(?:[Rr]ank|RANK)[ :=_]{0,2}(\d{1,6})\]|\[\d+,(\d+)\]<std|\brank=(\d{1,6})\b"
)
_NAMED = expression(
    r"(?:^|[\s(\[{|,;:])(?:[Rr](?:ank|ANK)|Process(?= \d{1,6}:))[ \t:=_#]{0,3}(\d{1,6})(?![\d.])"
)
_TASK = expression(r"^\s*(\d{1,5}): |\[(?:default|GPU|R)(\d{1,6})\]")
_HOST = expression(
    r"^\s*(?:\S{1,40} )?\[?([A-Za-z][\w.-]{0,40}\d[\w.-]{0,24}|\d{1,3}(?:\.\d{1,3}){3})(?::\d+)*(?:[\]:]| \[\d+\]) |"
    r"\bip=([\d.]{7,15})\)|\bhost(?:name)?[=:] ?([A-Za-z][\w.-]*)"
)
HEAD = 200


@dataclass(frozen=True, slots=True)
class Voice:
    """One line and who it is about: a rank, or a host (or file) where no rank is told."""

    rank: int | None
    place: str
    """Host, or name of the file, of a voice without rank; '' otherwise."""
    digest: FileDigest
    number: int
    text: str

    @property
    def who(self) -> tuple[int, str]:
        return (self.rank if self.rank is not None else -1, self.place)

    def line(self) -> Line:
        """The log line with speaker and time."""
        return make_line(self.digest.file, self.number, self.text, self.digest.year)


@dataclass(frozen=True, slots=True)
class Chorus:
    """Lines of one shape by at least three voices, in the order of the logs.

    table: one writer printed them, each row about another rank.
    """

    voices: tuple[Voice, ...]
    table: bool = False


@dataclass(frozen=True, slots=True)
class Speech:
    """All lines looked at, by shape: (index of the log, line number, text)."""

    digests: tuple[FileDigest, ...]
    shapes: dict[bytes, list[tuple[int, int, str]]]

    def choruses(self) -> Iterator[Chorus]:
        """Groups of lines that several ranks say, or that list several ranks."""
        alone = [sole_rank(d) for d in self.digests]
        left = SHAPES
        for places in self.shapes.values():
            if len(places) < LEAST or left <= 0:
                continue
            left -= 1
            found = _tell_apart(self.digests, alone, _first_of_each(places))
            if found is not None:
                yield found


def _first_of_each(places: list[tuple[int, int, str]]) -> list[tuple[int, int, str]]:
    """The first lines of a shape in each log; as many of each as leave the sum small."""
    if len(places) <= LINES_PER_SHAPE:
        return places
    logs = Counter(index for index, _, _ in places)
    most = max(2, LINES_PER_SHAPE // len(logs))
    taken: Counter[int] = Counter()
    out = []
    for place in places:
        if taken[place[0]] < most:
            taken[place[0]] += 1
            out.append(place)
    return out


def sole_rank(digest: FileDigest) -> int | None:
    """The rank that wrote all of a log, by the name of the file."""
    return digest.name_rank if set(digest.ranks) <= {digest.name_rank} else None


def hear_speech(incident: LogIncident) -> Speech:
    """First and last lines of all logs by shape; of incidents of thousands of logs the first alone."""
    shapes: dict[bytes, list[tuple[int, int, str]]] = defaultdict(list)
    share = LINES_IN_ALL // max(len(incident.digests), 1)
    for index, digest in enumerate(incident.digests):
        head = min(HEAD_LINES, max(LINES_EACH, share))
        tail = min(TAIL_LINES, share // 3) if digest.complete else 0
        total = len(digest.kept)
        spans = [(0, total)] if total <= head + tail else [(0, head), (total - tail, total)]
        for start, stop in spans:
            _hear(digest.kept[start:stop], index, shapes)
    return Speech(incident.digests, shapes)


def _hear(
    lines: Sequence[tuple[int, str]], index: int, shapes: dict[bytes, list[tuple[int, int, str]]]
) -> None:
    blob = "\n".join([text for _, text in lines]).encode("utf-8", errors="replace")
    if b"<-" in blob or b"<=" in blob:
        blob = _MARK.sub(b"", blob)
    if b"=" in blob:
        blob = _SET.sub(b"=", blob)
    bare = blob.translate(None, _DROPPED).split(b"\n")
    for shape, (number, text) in zip(bare, lines, strict=False):
        if len(shape) > 6:
            shapes[shape].append((index, number, text))


def _tell_apart(
    digests: Sequence[FileDigest],
    alone: Sequence[int | None],
    places: Sequence[tuple[int, int, str]],
) -> Chorus | None:
    """Who says each line: by the rank it names, else by its label, else by host or file."""
    if max(len(text) for _, _, text in places) > LONGEST:
        return None
    if any(alone[index] is not None for index, _, _ in places):
        voices = [
            Voice(alone[i], "" if alone[i] is not None else digests[i].file, digests[i], n, text)
            for i, n, text in places
        ]
        if _distinct(voices) >= LEAST:
            return Chorus(tuple(voices))
    labelled = _by_pattern(digests, places, _LABEL)
    if _distinct(labelled) >= LEAST:
        return Chorus(tuple(labelled))
    named = _by_pattern(digests, places, _NAMED)
    if _distinct(named) >= LEAST:
        writers = {_first(_LABEL, text) or _first(_TASK, text) for _, _, text in places}
        return Chorus(tuple(named), table=len(writers) == 1 and len({p[0] for p in places}) == 1)
    for pattern in (_TASK, _HOST):
        found = _by_pattern(digests, places, pattern)
        if _distinct(found) >= LEAST:
            return Chorus(tuple(found))
    if len({index for index, _, _ in places}) >= LEAST:
        return Chorus(tuple(Voice(None, digests[i].file, digests[i], n, t) for i, n, t in places))
    return None


def _first(pattern: re.Pattern[str], text: str) -> str | None:
    match = pattern.search(text, 0, HEAD)
    return None if match is None else match[match.lastindex or 1]


def _by_pattern(
    digests: Sequence[FileDigest],
    places: Sequence[tuple[int, int, str]],
    pattern: re.Pattern[str],
) -> list[Voice]:
    out = []
    for count, (index, number, text) in enumerate(places):
        told = _first(pattern, text)
        if told is not None:
            rank = int(told) if pattern is not _HOST else None
            out.append(Voice(rank, "" if rank is not None else told, digests[index], number, text))
        if count == PROBE and _distinct(out) < 2:
            return []  # one voice so far: most shapes are one rank's own
    return out


def _distinct(voices: Sequence[Voice]) -> int:
    return len({v.who for v in voices})
