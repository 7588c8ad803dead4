"""Pasted code that lets a part of the ranks into a collective, or out of one; and code that does neither."""

from __future__ import annotations

from pathlib import Path

import pytest

from firstfault_tools.causality.incident import LogIncident
from firstfault_tools.causality.odd_ranks.guards import find_guarded
from firstfault_tools.log.scan import build_set, scan_file


def incident(tmp_path: Path, text: str) -> LogIncident:
    path = tmp_path / "log.txt"
    path.write_text(text, encoding="utf-8")
    signatures = build_set(())
    return LogIncident((scan_file(path, "log.txt", signatures),), signatures)


GUARDED = {
    "barrier on the first rank": ("12:  if rank == 0:\n13-      dist.barrier()\n", 0),
    "barrier on the others": ("if dist.get_rank() != 0:\n    dist.barrier()\nstep()\n", None),
    "sharded save": ("FSDP run\n8  if is_main_process:\n9      state = model.state_dict()\n", 0),
    "group by its members": ("if rank < 2:\n    g = dist.new_group([0, 1])\nelse:\n    g = dist.new_group([2, 3])\n", None),
    "first leaves": ("if RANK in {-1, 0}:\n    if stop:\n        break\nif RANK != -1:\n    dist.broadcast_object_list(x, 0)\n", 0),
    "generation on the main process": ("FSDP run\nif not self.accelerator.is_world_process_zero:\n    return\nout = model.generate(**x)\n", None),
    "whole tensor on the first rank": ("if rank == 0:\n    norm = total.full_tensor()\n", 0),
    "function that a stack shows": ("T\n    all_gather_object (torch/distributed/d.py:4)\n    report (run.py:9)\n\nif rank == 0:\n    report(x)\n", 0),
    "others leave": ("if rank != 0:\n    return\nwrite()\ndist.barrier()\n", None),
}  # fmt: skip


@pytest.mark.parametrize("name", GUARDED)
def test_guarded_calls(tmp_path: Path, name: str) -> None:
    text, rank = GUARDED[name]
    found = find_guarded(incident(tmp_path, text))
    assert found is not None
    assert found.rank == rank


SHARED = {
    "prints": "if rank == 0:\n    print('saved')\ndist.barrier()\n",
    "both sides call": "if rank == 0:\n    dist.broadcast(x, 0)\nelse:\n    dist.broadcast(y, 0)\n",
    "pair of barriers": "if rank != 0:\n    dist.barrier()\nload()\nif rank == 0:\n    dist.barrier()\n",
    "plain save": "if rank == 0:\n    torch.save(model.state_dict(), path)\n",
    "inside a group": "if rank < 4:\n    dist.all_reduce(x, group=left)\n",
    "words of a log": "what if rank 0 hangs in the barrier() of the save?\n",
}


@pytest.mark.parametrize("name", SHARED)
def test_calls_of_all_ranks(tmp_path: Path, name: str) -> None:
    assert find_guarded(incident(tmp_path, SHARED[name])) is None
