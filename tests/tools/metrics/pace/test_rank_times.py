"""Times by rank: the straggler, the slow links, the healthy table, and what only looks like one."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.rows import each_row

from firstfault_tools.findings import Confidence, Finding, Level
from firstfault_tools.metrics.pace.rank_times import find_in_lines

THERMAL = """\
rank 12 gx-22 gpu 4: compute 1204.1 allreduce wait 455.0
rank 13 gx-22 gpu 5: compute 1655.8 allreduce wait 3.1
rank 14 gx-22 gpu 6: compute 1203.0 allreduce wait 456.4
rank 15 gx-22 gpu 7: compute 1202.2 allreduce wait 457.0
"""
KEYED = """\
[rank0]: node=n1 fwd_bwd_ms=120.0 comm_ms=40.0 loss 2.1
[rank1]: node=n1 fwd_bwd_ms=121.0 comm_ms=41.0 loss 2.1
[rank2]: node=n2 fwd_bwd_ms=160.5 comm_ms=2.0 loss 2.1
[rank3]: node=n2 fwd_bwd_ms=120.2 comm_ms=40.0 loss 2.1
"""
LINKS = """\
# mean of 20 steps
rank  node     compute_ms  allreduce_ms  total_ms
0     node-00  4102        2905          7007
8     node-01  4098        2897          6995
72    node-09  4101        7096          11197
200   node-25  4099        7104          11203
"""
PIPED = """\
| rank | host | gpu | forward_ms | backward_ms | nccl_ms |
|------|------|-----|------------|-------------|---------|
| 0 | a1 | 0 | 10 | 20 | 9.0 |
| 1 | a1 | 1 | 10 | 21 | 8.9 |
| 2 | a1 | 2 | 14 | 28 | 0.3 |
| 3 | a1 | 3 | 10 | 20 | 9.1 |
"""
HEALTHY = """\
rank,compute,comm
0,100.1,20.0
1,101.0,21.0
2,100.3,20.4
3,99.0,20.9
"""


def find(text: str) -> tuple[Finding, ...]:
    return find_in_lines(list(enumerate(text.split("\n"), start=1)), "t.log")


@each_row(
    ("text", "rank", "host", "gpu", "line"),
    [
        (THERMAL, 13, "gx-22", "GPU 5", 2),
        (KEYED, 2, "n2", None, 3),
        (PIPED, 2, "a1", "GPU 2", 5),
    ],
)
def test_the_straggler_is_named(
    text: str, rank: int, host: str, gpu: str | None, line: int
) -> None:
    (found,) = find(text)
    assert found.kind == "metrics.rank_straggler"
    assert (found.rank, found.host, found.gpu) == (rank, host, gpu)
    assert (found.confidence, found.level) == (Confidence.CONFIRMED, Level.FAILURE)
    assert found.evidence[0].line == line


def test_slow_links_name_the_group_and_no_rank() -> None:
    (found,) = find(LINKS)
    assert found.kind == "metrics.slow_links"
    assert found.rank is None
    assert found.facts["slow_ranks"] == [72, 200]
    assert found.facts["hosts"] == ["node-09", "node-25"]
    assert "compute alike" in found.title


def test_the_median_of_several_prints_counts() -> None:
    lines = [
        f"rank {r}: compute {200 if (r, s) == (1, 3) else 100 + r} ms, all-reduce {30 + r} ms"
        for s in range(5)
        for r in range(8)
    ]
    assert find("\n".join(lines)) == ()


def test_a_whole_slow_host_is_named_as_host() -> None:
    lines = [
        f"rank {r} host=h{r // 2} compute {150 if r // 2 == 3 else 100} wait {2 if r // 2 == 3 else 50}"
        for r in range(16)
    ]
    (found,) = find("\n".join(lines))
    assert (found.host, found.rank, found.facts["ranks"]) == ("h3", None, [6, 7])


@each_row(
    "text",
    [
        HEALTHY,
        "rank 0: compute 100 allreduce 20\nrank 1: compute 180 allreduce 2",
        "Rank 3 waited 1800000 ms for all-reduce on compute node 7",
        "[rank2]: forward pass of sync batch norm failed",
    ],
)
def test_nothing_to_report(text: str) -> None:
    assert find(text) == ()


@settings(max_examples=80, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.text(max_size=60),
            st.builds(
                lambda r, c, w: f"rank {r} gpu {r}: compute {c} allreduce wait {w}",
                st.integers(-5, 10**9),
                st.floats(),
                st.integers(0, 10**20),
            ),
            st.just("rank compute comm"),
            st.builds(lambda a, b, c: f"{a} {b} {c}", st.integers(), st.floats(), st.text()),
        ),
        max_size=12,
    )
)
def test_damage_raises_nothing(lines: list[str]) -> None:
    find("\n".join(lines))
