"""Why a kernel touched a wrong address, which ranks sit on an address, and small elastic quorums."""

from __future__ import annotations

from pathlib import Path

import pytest

from firstfault_tools.causality.incident import LogIncident
from firstfault_tools.causality.launch.meeting import find_in_incident
from firstfault_tools.causality.wrong_address import explain_access
from firstfault_tools.finding_roles import FindingRole
from firstfault_tools.findings import Category, Evidence, Finding, Level
from firstfault_tools.log.place import Place
from firstfault_tools.log.scan import build_set, scan_file

SOURCE = """    dist.init_process_group("nccl")
    dev = torch.device(f"cuda:{local_rank}")
"""
ERROR = "RuntimeError: CUDA error: an illegal memory access was encountered"


def read(folder: Path, text: str, name: str = "a.log") -> LogIncident:
    signatures = build_set(())
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return LogIncident((scan_file(path, name, signatures),), signatures)


def access(line: int, rank: int | None) -> Finding:
    return Finding(
        "signature.cuda-illegal-memory-access",
        "illegal",
        Level.FAILURE,
        Category.CODE_BUG,
        evidence=(Evidence("a.log", line, ERROR),),
        rank=rank,
        facts={"survived": False},
        roles=frozenset({FindingRole.GPU_ACCESS}),
    )


@pytest.mark.parametrize(
    ("text", "rank", "words"),
    [
        (f"scores (70000, 40000) float32\n{ERROR}\n", 0, "2800000000 elements"),
        (f"x shape=torch.Size([8, 64, 4096, 2048])\n{ERROR}\n", 0, "4294967296 elements"),
        (f"scores (7000, 40000) float32\n{ERROR}\n", 0, None),
        (f"lr 0.1 betas (0, 99999999999)\n{ERROR}\n", 0, None),
        (f"{ERROR}\nscores (70000, 40000) float32\n", 0, None),
        (f"{ERROR}\n{SOURCE}", 2, "set_device"),
        (f"{ERROR}\n{SOURCE}", 0, None),
        (f"{ERROR}\n{SOURCE}    torch.cuda.set_device(local_rank)\n", 2, None),
        (f"{ERROR}\n    dev = torch.device(f'cuda:{{local_rank}}')\n", 2, None),
    ],
)
def test_reason_of_an_access(tmp_path: Path, text: str, rank: int, words: str | None) -> None:
    number = text.splitlines().index(ERROR) + 1
    found = explain_access(read(tmp_path, text), access(number, rank))
    if words is None:
        assert found.title == "illegal"
    else:
        assert words in found.title
        assert found.level is Level.CAUSE


@pytest.mark.parametrize(
    ("line", "rank"),
    [
        ("Rank of current process: 3. World size: 4 (cuda:3, PCI 0000:c1:00.0, X)", 3),
        ("rank=2 device=cuda:2 PCI bus id 00000000:C1:00.0", 2),
        ("NVRM: Xid (PCI:0000:c1:00): 79, pid=0, rank 5", None),
    ],
)
def test_rank_that_tells_its_address(tmp_path: Path, line: str, rank: int | None) -> None:
    assert read(tmp_path, line + "\n").placement.ranks_of(Place(pci="0000:c1:00.0")).only == rank


DONE = "Rendezvous version 1 is complete. Final state: {'participants': [0, 1], 'num_workers_waiting': 0}\n"
CLOSED = "Rendezvous for run_id=a was observed to be closed\n"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (f"torchrun --nnodes=2:4 a.py\n{DONE}{CLOSED}", True),
        (f"torchrun --nnodes=2:4 a.py\n{DONE}", False),
        (f"torchrun --nnodes=2 a.py\n{DONE}{CLOSED}", False),
        (f"torchrun --nnodes=1:2 a.py\n{DONE}{CLOSED}", False),
        (f"  min_nodes        : 2\n  max_nodes        : 2\n{DONE}{CLOSED}", False),
        (f"  min_nodes        : 2\n  max_nodes        : 3\n{DONE}{CLOSED}", True),
    ],
)
def test_small_quorum(tmp_path: Path, text: str, found: bool) -> None:
    kinds = [f.kind for f in find_in_incident(read(tmp_path, text), [])]
    assert kinds == (["launch.quorum"] if found else [])
