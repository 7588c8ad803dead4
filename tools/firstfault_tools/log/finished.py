"""What of the logs was read to an end before a reading was stopped? Digests of finished batches, on disk.

A batch is what one worker scans at a time: many small logs, or a piece of a large one. Its digests are kept when it is
finished; a reading that goes on takes them from there. They hold for the very same logs, patterns and code alone: any
change of those is another mark, and nothing is found under it.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import shutil
import threading
import zlib
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import IO, Any

from firstfault_tools.dataclass import dataclass
from firstfault_tools.knowledge.pack import stamp_files
from firstfault_tools.log.digest import (
    STOPPED,
    FileDigest,
    Hit,
    Line,
    Mark,
    Outcome,
    RankTrace,
    merge_parts,
)
from firstfault_tools.log.kept import KeptLines, Run
from firstfault_tools.log.narrowing import name_index
from firstfault_tools.log.place import Place
from firstfault_tools.log.plan import Part
from firstfault_tools.log.signature import SignatureSet

WORTH_KEEPING = 64 * 1024 * 1024
"""Logs of fewer bytes together are read again before anybody could have stopped."""

_CLASSES = {
    (c.__module__, c.__qualname__): c
    for c in (FileDigest, KeptLines, Run, Hit, Line, Place, Mark, RankTrace, Counter)
}


@dataclass(frozen=True, slots=True)
class Finished:
    """How much is kept. Sizes in bytes; files: logs that were read from their first line to their last."""

    size: int = 0
    lines: int = 0
    files: int = 0


@dataclass(frozen=True, slots=True)
class FinishedBatches:
    """Finished batches of one reading. folder: holds nothing else; mark: names the logs, patterns and code."""

    folder: Path
    mark: str
    least: int
    """Logs of fewer bytes together are not kept."""

    def keep(self, batch: Sequence[Part], outcome: Sequence[Outcome]) -> None:
        """Keep what a batch gave, unless a log of it could not be read. What cannot be written is read again."""
        if any(isinstance(told, str) for _, told in outcome):
            return
        place = self._place(batch)
        passing = place.with_suffix(f".{os.getpid()}-{threading.get_ident()}")
        lines = sum(d.lines_total for _, d in outcome if isinstance(d, FileDigest))
        ends = [(p.name, p.start, p.end, p.size) for p in batch]
        with suppress(OSError):
            place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with open(passing, "wb", opener=_open_private) as stream:
                pickle.dump((lines, ends), stream, protocol=5)
                pickle.dump(list(outcome), stream, protocol=5)
            os.replace(passing, place)

    def find(self, batch: Sequence[Part]) -> list[Outcome] | None:
        """What a batch gave; None where it is not kept."""
        try:
            with self._place(batch).open("rb") as stream:
                _load(stream)
                outcome: list[Outcome] = _load(stream)
        except (OSError, EOFError, pickle.UnpicklingError, ValueError, TypeError, AttributeError):
            return None
        return outcome

    def count(self) -> Finished:
        """How much is kept."""
        size = lines = 0
        read: Counter[str] = Counter()
        whole: dict[str, int] = {}
        for file in self._files():
            with suppress(OSError, EOFError, pickle.UnpicklingError, ValueError), file.open("rb") as stream:  # fmt: skip
                of_lines, ends = _load(stream)
                lines += of_lines
                for name, start, end, total in ends:
                    size += end - start
                    read[name] += end - start
                    whole[name] = total
        return Finished(size, lines, sum(1 for name in read if read[name] >= whole[name]))

    def forget_others(self) -> None:
        """Remove what was kept under other marks: of logs that have changed, or of other patterns."""
        with suppress(OSError):
            for other in self.folder.iterdir():
                if other.name != self.mark:
                    shutil.rmtree(other, ignore_errors=True)

    def _place(self, batch: Sequence[Part]) -> Path:
        told = repr([(p.name, p.start, p.end, p.size, p.year, p.wrapped, p.budget) for p in batch])
        return self.folder / self.mark / f"{hashlib.sha256(told.encode()).hexdigest()[:40]}.batch"

    def _files(self) -> list[Path]:
        try:
            return sorted((self.folder / self.mark).glob("*.batch"))
        except OSError:
            return []


def mark_reading(inputs: Iterable[object], signatures: SignatureSet) -> str:
    """Mark of a reading. inputs: what tells the logs apart, such as path, size and time of change."""
    told = repr((list(inputs), name_index(signatures.patterns), _stamp_code()))
    return hashlib.sha256(told.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def merge_finished(
    batches: Iterable[Sequence[Part]], kept: FinishedBatches | None
) -> tuple[dict[str, FileDigest], dict[str, str]]:
    """Digests of the logs that were read to their ends, and why each other one is left out.

    Where none was, the one of which most was read from its first line on: it is beside no other log, so that
    where its reading ended is not taken for where its rank ended.
    """
    digests: dict[str, FileDigest] = {}
    sizes: dict[str, int] = {}
    broken: set[str] = set()
    for batch in batches:
        sizes.update((p.name, p.size) for p in batch)
        outcome = kept.find(batch) if kept is not None else None
        if outcome is None:
            broken.update(p.name for p in batch)
            continue
        for file, digest in outcome:
            if isinstance(digest, FileDigest) and file not in broken:
                known = digests.get(file)
                digests[file] = digest if known is None else merge_parts(known, digest)
    whole = {file: d for file, d in digests.items() if file not in broken}
    begun = [file for file in digests if file in broken]
    if not whole and begun:
        most = max(begun, key=lambda file: digests[file].bytes_total)
        whole = {most: digests[most]}
    left = {file: _say_left(digests.get(file), size, file in whole) for file, size in sizes.items() if file in broken}  # fmt: skip
    return whole, left


def _say_left(digest: FileDigest | None, size: int, taken: bool) -> str:
    if digest is None:
        return f"{STOPPED} before it was reached, or in its first part"
    read = f"{digest.bytes_total / 1e6:.1f} of {size / 1e6:.1f} MB"
    if taken:
        return f"{STOPPED} after line {digest.lines_total:,} ({read}): what follows is not in this verdict"
    return f"{STOPPED} within it ({read}): it is left out, so that its end is not compared with those of the others"


@cache
def _stamp_code() -> int:
    """What changes where the code that reads logs does."""
    return zlib.crc32(repr(stamp_files(Path(__file__).parent, ".py")).encode())


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


class _Reader(pickle.Unpickler):
    """Builds digests and nothing else, whatever a file asks for."""

    def find_class(self, module: str, name: str) -> Any:
        try:
            return _CLASSES[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"no part of a digest: {module}.{name}") from None


def _load(stream: IO[bytes]) -> Any:
    return _Reader(stream).load()
