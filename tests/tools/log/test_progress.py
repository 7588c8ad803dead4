"""Does a scan tell how far it is while a batch goes on, with sums that end where they should?"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from tests.tools.log.samples import signature_set

from firstfault_tools.log import progress
from firstfault_tools.log.executors import Workers, scan_logs
from firstfault_tools.log.plan import BATCH_BYTES, describe_log, plan_logs
from firstfault_tools.log.progress import Scanning

LINE = "[rank{rank}]: 2026-11-27 03:{minute:02d}:00 INFO step {step} loss 2.31 grad_norm 0.97\n"
OOM = "[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"


def write_logs(folder: Path, files: int, each: int) -> list[Path]:
    out = []
    for number in range(files):
        text = "".join(
            LINE.format(rank=number, minute=s // 60 % 60, step=s) for s in range(each // 78)
        )
        out.append(folder / f"rank_{number}.log")
        out[-1].write_text(OOM + text)
    return out


@pytest.mark.parametrize(("files", "each", "jobs"), [(1, 12_000_000, 1), (12, 1_000_000, 1), (6, 12_000_000, 2)])  # fmt: skip
def test_told_within_a_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: int, each: int, jobs: int
) -> None:
    monkeypatch.setattr(progress, "TELL_SECONDS", 0.0)
    paths = write_logs(tmp_path, files, each)
    logs = [describe_log(p.name, p, p.read_bytes()[:65536]) for p in paths]
    said: list[Scanning] = []
    known = signature_set()
    scanned = scan_logs(plan_logs(logs), known, Workers(jobs, tell=said.append))
    size = sum(p.stat().st_size for p in paths)
    assert {s.total for s in said} == {size}
    assert said[-1].done == size
    assert said[-1].lines == sum(d.lines_total for d in scanned.digests.values())
    assert dict(said[-1].found)["CUDA out of memory"] == files
    assert all(a.done <= b.done and a.lines <= b.lines for a, b in pairwise(said))
    batches = -(-size // BATCH_BYTES) + 1
    if jobs == 1:  # what a pool tells between two batches hangs on how its processes are scheduled
        assert len(said) > 2 * batches, "not only when a batch is done"
        assert said[0].done < size / 10
        assert said[0].found, "what is found is told at once"
    plain = scan_logs(plan_logs(logs), known, Workers(jobs))
    assert plain.digests == scanned.digests, "telling changes nothing"
