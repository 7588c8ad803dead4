"""What is kept of one log after a scan? A small digest that holds everything the diagnosis needs.

A digest never holds a whole large log: of large incidents only the head, the tail and windows round
interesting lines stay (plan.py says how much). What was passed over is said in `complete`,
`lines_total` and `sampled`. Digests of adjacent parts of one log merge, in any grouping.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from enum import StrEnum

from firstfault_tools.dataclass import dataclass
from firstfault_tools.findings import Evidence
from firstfault_tools.log.kept import KeptLines, Run
from firstfault_tools.log.place import NOWHERE, Place

MARKS_PER_KIND = 20_000


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
    place: Place = NOWHERE
    body: int = 0
    time: float | None = None

    @property
    def message(self) -> str:
        return self.text[self.body :]

    def evidence(self) -> Evidence:
        """This line as a quotable place."""
        return Evidence(
            self.file, self.number, self.text, self.place.rank, self.place.host, self.time
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
    kept: KeptLines
    complete: bool
    year: int
    hits: tuple[Hit, ...] = ()
    hit_counts: Mapping[int, int] = field(default_factory=dict)
    conditions: frozenset[int] = frozenset()
    marked: Mapping[Mark, tuple[int, ...]] = field(default_factory=dict)
    ranks: Mapping[int, RankTrace] = field(default_factory=dict)
    redactions: Mapping[str, int] = field(default_factory=Counter)
    locals: Mapping[int, RankTrace] = field(default_factory=dict)
    """Local ranks that torchrun's labels name where they stand without a rank of the job."""

    name_place: Place = NOWHERE
    """What the path of the log tells (rank3.log, node2/attempt_0/5/stderr.log), and what its process says of itself."""

    offsets: Sequence[tuple[int, int]] = ()
    """(lines before, byte offset) of places in the raw file, about one a MiB, to seek by line."""

    sampled: frozenset[int] = frozenset()
    """Signatures that so many lines matched that the rest was counted by samples of each block."""

    hit_limit: int = 96
    """Hits kept per signature, besides the first of every rank."""

    @property
    def name_rank(self) -> int | None:
        """Rank that the log's name or its process's own words give, for logs of one rank each."""
        return self.name_place.rank

    def lines_after(self, number: int, limit: int) -> Iterator[tuple[int, str]]:
        """Kept lines that follow line `number`, at most `limit`, stopping at a gap."""
        start = self.position(number) + 1
        expected = number + 1
        for index in range(start, min(start + limit, len(self.kept))):
            if self.kept[index][0] != expected:
                return
            yield self.kept[index]
            expected += 1

    def text_of(self, number: int) -> str | None:
        """Kept text of one line, or None where it was not kept."""
        position = self.position(number)
        if position < 0 or self.kept[position][0] != number:
            return None
        return self.kept[position][1]

    def marked_lines(self, mark: Mark) -> Iterator[tuple[int, str]]:
        """Kept lines that carry a mark, in order."""
        for number in self.marked.get(mark, ()):
            text = self.text_of(number)
            if text is not None:
                yield number, text

    def position(self, number: int) -> int:
        """Index in `kept` of line `number`, or of the last kept line before it."""
        return self.kept.position(number)


Outcome = tuple[str, FileDigest | str]
"""(file, its digest or the reason why there is none)."""

STOPPED = "the reading was stopped"
"""Begins the reason for which a log, or its end, is not among what was read."""


def trim_hits(hits: Sequence[Hit], limit: int) -> tuple[Hit, ...]:
    """The first `limit` hits of every signature, and the first of every rank beyond them.

    Trimming trimmed lists again gives what trimming the whole would have given, so merging is
    associative.
    """
    counts: Counter[int] = Counter()
    ranks: set[tuple[int, int | None]] = set()
    out = []
    for hit in hits:
        counts[hit.index] += 1
        key = (hit.index, hit.line.place.rank)
        if counts[hit.index] <= limit or key not in ranks:
            out.append(hit)
        ranks.add(key)
    return tuple(out)


def merge_parts(one: FileDigest, other: FileDigest) -> FileDigest:
    """Digest of two adjacent parts of one log; `other` follows `one`. Associative."""
    shift = one.lines_total
    marked = {
        mark: (
            *one.marked.get(mark, ()),
            *(number + shift for number in other.marked.get(mark, ())),
        )[:MARKS_PER_KIND]
        for mark in dict.fromkeys((*one.marked, *other.marked))
    }
    moved = (replace(h, line=replace(h.line, number=h.line.number + shift)) for h in other.hits)
    return replace(
        one,
        bytes_total=one.bytes_total + other.bytes_total,
        lines_total=one.lines_total + other.lines_total,
        kept=KeptLines.of((*one.kept.runs, *_shift_runs(other.kept, shift))),
        complete=one.complete and other.complete,
        hits=trim_hits((*one.hits, *moved), one.hit_limit),
        hit_counts=dict(Counter(one.hit_counts) + Counter(other.hit_counts)),
        conditions=one.conditions | other.conditions,
        marked=marked,
        ranks=_merge_traces(one.ranks, other.ranks, shift),
        locals=_merge_traces(one.locals, other.locals, shift),
        redactions=dict(Counter(one.redactions) + Counter(other.redactions)),
        offsets=(*one.offsets, *((lines + shift, offset) for lines, offset in other.offsets)),
        sampled=one.sampled | other.sampled,
    )


def _merge_traces(
    one: Mapping[int, RankTrace], other: Mapping[int, RankTrace], shift: int
) -> dict[int, RankTrace]:
    traces = dict(one)
    for rank, trace in other.items():
        known = traces.get(rank)
        traces[rank] = RankTrace(
            rank,
            known.first if known is not None else trace.first + shift,
            trace.last + shift,
            trace.lines + (known.lines if known is not None else 0),
        )
    return dict(sorted(traces.items()))


def _shift_runs(kept: KeptLines, shift: int) -> Iterator[Run]:
    return (Run(r.first + shift, r.data) for r in kept.runs)
