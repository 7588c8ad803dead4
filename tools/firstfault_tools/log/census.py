"""Which ranks speak in a log? Counts of the labels that launchers put in front of lines.

Large logs are counted by samples: every rank speaks thousands of times there, or its matching lines
name it anyway. A launcher's label counts where no rank of the job stands beside it.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import field
from itertools import accumulate

from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.log.digest import RankTrace

WHOLE_BYTES = 16 * 1024
ALONE_BYTES, SAMPLE_BYTES = 512, 4 * 1024
"""Sample of a block where one rank was seen so far, and where several were."""

_FORMS = {
    b"[rank": expression(rb"\[rank[ :=]{0,2}(\d{1,6})\]"),
    b"Rank ": expression(rb"Rank (\d{1,6})\]"),
}
"""Labels by a word that each form holds: one form alone is found several times faster than any of them."""

_LABEL = expression(rb"\[rank[ :=]{0,2}(\d{1,6})\]|Rank (\d{1,6})\]")
_MPI = {
    b"]<std": expression(
        rb"\[(?:[\w.-]{1,80}@)?\d{1,10},(?:mpirank:)?(\d{1,6})(?:,[\w-]{1,40})?\]<std"
    )
}
_LOCAL = {b"[default": expression(rb"\[default(\d{1,6})\](?!:? ?\[rank)")}
_ANY = expression(rb"\[rank[ :=]{0,2}(\d{1,6})\]|Rank (\d{1,6})\]|\[\d{1,10},(\d{1,6})\]<std")


def read_label(raw: bytes) -> int | None:
    """Rank of the label near the start of a raw line, or None."""
    match = _ANY.search(raw, 0, 200)
    return int(match[match.lastindex or 1]) if match else None


def _find_labels(
    block: bytes, end: int, known: dict[bytes, re.Pattern[bytes]]
) -> dict[int, list[int]]:
    """Places of the first and the last label of each rank before `end`, and their number."""
    forms = [word for word in known if block.find(word, 0, end) >= 0]
    if not forms:
        return {}
    label = known[forms[0]] if len(forms) == 1 else _LABEL
    first = label.search(block, 0, end)
    if first is None:
        return {}
    if len(forms) == 1:
        count = block.count(first[0], 0, end)
        if count == block.count(forms[0], 0, end):  # one rank speaks
            return {int(first[1]): [first.start(), block.rfind(first[0], 0, end), count]}
    found: dict[int, list[int]] = {}
    for match in label.finditer(block, 0, end):
        rank = int(match[match.lastindex or 1])
        trace = found.get(rank)
        if trace is None:
            found[rank] = [match.start(), match.start(), 1]
        else:
            trace[1] = match.start()
            trace[2] += 1
    return found


FEW_RANKS = 32
"""Ranks in one block up to which their lines are counted one by one."""


@dataclass(slots=True)
class Census:
    """Ranks seen so far in one log: first line, last line, lines counted."""

    complete: bool
    seen: dict[int, list[int]] = field(default_factory=dict)
    locals: dict[int, list[int]] = field(default_factory=dict)
    counted: int = 0

    def count(self, block: bytes, number: int, lines: int) -> None:
        """Count the labels of a block of `lines` lines whose first is `number` + 1."""
        if self.complete:
            end = len(block)
        else:
            sample = SAMPLE_BYTES if len(self.seen) > 1 else ALONE_BYTES
            end = min(len(block), max(WHOLE_BYTES - self.counted, sample))
        ranks = _find_labels(block, end, _FORMS)
        tasks = _find_labels(block, end, _MPI)
        if set(ranks) <= set(
            tasks
        ):  # mpirun's numbers are ranks where nothing else is printed for one
            ranks = tasks
        _note(self.seen, ranks, block, number, lines)
        _note(self.locals, _find_labels(block, end, _LOCAL), block, number, lines)
        self.counted += end

    def traces(self) -> dict[int, RankTrace]:
        """What was seen, by rank."""
        return _traces(self.seen)

    def local_traces(self) -> dict[int, RankTrace]:
        """What was seen of local ranks with no rank beside them."""
        return _traces(self.locals)


def _note(
    seen: dict[int, list[int]],
    found: dict[int, list[int]],
    block: bytes,
    number: int,
    lines: int,
) -> None:
    line_of = _number_lines(block, number, lines, len(found) > FEW_RANKS)
    for rank, (first, last, count) in found.items():
        known = seen.get(rank)
        if known is None:
            known = seen[rank] = [line_of(first), 0, 0]
        known[1] = line_of(last)
        known[2] += count


def _number_lines(block: bytes, number: int, lines: int, many: bool) -> Callable[[int], int]:
    """Line number of an offset: one pass over the block's lines where many are asked for, else counted each."""
    if many:
        ends = list(accumulate(len(line) + 1 for line in block.split(b"\n")))
        return lambda offset: number + bisect_right(ends, offset) + 1

    def count_lines(offset: int) -> int:
        if offset * 2 < len(block):
            return number + block.count(b"\n", 0, offset) + 1
        return number + lines - block.count(b"\n", offset, len(block) - 1)  # from the nearer end

    return count_lines


def _traces(seen: dict[int, list[int]]) -> dict[int, RankTrace]:
    return {rank: RankTrace(rank, *values) for rank, values in sorted(seen.items())}
