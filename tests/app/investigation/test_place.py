"""A verdict never names another rank than the line it cites, and says where it struck in one way."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firstfault.investigation.place import choose_rank
from firstfault.workspace import Workspace
from firstfault_tools.findings import Evidence, Finding, Level
from firstfault_tools.log.place import Place

FAULT = "OSError: [Errno 116] Stale file handle: '/mnt/nfs/shard-00918.tar'"
STEP = "INFO step 120 loss 2.1 world_size=16"
TIMEOUT = (
    "[E301 02:05:00.100 ProcessGroupNCCL.cpp:616] [Rank {rank}] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=451, OpType=ALLREDUCE, NumelIn=1048576, NumelOut=1048576, Timeout(ms)=600000) ran for 600021 "
    "milliseconds before timing out."
)
FORMS = {
    "torchrun --tee": "{host}: [default{local}]:[rank{rank}]: ",
    "torchrun --tee behind srun": "{node}: {host} [default{local}]:[rank{rank}]:",
    "mpirun of one launcher a node": "[1,{node}]<stdout>:{host}: [rank{rank}]: ",
    "mpirun": "[1,{rank}]<stdout>:{host}: ",
    "srun --label": "{rank}: {host}: ",
    "kubectl of a pod a node": "[pod/llm-worker-{node}/pytorch] [rank{rank}]: ",
    "Ray": "(RayTrainWorker pid=4{rank}, ip=10.0.0.{node}) [rank{rank}]: ",
    "host and local rank": "[{host}:{local}]: [rank{rank}]: ",
}


@pytest.fixture(scope="module")
def workspace() -> Workspace:
    return Workspace()


def write_job(folder: Path, form: str, faulty: int, *, fault: bool = True, size: int = 16) -> Path:
    """Log of two nodes of eight: all make a step, one fails or falls silent, the others time out."""

    def say(rank: int, text: str) -> str:
        node, local = divmod(rank, 8)
        return form.format(rank=rank, node=node, local=local, host=f"gpu-a{16 + node}") + text

    rows = [
        say(rank, f"2026-03-01 01:55:00 {STEP}") for rank in range(size) if fault or rank != faulty
    ]
    rows += [say(faulty, f"2026-03-01 01:55:02 ERROR {FAULT}")] if fault else []
    rows += [say(rank, TIMEOUT.format(rank=rank)) for rank in range(size) if rank != faulty]
    path = folder / "train.log"
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return path


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("rank", [3, 11])
def test_the_rank_that_failed(name: str, rank: int, workspace: Workspace, tmp_path: Path) -> None:
    found = workspace.diagnose_paths([write_job(tmp_path, FORMS[name], rank)])
    assert found.first_failing_rank == rank
    assert f"15 of 16 ranks timed out; rank {rank} never did" in found.explanation
    assert found.input.ranks_seen == tuple(range(16))


@pytest.mark.parametrize("rank", [0, 3, 11])
def test_the_rank_that_fell_silent(rank: int, workspace: Workspace, tmp_path: Path) -> None:
    path = write_job(tmp_path, FORMS["torchrun --tee"], rank, fault=False)
    found = workspace.diagnose_paths([path])
    assert found.first_failing_rank == rank
    assert found.confidence == "likely"
    assert found.place == f"rank {rank} (local {rank % 8}, gpu-a{16 + rank // 8})"


def test_the_place_in_words(workspace: Workspace, tmp_path: Path) -> None:
    found = workspace.diagnose_paths([write_job(tmp_path, FORMS["torchrun --tee"], 11)])
    assert found.place == "rank 11 (local 3, gpu-a17)"


@pytest.mark.parametrize(
    ("log", "words"),
    [
        (f"[default3]:2026-03-01 02:05:00 ERROR {FAULT}\n", "local rank 3"),
        (f"gpu-a17 [default3]:2026-03-01 02:05:00 ERROR {FAULT}\n", "local rank 3 (gpu-a17)"),
        (f"[1,0]<stdout>:[rank3]: {STEP}\n[1,1]<stdout>:[rank11]: {STEP}\n[1,1]<stdout>:2026-03-01 02:05:00 ERROR {FAULT}\n", ""),
        (f"[1,0]<stdout>:{STEP}\n[1,1]<stdout>:{STEP}\n[1,1]<stdout>:2026-03-01 02:05:00 ERROR {FAULT}\n", "rank 1"),
        (f"[GPU3] 2026-03-01 02:05:00 ERROR {FAULT}\n", ""),
        (f"torchrun --nproc_per_node=8 a.py\n[default3]:2026-03-01 02:05:00 ERROR {FAULT}\n", "rank 3"),
        (f"torchrun --nnodes=2 --nproc_per_node=8 a.py\n[default3]:2026-03-01 02:05:00 ERROR {FAULT}\n", "local rank 3"),
    ],
)  # fmt: skip
def test_what_is_not_known_is_not_said(
    log: str, words: str, workspace: Workspace, tmp_path: Path
) -> None:
    path = tmp_path / "train.log"
    path.write_text(log, encoding="utf-8")
    found = workspace.diagnose_paths([path])
    assert found.place == words


def test_candidates_are_named_with_their_reason(workspace: Workspace, tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    launch = "torchrun --nnodes=2 --nproc_per_node=8 a.py\n"
    path.write_text(f"{launch}[default3]:2026-03-01 02:05:00 ERROR {FAULT}\n", encoding="utf-8")
    found = workspace.diagnose_paths([path])
    (localize,) = (p for p in found.phases if p.name == "localize")
    assert "local rank 3, which is rank 3 or 11" in localize.summary


def finding(kind: str, rank: int | None, text: str, told: str = "") -> Finding:
    return Finding(kind, "title", Level.CAUSE, evidence=(Evidence("a.log", 1, text),), rank=rank, facts={"rank": told})  # fmt: skip


@given(
    rank=st.integers(0, 4095),
    own=st.integers(0, 4095),
    kind=st.sampled_from(["signature.x", "traceback.y"]),
)
def test_a_line_that_a_rank_wrote_is_that_ranks(rank: int, own: int, kind: str) -> None:
    assert choose_rank(finding(kind, rank, "boom"), Place(rank=own)) == own


@given(rank=st.integers(0, 4095), own=st.integers(0, 4095))
def test_a_line_may_report_on_another_rank(rank: int, own: int) -> None:
    cited = Place(rank=own)
    assert choose_rank(finding("ranks.odd", rank, "boom"), cited) == rank
    assert choose_rank(finding("signature.x", rank, f"Rank {rank} failed to pass"), cited) == rank
    assert choose_rank(finding("signature.x", rank, "__5_0.distcp", told=str(rank)), cited) == rank
    assert choose_rank(finding("signature.x", None, "boom"), cited) is None


PORT = """[Wed Mar 11 04:13:32 2026] mlx5_core 0000:a1:00.0: Port module event[error]: module 0, Cable error, Bus stuck
[Wed Mar 11 04:13:32 2026] mlx5_core 0000:a1:00.0 ibs4f0: Link down
"""
BROKEN = (
    "{rank}: {host}:21{rank}:31{rank} [{gpu}] transport/net_ib.cc:2189 NCCL WARN NET/IB: Got completion from peer "
    "10.0.0.{peer}<5304> with status=12 opcode=0 len=0 vendor err 129 (Send) hca mlx5_2"
)


@pytest.mark.parametrize(
    ("ranks", "struck"), [((2, 6, 10), 6), ((5, 6, 10), None), ((2, 10), None)]
)
def test_the_rank_behind_a_port(
    ranks: tuple[int, ...], struck: int | None, workspace: Workspace, tmp_path: Path
) -> None:
    lines = [f"{n}: [rank{n}]: world_size=12" for n in range(12)]
    lines += [BROKEN.format(rank=n, host=f"gx-{1 + n // 4}", gpu=n % 4, peer=n) for n in ranks]
    log, kernel = tmp_path / "train.log", tmp_path / "dmesg_gx-2.txt"
    log.write_text("\n".join(lines) + "\n", encoding="utf-8")
    kernel.write_text(PORT, encoding="utf-8")
    found = workspace.diagnose_paths([log, kernel])
    assert (found.signature, found.host) == ("rdma-port-down", "gx-2")
    assert found.first_failing_rank == struck


@pytest.mark.parametrize(
    ("before", "host"),
    [
        ("[gb-18] $ dmesg | grep NVRM", "gb-18"),
        ("$ ssh gb-18 dmesg", "gb-18"),
        ("mk@gb-18 ~ % dmesg -T | tail", "gb-18"),
        ("[gb-18] $ torchrun --nproc-per-node 4 train.py", None),
        ("$ cat notes.txt", None),
    ],
)
def test_a_host_is_that_of_the_command_that_printed_the_line(
    before: str, host: str | None, workspace: Workspace, tmp_path: Path
) -> None:
    xid = "[372904.1] NVRM: Xid (PCI:0018:01:00): 154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)"
    log = tmp_path / "log.txt"
    log.write_text(f"{before}\n{xid}\n", encoding="utf-8")
    assert workspace.diagnose_paths([log]).host == host
