"""Which rank has another value than the rest? Read from messages that each compare two ranks.

DDP compares what every rank has and says so on each of them: the reporter's value, and the first rank
(counted from 0) whose value differs from it. Who reports is no sign: the odd one is the rank whose
value is in the minority.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from firstfault_tools.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class OddOne:
    """Ranks that differ from the majority, their value, and that of the others."""

    ranks: tuple[int, ...]
    value: str
    others: str


def find_odd_one(captures: Sequence[Mapping[str, str]]) -> OddOne | None:
    """The minority among pairs of captures `rank_a`, `count_a`, `rank_b`, `count_b`; None if undecided.

    rank_b is the first rank that differs from rank_a, so all ranks below it have the value of rank_a.
    """
    values: dict[int, str] = {}
    for row in captures:
        if not all(row.get(name) for name in ("rank_a", "count_a", "rank_b", "count_b")):
            continue
        first, second = int(row["rank_a"]), int(row["rank_b"])
        values[first] = row["count_a"]
        values[second] = row["count_b"]
        for rank in range(min(second, 4096)):
            values.setdefault(rank, row["count_a"])
    return pick_minority(values)


def find_unlike_zero(reporters: Sequence[int], world: int | None) -> OddOne | None:
    """The odd rank where each reporter only says that it differs from process 0."""
    ranks = sorted(set(reporters))
    if not ranks or world is None or world < 3 or 0 in ranks:
        return None
    if len(ranks) >= world - 1:
        return OddOne((0,), "", "")
    return OddOne(tuple(ranks), "", "") if len(ranks) * 2 < world else None


def pick_minority(values: Mapping[int, str]) -> OddOne | None:
    """Ranks outside the most common value, where that value is held by more than half."""
    if len(values) < 3:
        return None
    (common, count), *_ = Counter(values.values()).most_common(1)
    if count * 2 <= len(values):
        return None
    by_value: dict[str, list[int]] = defaultdict(list)
    for rank, value in values.items():
        if value != common:
            by_value[value].append(rank)
    if not by_value:
        return None
    value = next(iter(by_value))
    ranks = tuple(sorted(rank for ranks in by_value.values() for rank in ranks))
    return OddOne(ranks, value if len(by_value) == 1 else "other values", common)
