"""An end that one rank announces is none where a collective times out after it."""

from __future__ import annotations

from pathlib import Path

import pytest

from firstfault_tools.causality.incident import LogIncident
from firstfault_tools.log.scan import build_set, scan_file

STEP = "[2026-11-28 14:00:16] [rank0] step {step} | loss 6.2514 | lr 1.00e-03"
DONE = "[2026-11-28 14:00:16] [rank0] training finished"
TIMEOUT = (
    "[rank1]:[E1128 14:00:36.699828160 ProcessGroupNCCL.cpp:689] [Rank 1] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=14, OpType=BROADCAST, NumelIn=32, NumelOut=32, Timeout(ms)=20000) ran for 20067 milliseconds before timing out."
)


@pytest.mark.parametrize(
    ("after", "well"),
    [((), True), ((TIMEOUT,), False), (("[rank1] destroy_process_group() was not called",), True)],
)
def test_end(tmp_path: Path, after: tuple[str, ...], well: bool) -> None:
    path = tmp_path / "log.txt"
    lines = [*(STEP.format(step=step) for step in range(1, 6)), DONE, *after]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    signatures = build_set(())
    incident = LogIncident((scan_file(path, "log.txt", signatures),), signatures)
    assert incident.ended_well is well


def test_a_folder_called_run_is_not_done_when_its_save_is(tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    saved = (
        "[2026-11-28 14:00:17] [rank0] saving checkpoint global_step5 -> /lustre/run done in 41.8s"
    )
    path.write_text("\n".join([STEP.format(step=5), saved]) + "\n", encoding="utf-8")
    signatures = build_set(())
    incident = LogIncident((scan_file(path, "log.txt", signatures),), signatures)
    assert not incident.ended_well


@pytest.mark.parametrize(
    ("others", "well"), [((), True), (("641  eval  gpu  FAILED  1:0",), False)]
)
def test_a_completed_row_among_several_jobs_is_no_end_of_the_run(
    tmp_path: Path, others: tuple[str, ...], well: bool
) -> None:
    rows = [
        "JobID  JobName  Partition  State  ExitCode",
        *others,
        "640  train  gpu  COMPLETED  0:0",
    ]
    path = tmp_path / "sacct.txt"
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    signatures = build_set(())
    incident = LogIncident((scan_file(path, "sacct.txt", signatures),), signatures)
    assert (incident.progress["sacct.txt"].finished_at() is not None) is well
