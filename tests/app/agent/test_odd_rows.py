"""Rows that say another number than their neighbours are found; counting up and ordinary spread are not odd."""

from __future__ import annotations

from firstfault.agent.odd_rows import find_odd_rows


def number(rows: list[str]) -> list[tuple[int, str]]:
    return list(enumerate(rows, 1))


def test_the_rank_with_another_value_is_found() -> None:
    rows = [f"{replay},{rank},n{rank // 8},1.902744,0.21386" for replay in (1, 2) for rank in range(32)]  # fmt: skip
    rows[21] = "1,21,n2,1.948812,0.29310"
    rows[53] = "2,21,n2,1.913377,0.25001"
    assert sorted(find_odd_rows(number(["replay,rank,host,loss,norm", *rows]))) == [23, 55]


def test_a_far_value_among_spread_ones() -> None:
    rows = [f"step {i} time {100 + (i * 7) % 5} ms loss {3 - i * 0.01:.3f}" for i in range(60)]
    rows[40] = "step 40 time 900 ms loss 2.600"
    assert find_odd_rows(number(rows)) == [41]


def test_counters_and_few_rows_are_not_odd() -> None:
    assert find_odd_rows(number([f"step {i} of 100" for i in range(50)])) == []
    assert find_odd_rows(number(["a 1", "a 1", "a 9"])) == []
