"""Does a listing handed in beside a log tell which file is cut off, and only where the failure names it?"""

from __future__ import annotations

from pathlib import Path

import pytest

from firstfault.workspace import Workspace
from firstfault_tools.causality.cut_files import KIND

FAILED = """2026-06-10 08:00:00 [rank5] INFO step 100 loss 2.1
2026-06-10 08:00:04 [rank5] INFO step 110 loss 2.0
[rank5]: Traceback (most recent call last):
[rank5]:   File "/w/train.py", line 9, in read
[rank5]:     return numpy.frombuffer(buffer, count=count, offset=offset)
[rank5]: ValueError: offset must be non-negative and no greater than buffer length ({size})
"""
SHARDS = "".join(
    f"-rw-r--r-- 1 etl etl {402653184 if n == 17 else 1073879040 + 4096 * n} Sep 29 23:50 /mnt/data/part-{n:05d}.bin\n"
    for n in range(14, 20)
)


def _copies(short: int) -> str:
    rows = []
    for host in ("c04", "c05", "c06", "c07"):
        size = short if host == "c07" else 38228870144
        rows.append(
            f"== {host}: ls -l /mnt/nvme/fw.bin\n-rw-r--r-- 1 svc ml {size} Mar 30 17:07 /mnt/nvme/fw.bin\n"
        )
    return "".join(rows)


@pytest.fixture(scope="module")
def workspace() -> Workspace:
    return Workspace()


@pytest.mark.parametrize(
    ("size", "listing", "told"),
    [
        pytest.param(
            21474836480, _copies(21474836480), "on c07", id="the copy of one host, by its bytes"
        ),
        pytest.param(402653184, SHARDS, "part-00017.bin", id="a shard far below its neighbours"),
        pytest.param(999, _copies(21474836480), "", id="not the file of the failure"),
        pytest.param(38228870144, _copies(38228870144), "", id="all copies alike"),
    ],
)
def test_the_short_file_that_the_failure_names(
    workspace: Workspace, tmp_path: Path, size: int, listing: str, told: str
) -> None:
    (tmp_path / "train.log").write_text(FAILED.format(size=size), encoding="utf-8")
    (tmp_path / "ls.txt").write_text(listing, encoding="utf-8")
    found = workspace.diagnose_paths([tmp_path / "train.log", tmp_path / "ls.txt"])
    assert (found.signature == KIND) is bool(told)
    assert told in found.root_cause
    assert found.first_failing_rank == 5


BEGUN = """2026-06-10 08:00:00 [rank0] INFO step 100 loss 2.1
[rank5] UserWarning: skipping rest of /mnt/data/part-000{name}.bin: unexpected end of data
[rank5] epoch 0 done after 41 batches
"""
WAITED = (
    "[rank{rank}]:[E610 08:20:40.255512575 ProcessGroupNCCL.cpp:629] [Rank {rank}] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=810, OpType={what}, NumelIn=64, NumelOut=64, Timeout(ms)=600000) ran for 600080 milliseconds before timing out.\n"
)
WARNED = BEGUN + "".join(
    WAITED.replace("{rank}", str(rank)).replace("{what}", what)
    for rank, what in ((0, "_ALLGATHER_BASE"), (1, "_ALLGATHER_BASE"), (5, "ALLREDUCE"))
)


@pytest.mark.parametrize(("name", "cut"), [("17", True), ("18", False)])
def test_the_short_file_of_which_the_rank_complained(
    workspace: Workspace, tmp_path: Path, name: str, cut: bool
) -> None:
    (tmp_path / "train.log").write_text(WARNED.format(name=name), encoding="utf-8")
    (tmp_path / "ls.txt").write_text(SHARDS, encoding="utf-8")
    found = workspace.diagnose_paths([tmp_path / "train.log", tmp_path / "ls.txt"])
    assert (found.signature == KIND) is cut
    assert found.first_failing_rank == 5
