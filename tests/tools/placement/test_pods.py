"""Which rank the number of a pod says, and where it says none."""

from __future__ import annotations

from pathlib import Path

import pytest

from firstfault_tools.causality.incident import LogIncident
from firstfault_tools.log.scan import build_set, scan_file
from firstfault_tools.placement.pods import rank_of_ordinal

ORDINALS = {
    "worker of a set": ("[ddp-worker-0] epoch 1\n[ddp-worker-1] epoch 1\n", "ddp-worker-1", 1),
    "worker behind a master": ("job-master-0 | epoch 1\njob-worker-1 | epoch 1\n", "job-worker-1", 2),
    "address of a master": ("[worker-1] connect to job-master-0:23456\n", "worker-1", 1),
    "several on a pod": ("resources: nvidia.com/gpu: 8\n", "ddp-worker-1", None),
    "launched with several": ("torchrun --nproc_per_node=4 a.py\n", "ddp-worker-1", None),
    "ranks are told": ("[rank5]: x\n[rank5]: y\n", "ddp-worker-1", None),
    "printed where the count puts it": ("[rank0]: x\nworld_size=4\n[rank0]: starts host=j-master-0\npod/j-worker-1 Evicted\n", "j-worker-1", 2),
    "printed elsewhere": ("[rank0]: starts host=j-master-0\n[rank3]: starts host=j-worker-1\nworld_size=4\n", "j-worker-1", None),
    "no number": ("x\n", "ddp-worker-x7h2p", None),
}  # fmt: skip


@pytest.mark.parametrize("name", ORDINALS)
def test_ordinals(tmp_path: Path, name: str) -> None:
    text, pod, rank = ORDINALS[name]
    path = tmp_path / "log.txt"
    path.write_text(text, encoding="utf-8")
    signatures = build_set(())
    incident = LogIncident((scan_file(path, "log.txt", signatures),), signatures)
    assert rank_of_ordinal(incident, pod) == rank


def test_a_date_is_no_pod(tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    path.write_text(
        "2026-03-03 06:48:29,206 INFO [rank 0] step 400\nddp-worker-3 [rank 3] step 400\n"
    )
    signatures = build_set(())
    incident = LogIncident((scan_file(path, "log.txt", signatures),), signatures)
    assert dict(incident.placement.pods) == {("ddp-worker", 3): {3}}
