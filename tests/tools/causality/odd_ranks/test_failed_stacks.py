"""Stacks below watchdog timeouts say which line of the program each rank had reached."""

from __future__ import annotations

from pathlib import Path

import pytest

from firstfault_tools.causality.incident import LogIncident
from firstfault_tools.causality.odd_ranks.alignment import align_ranks
from firstfault_tools.log.scan import build_set, scan_file

WATCHDOG = (
    "[rank{rank}]:[E1128 14:00:35.185792115 ProcessGroupNCCL.cpp:689] [Rank {rank}] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=14, OpType={op}, NumelIn={count}, NumelOut={count}, Timeout(ms)=20000) ran for 20077 milliseconds before timing out."
)
HEADING = "[rank{rank}]:[E1128 14:00:35.186695194 ProcessGroupNCCL.cpp:733] Stack trace of the failed collective: "
SITE = "/usr/lib/python3/dist-packages"
FORWARD = [f"#0 _call_impl from {SITE}/torch/nn/modules/module.py:1790", f"#1 forward from {SITE}/torch/nn/parallel/distributed.py:1695",
           f"#2 _call_impl from {SITE}/torch/nn/modules/module.py:1790", "#3 train_one from /job/loop.py:114", "#4 main from /job/train.py:9"]  # fmt: skip
GATHER = [f"#0 all_gather_into_tensor from {SITE}/torch/distributed/distributed_c10d.py:4186", f"#1 wrapper from {SITE}/torch/distributed/c10d_logger.py:83",
          f"#2 gather from {SITE}/accelerate/accelerator.py:3107", "#3 train_one from /job/loop.py:119"]  # fmt: skip
BACKWARD = [f"#0 foreach_reduce from {SITE}/torch/distributed/fsdp/x.py:5", f"#1 backward from {SITE}/torch/distributed/fsdp/y.py:902",
            f"#2 apply from {SITE}/torch/autograd/function.py:317"]  # fmt: skip


def find(tmp_path: Path, *parts: tuple[int, str, int, list[str]]) -> tuple[str, list[str]]:
    """Title, and quoted lines, of the finding about ranks with (rank, operation, elements, stack)."""
    lines = []
    for rank, op, count, stack in parts:
        lines += [
            WATCHDOG.format(rank=rank, op=op, count=count),
            HEADING.format(rank=rank),
            *stack,
            "",
        ]
    path = tmp_path / "log.txt"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    signatures = build_set(())
    (found,) = align_ranks(LogIncident((scan_file(path, "log.txt", signatures),), signatures))
    return found.title, [e.text for e in found.evidence]


@pytest.mark.parametrize(
    ("first", "second", "told"),
    [
        (FORWARD, GATHER, "rank 1 was in gather in train_one (loop.py:119), rank 0 was in forward in train_one (loop.py:114)"),
        (BACKWARD, GATHER, "rank 1 was in gather in train_one (loop.py:119), rank 0 was in the backward pass"),
        (FORWARD, [], "rank 0 was in forward in train_one (loop.py:114)"),
    ],
)  # fmt: skip
def test_ranks_apart(tmp_path: Path, first: list[str], second: list[str], told: str) -> None:
    title, quoted = find(tmp_path, (0, "ALLREDUCE", 32, first), (1, "_ALLGATHER_BASE", 1, second))
    for part in told.split(", "):
        assert part in title
    assert all(any(frame in line for line in quoted) for frame in first[3:4])


def test_ranks_at_one_line(tmp_path: Path) -> None:
    title, _ = find(tmp_path, (0, "ALLREDUCE", 32, FORWARD), (1, "ALLREDUCE", 32, FORWARD))
    assert "they were in forward in train_one (loop.py:114)" in title


@pytest.mark.parametrize(
    "stack", [[], ["#1 late from /job/loop.py:1"], ["#0 broken"], ["no frame at all"]]
)
def test_no_stack_no_place(tmp_path: Path, stack: list[str]) -> None:
    title, _ = find(tmp_path, (0, "ALLREDUCE", 32, stack), (1, "BROADCAST", 1, stack))
    assert " was in " not in title
