"""Megatron's timers of every rank: an unbalanced stage, one straggler, equal stages."""

from __future__ import annotations

from tests.rows import each_row

from firstfault_tools.metrics.pace.listed_timers import find_in_lines

WORLD = 8


def write(extra: dict[int, float], reports: int = 3) -> list[tuple[int, str]]:
    rows: list[str] = []
    for _ in range(reports):
        rows.append("times across ranks (ms):")
        for timer, base in (("forward-compute", 600.0), ("backward-compute", 1300.0)):
            rows.append(f"    {timer}:")
            rows += [f"      rank {r:2d}: {base * extra.get(r, 1.0) + r:.2f}" for r in range(WORLD)]
        rows.append(" [2025-12-05 12:04:36] iteration 100/ 500 | lm loss: 2.848513E+00 |")
    return list(enumerate(rows, 1))


@each_row(
    ("extra", "kind", "rank", "said"),
    [
        ({6: 2.6, 7: 2.6}, "metrics.slow_stage", None, "the last of 4 blocks of 2 ranks"),
        ({0: 1.4, 1: 1.4}, "metrics.slow_stage", None, "the first of 4 blocks of 2 ranks"),
        ({5: 1.5}, "metrics.rank_straggler", 5, "Rank 5 computes"),
        ({}, None, None, ""),
        ({1: 1.5, 6: 1.5}, None, None, ""),
        (dict.fromkeys(range(2, 8), 1.5), None, None, ""),
    ],
    ids=["last stage", "first stage", "one rank", "equal", "scattered", "most"],
)
def test_who_computes_longer(
    extra: dict[int, float], kind: str | None, rank: int | None, said: str
) -> None:
    found = find_in_lines(write(extra), "log")
    assert [f.kind for f in found] == ([kind] if kind else [])
    for finding in found:
        assert finding.rank == rank
        assert said in finding.title


def test_one_report_is_not_enough() -> None:
    assert find_in_lines(write({7: 2.0}, reports=1), "log") == ()
