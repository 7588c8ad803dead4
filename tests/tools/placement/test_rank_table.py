"""Ranks and hosts in lines, and tables by rank, as people paste them."""

from __future__ import annotations

from tests.rows import each_row

from firstfault_tools.placement.rank_table import (
    RANK,
    RankRow,
    find_host,
    is_ruled,
    read_heading,
)


@each_row(
    ("text", "rank", "host"),
    [
        ("rank 13 gx-22 gpu 5: compute 1655.8", 13, "gx-22"),
        ("[rank3] fwd_bwd_ms=120 comm_ms=40", 3, None),
        ("global_rank=7 host=node-2 compute 4", 7, "node-2"),
        ("rank 5 step time 0.7", 5, None),
        ("rank: 2 on node-7, data 0.1", 2, "node-7"),
        ("rank 4 bf16 compute 3", 4, None),
    ],
)
def test_a_line_names_its_rank_and_host(text: str, rank: int, host: str | None) -> None:
    named = RANK.search(text)
    assert named is not None
    assert int(named["rank"]) == rank
    assert find_host(text, named) == host


def test_a_number_with_a_point_is_no_rank() -> None:
    assert RANK.search("mean rank 1.5 of the matrix") is None


@each_row(
    ("heading", "row", "expected"),
    [
        ("rank | host | compute (ms) | wait", "| 3 | n1 | 1,655.8 | 2 |", RankRow(3, "n1", (3.0, None, 1655.8, 2.0))),
        ("rank,host,step_time_ms", "7,gx-1,715", RankRow(7, "gx-1", (7.0, None, 715.0))),
        ("Global_Rank data comm", "x 2 0.5 n/a", RankRow(2, None, (2.0, 0.5, None))),
        ("rank compute wait", "a line of text", None),
        ("rank compute wait", "-1 3 4", None),
    ],
)  # fmt: skip
def test_a_table_gives_its_rows(heading: str, row: str, expected: RankRow | None) -> None:
    table = read_heading(heading)
    assert table is not None
    assert table.read_row(row) == expected


@each_row(
    "text", ["rank 3 compute 5.0 wait 2", "the rank is late", "rank,rank,wait", "loss | step"]
)
def test_other_lines_are_no_heading(text: str) -> None:
    table = read_heading(text)
    assert table is None or not table.columns(lambda name: "wait" in name)


def test_rules_are_no_rows() -> None:
    assert all(map(is_ruled, ("", "---+---", "| --- | :--: |", "=====")))
    assert not is_ruled("a")
