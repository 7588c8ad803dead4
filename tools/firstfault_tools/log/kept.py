"""Which lines does a digest keep, and how small? Runs of lines as bytes, split only when looked at."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import accumulate
from typing import Any, TypeVar, overload

from firstfault_tools.dataclass import dataclass

T = TypeVar("T")

_DIGITS = bytes.maketrans(b"123456789", b"000000000")

SPLIT_BYTES = 64 * 1024 * 1024
"""Text of this many bytes stays split in memory over all digests; older runs are split again."""


def fold_bytes(data: bytes) -> bytes:
    """A text with a 0 for each of its digits."""
    return data.translate(_DIGITS)


def fold_lines(data: bytes) -> set[bytes]:
    """Each line once of those that differ in digits alone: a fiftieth of a long log."""
    return set(fold_bytes(data).split(b"\n"))


@lru_cache(maxsize=8_192)
def fold_digits(word: str) -> bytes:
    """A word as it stands in folded lines."""
    return fold_bytes(word.encode(errors="replace"))


class Run:
    """Consecutive lines: `first` is the number of the first one, `data` their text.

    data: bytes of plain lines (split at line ends when needed), or texts that were changed.
    """

    __slots__ = ("_shapes", "_texts", "count", "data", "first")

    def __init__(self, first: int, data: bytes | tuple[str, ...]) -> None:
        self.first = first
        self.data = data
        if isinstance(data, bytes):
            self.count = data.count(b"\n") + (0 if data.endswith(b"\n") else 1)
        else:
            self.count = len(data)
        self._texts: list[str] | None = None
        self._shapes: bytes | None = None

    def __reduce__(self) -> tuple[type[Run], tuple[int, bytes | tuple[str, ...]]]:
        return Run, (self.first, self.data)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Run) and (self.first, self.data) == (other.first, other.data)

    __hash__ = None  # type: ignore[assignment]

    def texts(self) -> Sequence[str]:
        """Texts of the lines."""
        if not isinstance(self.data, bytes):
            return self.data
        texts = self._texts
        if texts is None:
            texts = self.data.decode("utf-8", errors="replace").split("\n")
            del texts[self.count :]
            self._texts = texts
            _splits.add(self)
        return texts

    def holds(self, words: Sequence[str]) -> bool:
        """Some line may hold one of the words; a cheap look before lines are read one by one.

        Of plain lines those that differ in digits alone are looked at once, so a word that holds digits
        may be seen in vain.
        """
        if isinstance(self.data, bytes):
            shapes = self._shapes
            if shapes is None:
                shapes = self._shapes = b"\n".join(fold_lines(self.data))
            return any(fold_digits(word) in shapes for word in words)
        return any(word in text for text in self.data for word in words)


class _Splits:
    """Runs that are split at the moment, oldest first."""

    def __init__(self) -> None:
        self._runs: deque[Run] = deque()
        self._held = 0

    def add(self, run: Run) -> None:
        self._runs.append(run)
        self._held += len(run.data)
        while self._held > SPLIT_BYTES and len(self._runs) > 1:
            oldest = self._runs.popleft()
            oldest._texts = None
            self._held -= len(oldest.data)


_splits = _Splits()


@dataclass(frozen=True, slots=True)
class KeptLines(Sequence[tuple[int, str]]):
    """(line number, text) of all kept lines, in order."""

    runs: tuple[Run, ...]
    ends: tuple[int, ...]

    @classmethod
    def of(cls, runs: Iterable[Run]) -> KeptLines:
        found = tuple(r for r in runs if r.count)
        return cls(found, tuple(accumulate(r.count for r in found)))

    def __len__(self) -> int:
        return self.ends[-1] if self.ends else 0

    @overload
    def __getitem__(self, index: int) -> tuple[int, str]: ...

    @overload
    def __getitem__(self, index: slice) -> list[tuple[int, str]]: ...

    def __getitem__(self, index: int | slice) -> tuple[int, str] | list[tuple[int, str]]:
        if isinstance(index, slice):
            start, stop, step = index.indices(len(self))
            if step == 1:
                return list(self._between(start, stop))
            return [self[i] for i in range(start, stop, step)]
        if index < 0:
            index += len(self)
        if not 0 <= index < len(self):
            raise IndexError(index)
        at = bisect_right(self.ends, index)
        run = self.runs[at]
        offset = index - (self.ends[at] - run.count)
        return run.first + offset, run.texts()[offset]

    def __iter__(self) -> Iterator[tuple[int, str]]:
        for run in self.runs:
            yield from enumerate(run.texts(), run.first)

    def holds(self, words: Sequence[str]) -> bool:
        """Some line may hold one of the words."""
        return any(run.holds(words) for run in self.runs)

    def _between(self, start: int, stop: int) -> Iterator[tuple[int, str]]:
        at = bisect_right(self.ends, start)
        while start < stop and at < len(self.runs):
            run = self.runs[at]
            before = self.ends[at] - run.count
            texts = run.texts()[start - before : stop - before]
            yield from enumerate(texts, run.first + start - before)
            start += len(texts)
            at += 1

    def position(self, number: int) -> int:
        """Index of line `number`, or of the last kept line before it; -1 where there is none."""
        low, high = 0, len(self.runs)
        while low < high:
            middle = (low + high) // 2
            if self.runs[middle].first <= number:
                low = middle + 1
            else:
                high = middle
        if low == 0:
            return -1
        run = self.runs[low - 1]
        return self.ends[low - 1] - run.count + min(number - run.first, run.count - 1)

    @property
    def bytes_total(self) -> int:
        """Bytes of text held, for budgets and receipts."""
        return sum(
            len(r.data) if isinstance(r.data, bytes) else sum(map(len, r.data)) for r in self.runs
        )


class NumberedLines(tuple[tuple[int, str], ...]):
    """Lines of one log that many finders are given; what is read of all of them is read once."""

    def once(self, read: Callable[[Sequence[tuple[int, str]]], T]) -> T:
        """What `read` makes of the lines."""
        known: dict[Callable[..., Any], Any] = self.__dict__.setdefault("read", {})
        if read not in known:
            known[read] = read(self)
        found: T = known[read]
        return found


def read_once(
    read: Callable[[Sequence[tuple[int, str]]], T], lines: Sequence[tuple[int, str]]
) -> T:
    """What `read` makes of the lines, kept by lines that keep it."""
    return lines.once(read) if isinstance(lines, NumberedLines) else read(lines)
