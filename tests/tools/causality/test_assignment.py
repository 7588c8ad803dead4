"""Whose is a fault that prints no rank: machines gone, members' blocks, Slurm's and the kernel's words."""

from __future__ import annotations

from pathlib import Path

import pytest

from firstfault.workspace import Workspace


@pytest.fixture(scope="module")
def workspace() -> Workspace:
    return Workspace()


RAY = "(TrainController pid=9) {}\n"
LOST = """[Rank 0]
The actor died unexpectedly before finishing this task.
[Rank 2]
The actor died unexpectedly before finishing this task.
The actor died because its node has died. Node Id: b157c93de9603b14
the actor's node was preempted: spot interruption notice"""
SRUN = """step 3000 loss 1.8
slurmstepd: error: Detected 1 oom_kill event in StepId=8812.0. Some of the step tasks have been OOM Killed.
srun: error: cn07: task 5: Out Of Memory
srun: error: cn03: tasks 0-3: Terminated
"""
NODE = """cn41: rank 0 step 30 ok
cn42: rank 1 step 30 ok
cn44: rank 2 step 30 ok
srun: error: Node failure on cn44
"""
ENGINE = """(W pid=91, ip=10.1.1.4) INFO rank 2 in world size 4 is assigned as DP rank 0
(W pid=90, ip=10.1.1.3) INFO rank 1 in world size 4 is assigned as DP rank 0
(W pid=91, ip=10.1.1.4) RuntimeError: CUDA error: uncorrectable ECC error encountered
"""
FEW = "[task {0} h{0}] E0905 17:34:{1} 41 x.cc:1] CUDA error: uncorrectable NVLink error detected during the execution\n"
COMPILE = (
    "[rank0]: jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: XLA:TPU compile permanent error. "
    "Ran out of memory in memory space hbm. Used 63.80G of 30.75G hbm. Exceeded hbm capacity by 33.05G.\n"
)
RETRIES = "".join(
    f"[rank{{0}}]: step {n}\n[rank{{0}}]: WARNING - {n} CUDA memory allocation retries.\n"
    for n in (12, 24)
)
MESH = "[rank0]: Building 1-D device mesh with ['dp_shard'], [8]\n"
CASES = {
    "one program on all": (COMPILE, None),
    "slow, heard alone": (MESH + RETRIES.format(0), None),
    "slow, beside others": (MESH + RETRIES.format(3), 3),
    "block": ("".join(RAY.format(line) for line in LOST.splitlines()), 2),
    "task": (SRUN, 5),
    "task alone": (SRUN.replace("tasks 0-3", "task 0"), None),
    "node": (NODE, 2),
    "node of two": (NODE + "cn44: rank 3 step 30 ok\n", None),
    "pid": (ENGINE, 2),
    "few": ("".join(FEW.format(r, s) for r, s in ((40, "37.010"), (41, "36.549"))), 41),
    "all alike": ("".join(FEW.format(r, s) for r, s in ((0, "37.010"), (1, "36.549"))), None),
}


@pytest.mark.parametrize("name", CASES)
def test_rank(name: str, workspace: Workspace, tmp_path: Path) -> None:
    text, rank = CASES[name]
    path = tmp_path / "run.log"
    path.write_text(text, encoding="utf-8")
    found = workspace.diagnose_paths([path])
    assert found.first_failing_rank == rank, found.root_cause


EPOCHS = "Epoch {}: step 100 loss 2.1\nRuntimeError: DataLoader worker (pid 19) is killed by signal: Segmentation fault. \n"


@pytest.mark.parametrize(("epoch", "category"), [(0, "data"), (7, None)])
def test_worker_that_crashes_on_data_that_went_through_before(
    epoch: int, category: str | None, workspace: Workspace, tmp_path: Path
) -> None:
    path = tmp_path / "run.log"
    path.write_text(EPOCHS.format(epoch), encoding="utf-8")
    assert workspace.diagnose_paths([path]).category == category
