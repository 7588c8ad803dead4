"""A stop that the job came back from is over; what processes say while they are stopped follows from the stop."""

from __future__ import annotations

from pathlib import Path

import pytest

from firstfault.workspace import Workspace

STEPS = "".join(
    f"2026-07-27 04:{i // 6:02d}:{i % 6}0 iteration {i} | loss {3 - i / 50:.3f} | lr 1e-4\n"
    for i in range(1, 50)
)
STOP = (
    "W0727 04:08:{second:02d}.402000 1 torch/distributed/elastic/agent/server/api.py:725] Received 15 death signal, "
    "shutting down workers\n"
)
LATE_STOP = STOP.replace("04:08", "05:08")
LINK = (
    "[rank2]:[E727 04:08:33.018220117 ProcessGroupNCCL.cpp:2068] [PG ID 0 PG GUID 0(default_pg) Rank 2] Process group watchdog "
    "thread terminated with exception: CUDA error: Invalid access of peer GPU memory over nvlink or a hardware error\n"
)
PREEMPTED = "slurmstepd: error: *** STEP 88120.0 ON gpu-r07-01 CANCELLED AT 2026-07-27T04:08:20 DUE TO PREEMPTION ***\n"
CANCELLED = "slurmstepd: error: *** JOB 88120 ON gpu-r07-01 CANCELLED AT 2026-07-27T05:08:20 ***\n"
TIMED_OUT = (
    "[rank0]:[E727 04:48:33.018220117 ProcessGroupNCCL.cpp:632] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=3, "
    "OpType=BROADCAST, NumelIn=622329856, NumelOut=622329856, Timeout(ms)=1800000) ran for 1800051 milliseconds before timing out.\n"
)
RESUMED = "2026-07-27 06:00:00 Resuming training from checkpoint step 40\n"
MISSING = '[rank0]: RuntimeError: Error(s) in loading state_dict for GPT:\n[rank0]: \tMissing key(s) in state_dict: "head.weight".\n'
XID = "[Mon Jul 27 04:08:25 2026] NVRM: Xid (PCI:0000:4e:00): 79, pid=811, GPU has fallen off the bus.\n"


@pytest.mark.parametrize(
    ("log", "category"),
    [
        pytest.param(STEPS + STOP.format(second=20) + LINK, "None", id="stopped-while-it-ran-by-whom-is-not-told"),
        pytest.param(STEPS + LATE_STOP.format(second=20) + LINK, "hardware", id="stood-still-before"),
        pytest.param(STEPS + LINK + STOP.format(second=50), "hardware", id="failed-before-the-stop"),
        pytest.param(STEPS + STOP.format(second=20) + LINK + XID, "hardware", id="the-driver-says-so"),
        pytest.param(STEPS + PREEMPTED, "scheduler", id="preempted"),
        pytest.param(STEPS + CANCELLED, "scheduler", id="cancelled-while-it-ran"),
        pytest.param(STEPS + TIMED_OUT + CANCELLED, "None", id="cancelled-after-a-standstill"),
        pytest.param(STEPS + PREEMPTED + RESUMED + MISSING, "checkpoint", id="failed-after-resuming"),
        pytest.param(STEPS + PREEMPTED + MISSING, "scheduler", id="no-second-attempt"),
    ],
)  # fmt: skip
def test_order(log: str, category: str, tmp_path: Path) -> None:
    path = tmp_path / "job.log"
    path.write_text(log, encoding="utf-8")
    found = Workspace().diagnose_paths([path])
    assert str(found.category) == category, found.root_cause


SECOND = "2026-07-27 07:00:00 loading checkpoint from /ckpt/iter_{step:07d}\n"
BEFORE = SECOND.format(step=40).replace("2026-07-27 07", "2026-07-27 01")
UNNUMBERED = "".join(f"2026-07-27 04:0{i}:00 {{'loss': {3 - i / 50:.3f}}}\n" for i in range(1, 9))
NOTHING_THERE = (
    "2026-07-27 07:00:00 Checkpoint tracker file does not exist: /ckpt/latest_checkpointed_iteration.txt\n"
    "2026-07-27 07:00:01 Training from scratch\n"
)
AGAIN = STEPS.replace("2026-07-27 04", "2026-07-27 07")
LATER = "".join(
    f"2026-07-27 07:{i // 6:02d}:{i % 6}0 iteration {40 + i} | loss {2.2 - i / 50:.3f} | lr 1e-4\n"
    for i in range(1, 50)
)
TIME_LIMIT = "slurmstepd: error: *** JOB 88120 ON gpu-r07-01 CANCELLED AT 2026-07-27T04:08:20 DUE TO TIME LIMIT ***\n"


@pytest.mark.parametrize(
    ("first", "second", "category"),
    [
        pytest.param(STEPS + TIME_LIMIT, SECOND.format(step=40) + MISSING, "checkpoint", id="failed-in-the-next-log"),
        pytest.param(STEPS + TIME_LIMIT, SECOND.format(step=40) + LATER, "None", id="went-on-in-the-next-log"),
        pytest.param(STEPS + TIME_LIMIT, LATER, "scheduler", id="a-log-that-takes-up-nothing"),
        pytest.param(UNNUMBERED + TIME_LIMIT, SECOND.format(step=40) + MISSING, "checkpoint", id="began-later-by-the-clock"),
        pytest.param(UNNUMBERED + TIME_LIMIT, BEFORE + MISSING, "scheduler", id="began-before-by-the-clock"),
        pytest.param(STEPS + PREEMPTED, NOTHING_THERE + AGAIN, "checkpoint", id="began-from-scratch"),
        pytest.param(STEPS + TIME_LIMIT, SECOND.format(step=9000) + LATER, "scheduler", id="another-run"),
    ],
)  # fmt: skip
def test_an_attempt_is_over_when_another_log_takes_up_its_step(
    first: str, second: str, category: str, tmp_path: Path
) -> None:
    paths = [tmp_path / "first.log", tmp_path / "second.log"]
    for path, text in zip(paths, (first, second), strict=True):
        path.write_text(text, encoding="utf-8")
    found = Workspace().diagnose_paths(paths)
    assert str(found.category) == category, found.root_cause
