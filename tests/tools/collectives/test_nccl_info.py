from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firstfault_tools.collectives.nccl_info import analyse_nccl_info
from firstfault_tools.findings import Finding, Level

LAB = Path(__file__).parents[4] / "shared/cases/lab/healthy/log.txt"
ID = "commId 0x256114dc39aa0004"


def rank_lines(
    rank: int, host: str, *, size: int = 4, stop: str = "", network: str = "IB"
) -> list[str]:
    at = f"{host}:{100 + rank}:{200 + rank} [{rank % 2}] NCCL INFO"
    comm = (
        f"ncclCommInitRankConfig comm 0x3cde6110 rank {rank} nranks {size} cudaDev 0 busId 60 {ID}"
    )
    lines = [
        ("version", f"{at} NCCL version 2.28.9+cuda13.0"),
        ("interface", f"{at} Bootstrap: Using eth0:192.0.2.{rank}<0>"),
        ("network", f"{at} Using network {network}"),
        ("start", f"{at} {comm} - Init START"),
        ("bootstrap", f"{at} Bootstrap timings total 0.007721 (create 0.000041)"),
        ("nodes", f"{at} comm 0x3cde6110 rank {rank} nRanks {size} nNodes 2 localRanks 2"),
        ("channel", f"{at} Channel 00/0 : {rank}[0] -> 0[0] [send] via NET/{network}/0"),
        ("complete", f"{at} {comm} - Init COMPLETE"),
    ]
    kept = []
    for name, line in lines:
        if name == stop:
            break
        kept.append(line)
    return kept


def analyse(lines: list[str]) -> dict[str, Finding]:
    return {f.kind: f for f in analyse_nccl_info(enumerate(lines, 1), "log.txt")}


def job(**stops: str) -> list[str]:
    lines = []
    for rank in range(4):
        lines += rank_lines(rank, f"node{rank // 2}", stop=stops.get(f"r{rank}", ""))
    return lines


def test_complete_job_has_context_only() -> None:
    found = analyse(job())
    assert {f.level for f in found.values()} == {Level.CONTEXT}
    overview = found["nccl.overview"]
    assert "4 of 4 processes" in overview.title
    assert overview.facts["channels"] == {"NET/IB": 4}
    assert overview.facts["ranks_to_host"] == {
        "0": "node0",
        "1": "node0",
        "2": "node1",
        "3": "node1",
    }


def test_rank_that_never_began_is_named() -> None:
    finding = analyse(job(r0="complete", r1="complete", r2="complete", r3="start"))[
        "nccl.init_stopped"
    ]
    assert (finding.rank, finding.level) == (3, Level.FAILURE)
    assert finding.evidence[0].text.endswith("Init START")


def test_slowest_stage_is_named_when_all_began() -> None:
    finding = analyse(job(r0="complete", r1="complete", r2="bootstrap", r3="complete"))[
        "nccl.init_stopped"
    ]
    assert "bootstrap" in finding.title
    assert finding.rank == 2


def test_one_completed_rank_means_all_met() -> None:
    assert "nccl.init_stopped" not in analyse(job(r1="complete", r2="complete", r3="complete"))


def test_versions_that_differ() -> None:
    lines = [line.replace("2.28.9", "2.27.3") if "node1" in line else line for line in job()]
    finding = analyse(lines)["nccl.versions_differ"]
    assert "2.27.3+cuda13.0 on node1" in finding.title


def test_setting_on_one_host_only_is_a_cause_beside_a_size_mismatch() -> None:
    lines = [*job(), "node1:102:202 [0] NCCL INFO NCCL_PROTO set by environment to Simple"]
    assert analyse(lines)["nccl.environment_differs"].level is Level.CONTEXT
    lines.append(
        "node0:100:300 [0] transport/net_ib.cc:1038 NCCL WARN NET/IB : req 0/1 tag 0 peer "
        "10.0.0.6<50417> collective mismatch error, local size 262144 remote size 65536"
    )
    finding = analyse(lines)["nccl.environment_differs"]
    assert finding.level is Level.CAUSE
    assert "NCCL_PROTO is Simple on node1, not set on node0" in finding.title
    assert [e.line for e in finding.evidence] == [33, 34]


def test_setting_alike_everywhere_is_silent() -> None:
    lines = job()
    for rank, host in ((0, "node0"), (2, "node1")):
        lines.append(
            f"{host}:{100 + rank}:1 [0] NCCL INFO NCCL_BUFFSIZE set by environment to 8388608."
        )
    assert "nccl.environment_differs" not in analyse(lines)


def test_socket_on_one_host_of_two() -> None:
    lines = [*rank_lines(0, "node0", size=2), *rank_lines(1, "node1", size=2, network="Socket")]
    finding = analyse(lines)["nccl.socket_fallback"]
    assert (finding.host, finding.level) == ("node1", Level.FAILURE)


@pytest.mark.skipif(not LAB.is_file(), reason="the shared lab cases are not here")
def test_real_healthy_log_has_context_only() -> None:
    found = analyse(LAB.read_text().splitlines())
    assert {f.level for f in found.values()} == {Level.CONTEXT}
    assert found["nccl.overview"].facts["networks"] == ["Socket"]


@settings(deadline=None, max_examples=200)
@given(
    lines=st.lists(st.text(max_size=60) | st.sampled_from(job()), max_size=30),
    cut=st.integers(0, 90),
)
def test_any_text_is_survived(lines: list[str], cut: int) -> None:
    analyse([line[:cut] if index % 3 == 0 else line for index, line in enumerate(lines)])
