"""Which rank has another value than the rest?"""

from __future__ import annotations

from tests.rows import each_row

from firstfault_tools.causality.odd_ranks.odd_one import (
    OddOne,
    find_odd_one,
    find_unlike_zero,
)
from firstfault_tools.log.place import name_ranks


def pair(a: int, count_a: int, b: int, count_b: int) -> dict[str, str]:
    return {"rank_a": str(a), "count_a": str(count_a), "rank_b": str(b), "count_b": str(count_b)}


@each_row(
    ("rows", "odd"),
    [
        ([pair(3, 416, 5, 412), pair(0, 416, 5, 412), pair(5, 412, 0, 416)], OddOne((5,), "412", "416")),
        ([pair(0, 416, 5, 412)], OddOne((5,), "412", "416")),  # ranks 1 to 4 agree with rank 0
        ([pair(0, 416, 1, 412)], None),  # two values, one rank each
        ([pair(0, 10, 2, 12), pair(2, 12, 0, 10), pair(3, 12, 0, 10)], None),
    ],
)  # fmt: skip
def test_minority_of_pairs(rows: list[dict[str, str]], odd: OddOne | None) -> None:
    assert find_odd_one(rows) == odd


@each_row(
    ("reporters", "world", "ranks"),
    [([1, 2, 3], 4, (0,)), ([2], 4, (2,)), ([1, 2], 4, None), ([1], 2, None), ([3], None, None)],
)
def test_unlike_process_zero(
    reporters: list[int], world: int | None, ranks: tuple[int, ...] | None
) -> None:
    found = find_unlike_zero(reporters, world)
    assert (found.ranks if found else None) == ranks


@each_row(
    ("ranks", "words"),
    [([5], "rank 5"), ([16, 17, 18], "ranks 16-18"), ([0, 1, 3], "ranks 0, 1, 3"), ([], "")],
)
def test_names_of_ranks(ranks: list[int], words: str) -> None:
    assert name_ranks(ranks) == words
