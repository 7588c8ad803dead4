"""Which ranks speak in a log? Counts of the labels that launchers put in front of lines.

Large logs are counted by samples: every rank speaks thousands of times there, or its matching lines
name it anyway.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from firstfault_tools.expressions import expression
from firstfault_tools.log.digest import RankTrace

WHOLE_BYTES = 16 * 1024
ALONE_BYTES, SAMPLE_BYTES = 512, 4 * 1024
"""Sample of a block where one rank was seen so far, and where several were."""

_FORMS = {
    b"[rank": expression(rb"\[rank[ :=]{0,2}(\d{1,6})\]"),
    b"[default": expression(rb"\[default(\d{1,6})\]"),
    b"Rank ": expression(rb"Rank (\d{1,6})\]"),
    b"]<std": expression(rb"\[\d+,(\d+)\]<std"),
}
"""Labels by a word that each form holds: one form alone is found several times faster than any of them."""

_LABEL = expression(rb"\[(?:rank[ :=]{0,2}|default)(\d{1,6})\]|Rank (\d{1,6})\]|\[\d+,(\d+)\]<std")
_NAME = expression(
    r"(?i)(?:^|[^a-z])(?:global_)?rank[-_.=]?(\d{1,6})(?!\d)|(?:^|[/_.-])(?:worker(?:log)?|proc|task)[-_.]?(\d{1,6})(?=[./_-]|$)"
)


def rank_of_name(name: str) -> int | None:
    """Rank that a file name tells, or None."""
    match = _NAME.search(name)
    return int(next(g for g in match.groups() if g is not None)) if match else None


def read_label(raw: bytes) -> int | None:
    """Rank of the label near the start of a raw line, or None."""
    match = _LABEL.search(raw, 0, 200)
    return int(match[match.lastindex or 1]) if match else None


def _find_labels(block: bytes, end: int) -> dict[int, list[int]]:
    """Places of the first and the last label of each rank before `end`, and their number."""
    forms = [word for word in _FORMS if block.find(word, 0, end) >= 0]
    if not forms:
        return {}
    label = _FORMS[forms[0]] if len(forms) == 1 else _LABEL
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


@dataclass(slots=True)
class Census:
    """Ranks seen so far in one log: first line, last line, lines counted."""

    complete: bool
    seen: dict[int, list[int]] = field(default_factory=dict)
    counted: int = 0

    def count(self, block: bytes, number: int, lines: int) -> None:
        """Count the labels of a block of `lines` lines whose first is `number` + 1."""
        if self.complete:
            end = len(block)
        else:
            sample = SAMPLE_BYTES if len(self.seen) > 1 else ALONE_BYTES
            end = min(len(block), max(WHOLE_BYTES - self.counted, sample))
        self._count(block, end, number, lines)
        self.counted += end

    def _count(self, block: bytes, end: int, number: int, lines: int) -> None:
        found = _find_labels(block, end)
        for rank, (first, last, count) in found.items():
            if last * 2 < len(block):
                last_line = number + block.count(b"\n", 0, last) + 1
            else:  # counted from the nearer end
                last_line = number + lines - block.count(b"\n", last, len(block) - 1)
            known = self.seen.get(rank)
            if known is None:
                first_line = number + block.count(b"\n", 0, first) + 1
                self.seen[rank] = [first_line, last_line, count]
            else:
                known[1] = last_line
                known[2] += count

    def traces(self) -> dict[int, RankTrace]:
        """What was seen, by rank."""
        return {rank: RankTrace(rank, *values) for rank, values in sorted(self.seen.items())}
