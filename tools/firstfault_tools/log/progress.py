"""How far is a scan? Told when a batch is done, and within a batch several times a second."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from firstfault_tools.dataclass import dataclass
from firstfault_tools.findings import Level
from firstfault_tools.log.digest import FileDigest

if TYPE_CHECKING:
    from firstfault_tools.log.signature import SignatureSet

TELL_SECONDS = 0.25
"""Least time between two tellings within a batch."""

TELLING = (Level.CAUSE, Level.FAILURE, Level.SYMPTOM)
MOST_FOUND = 3

PartReached = Callable[[int, int, Mapping[int, int]], None]
"""Told of a part in the middle: bytes, lines and hits by signature so far."""
BatchReached = Callable[[int, int, Sequence[Mapping[int, int]]], None]
"""The same of a batch, whose hits are the sum of several counts."""


@dataclass(frozen=True, slots=True)
class Scanning:
    """How far a scan is. Sizes in bytes; found: (title, lines) of the signatures so far that tell most; files: logs read
    to their ends, of so many."""

    done: int
    total: int
    lines: int
    found: tuple[tuple[str, int], ...] = ()
    files: int = 0
    files_total: int = 1


class Teller:
    """Adds up what is done and tells it. What is told within a batch is counted again when the batch is done."""

    def __init__(
        self, total: int, files: int, signatures: SignatureSet, tell: Callable[[Scanning], None]
    ) -> None:
        self.total, self.files_total = total, files
        self.signatures, self.tell = signatures, tell
        self.done = self.lines = self.files = 0
        self.counts: Counter[int] = Counter()
        self.told = 0.0
        self.shown = (0, 0)

    def finish(self, size: int, digests: Sequence[FileDigest], files: int) -> None:
        """A batch of `size` bytes is done, and with it so many logs."""
        self.done += size
        self.files += files
        self.lines += sum(d.lines_total for d in digests)
        for digest in digests:
            self.counts.update(digest.hit_counts)
        self._say(self.done, self.lines, self.counts)

    def reach(self, size: int, lines: int, counts: Sequence[Mapping[int, int]]) -> None:
        """So much of the batch in hand is done."""
        if time.monotonic() - self.told >= TELL_SECONDS:
            whole = Counter(self.counts)
            for more in counts:
                whole.update(more)
            self._say(self.done + size, self.lines + lines, whole)

    def _say(self, done: int, lines: int, counts: Counter[int]) -> None:
        self.told = time.monotonic()
        # a pool is ahead of the batches that are done in order
        self.shown = (max(done, self.shown[0]), max(lines, self.shown[1]))
        found = _name_found(counts, self.signatures)
        done, lines = self.shown
        self.tell(Scanning(done, self.total, lines, found, self.files, self.files_total))


def _name_found(counts: Counter[int], signatures: SignatureSet) -> tuple[tuple[str, int], ...]:
    """The deepest of what was found, the most frequent first; what is known to do no harm is left out."""
    found = [(signatures.signatures[index], count) for index, count in counts.items()]
    telling = [(s, count) for s, count in found if s.level in TELLING]
    telling.sort(key=lambda pair: (TELLING.index(pair[0].level), -pair[1]))
    return tuple((s.title, count) for s, count in telling[:MOST_FOUND])
