"""Straggler reports: the ranks below the threshold, the node they share, nobody where all are well."""

from __future__ import annotations

from firstfault_tools.metrics.pace.straggler_report import find_in_lines


def number(text: str) -> list[tuple[int, str]]:
    return list(enumerate(text.split("\n"), start=1))


WELL = """GPU relative performance:
 Worst performing 3/64 ranks:
  Rank=12 Node=n02 Score=0.95
  Rank=40 Node=n05 Score=0.96"""
WARNING = "04:10:00 STRAGGLER DETECTION WARNING: Some GPUs have worse relative performance. Affected ranks: "


def test_worst_of_healthy_ranks_is_nobody() -> None:
    assert find_in_lines(number(WELL), "a.log") == ()


def test_ranks_of_one_node() -> None:
    named = ", ".join(f"StragglerId(rank={r}, node='n04')" for r in range(32, 40))
    (found,) = find_in_lines(
        number(WELL + "\n  Rank=33 Node=n04 Score=0.58\n" + WARNING + "{" + named + "}"), "a.log"
    )
    assert (found.host, found.rank) == ("n04", None)
    assert "ranks 32-39, all on node n04, are stragglers" in found.title
    assert "0.58" in found.title


def test_one_rank_is_named() -> None:
    (found,) = find_in_lines(number(WARNING + "[13]"), "a.log")
    assert found.rank == 13
    assert found.host is None
    assert "since 04:10:00" in found.title
