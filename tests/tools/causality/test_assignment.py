"""Whose is a fault that prints no rank: machines gone, members' blocks, Slurm's and the kernel's words."""

from __future__ import annotations

from pathlib import Path

import pytest

from firstfault.workspace import Workspace
from firstfault_tools.findings import Verdict


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


SLOW = "".join(f"step {n} loss 2.0\nbackward time (ms) by rank: " + " ".join(f"{r}={700 if r == 11 else 400}" for r in range(16)) + "\n" for n in range(6))  # fmt: skip
HOT = """==============NVSMI LOG==============
Attached GPUs                             : 8
GPU 00000000:5D:00.0   (index {index})
    Clocks Event Reasons
        HW Slowdown                       : Active
            HW Thermal Slowdown           : Active
    Temperature
        GPU Current Temp                  : 92 C
    Clocks
        SM                                : 900 MHz
"""
DIAG = """Successfully ran diagnostic for group.
| Diagnostic                | Result                                         |
| targeted_stress           | Fail                                           |
|                           | Pass: GPU0 GPU1 GPU2 GPU4 GPU5 GPU6 GPU7       |
|                           | Fail: GPU3                                     |
| Warning: GPU3             | miscompares on GPU 3                           |
"""
PORT = """Mar 01 02:00:01 w2 kernel: mlx5_core 0000:5e:00.0: Port module event: module 2, Cable error: unplugged
Mar 01 02:00:01 w2 kernel: mlx5_core 0000:5e:00.0 ib2: Link down
"""
BROKEN = (
    "{0}: {1}:300{2}:400{2} [{2}] transport/net_ib.cc:1 NCCL WARN NET/IB: Got completion from peer 10.0.0.9<1> "
    "with status=12 opcode=0 len=0 vendor err 129 (Send) hca mlx5_{2}\n"
)
OWN = "".join(BROKEN.format(8 * h + 2, f"w{h}", 2) for h in (1, 2))
TWO = OWN + BROKEN.format(17, "w2", 1)
TIMEOUT = (
    "[rank{0}]:[E1 x] [Rank {0}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=88, OpType=ALLREDUCE, "
    "NumelIn=16, NumelOut=16, Timeout(ms)=600000) ran for 600010 milliseconds before timing out.\n"
)
GONE = "".join(TIMEOUT.format(r) for r in range(8) if r != 5)
FULL = (
    "(raylet, ip=10.4.0.5) [2026-10-20 04:25:00,300 E 6 6] (raylet) file_system_monitor.cc:116: /tmp/ray/s is over 95% "
    "full, available space: 4 GB; capacity: 438 GB. Object creation will fail if spilling is required.\n"
    "(W pid=9, ip=10.4.0.5) ray.exceptions.OutOfDiskError: Local disk is full\n"
)
WAKE = "(W pid={0}) rank={1} ready\n(W pid={0}) CUDA Error: out of memory at /w/csrc/cumem_allocator.cpp:62{2}\n"
PAIRS = {
    "slow rank on such a GPU": ({"train.log": SLOW, "q.txt": HOT.format(index=3)}, 11),
    "slow rank on another GPU": ({"train.log": SLOW, "q.txt": HOT.format(index=4)}, None),
    "failed test of a noted host": ({"a.txt": "# host c5 (ranks 40-47)\n" + DIAG}, 43),
    "failed test of an unknown host": ({"a.txt": "# host c5\n" + DIAG}, None),
    "port, own connection": ({"dmesg-w2.txt": PORT, "srun.log": OWN}, 18),
    "port, two connections": ({"dmesg-w2.txt": PORT, "srun.log": TWO}, None),
    "silent rank": ({"run.log": FULL + GONE}, 5),
    "two silent": ({"run.log": FULL + "".join(GONE.splitlines(keepends=True)[1:])}, None),
    "pid of a rank": ({"run.log": WAKE.format(71, 2, "")}, 2),
    "said by several": (
        {"run.log": WAKE.format(71, 2, " [repeated 3x across cluster]")},
        None,
    ),
}


@pytest.mark.parametrize("name", PAIRS)
def test_rank_of_several_files(name: str, workspace: Workspace, tmp_path: Path) -> None:
    files, rank = PAIRS[name]
    for file, text in files.items():
        (tmp_path / file).write_text(text, encoding="utf-8")
    found = workspace.diagnose_paths([tmp_path / file for file in files])
    assert found.first_failing_rank == rank, found.root_cause


def test_a_file_server_that_answered_again_is_no_cause(workspace: Workspace, tmp_path: Path) -> None:  # fmt: skip
    hang = "[Wed Mar 11 01:05:26 2026] nfs: server f2 not responding, still trying\n"
    good = "[Wed Mar 11 01:11:31 2026] nfs: server f2 OK\n"
    path = tmp_path / "dmesg-n7.txt"
    for text, cause in ((hang, True), (hang + good, False), (hang + good + hang, True)):
        path.write_text(text, encoding="utf-8")
        found = workspace.diagnose_paths([path])
        assert ((found.signature or "") == "kernel.nfs_hang") is cause, text


_LOST, _LATER = "[Wed Mar 11 01:05:26 2026] ", "[Wed Mar 11 01:11:31 2026] "
_OVER = [
    ("nfs: server {} not responding, still trying", "nfs: server {} OK"),
    ("Lustre: c: Connection to {} (at 10.0.0.1@o2ib) was lost; in progress", "Lustre: c: Connection restored to {} (at 10.0.0.1@o2ib)"),
    ("libceph: osd{} 10.0.0.7:6805 session lost, hunting for new mon", "libceph: osd{} 10.0.0.7:6805 session established"),
    ("mlx5_core 0000:{}a:00.0 ens1: Link down", "mlx5_core 0000:{}a:00.0 ens1: Link up"),
    ("mlx5_core 0000:{}a:00.0 ib3: link down", "mlx5_core 0000:{}a:00.0 ib3: link up"),
    ("ixgbe: ens{}: NIC Link is Down", "ixgbe: ens{}: NIC Link is Up"),
]  # fmt: skip


@pytest.mark.parametrize(("lost", "well"), _OVER)
def test_what_the_same_thing_recovered_from_is_over(
    lost: str, well: str, workspace: Workspace, tmp_path: Path
) -> None:
    path = tmp_path / "dmesg-n7.txt"
    told = []
    for after in (well.format(2), well.format(3)):
        path.write_text(f"{_LOST}{lost.format(2)}\n{_LATER}{after}\n", encoding="utf-8")
        found = workspace.diagnose_paths([path])
        over = "came back" in found.root_cause or found.verdict is not Verdict.FAULT
        told.append((over, found.root_cause))
    assert [over for over, _ in told] == [True, False], told


def test_a_hot_module_says_why_the_link_is_lost(workspace: Workspace, tmp_path: Path) -> None:
    path = tmp_path / "dmesg-n7.txt"
    hot = (
        "mlx5_core 0000:1a:00.0: Port module event[error]: module 3, Cable error, High Temperature"
    )
    down = "mlx5_core 0000:1a:00.0 ens1: Link down"
    path.write_text(f"{_LOST}{down}\n{_LOST}{hot}\n", encoding="utf-8")
    found = workspace.diagnose_paths([path])
    assert found.signature == "kernel.nic_link_down", found.root_cause
    assert "high temperature" in found.root_cause
    cleared = (
        "mlx5_core 0000:1a:00.0: temp_warn: High temperature on sensors with bit set 0x1 (cleared)"
    )
    path.write_text(f"{_LOST}{cleared}\n", encoding="utf-8")
    assert workspace.diagnose_paths([path]).verdict is not Verdict.FAULT


ABORTED = """[rank0]: step 40 loss 2.1
Fatal Python error: {what}

Thread 0x00007f5b12ffd640 (most recent call first):
  File "/usr/lib/python3.12/threading.py", line 359 in wait
E0301 10:00:33.118000 77 torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: -{signal}) local_rank: 2 (pid: 7786) of binary: /usr/bin/python
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
Root Cause (first observed failure):
[0]:
  host      : n5
  rank      : 10 (local_rank: 2)
  exitcode  : -{signal} (pid: 7786)
"""


@pytest.mark.parametrize(("what", "signal"), [("Aborted", 6), ("Segmentation fault", 11)])
def test_a_crash_without_a_label_is_of_the_rank_that_the_launcher_saw_end(
    workspace: Workspace, tmp_path: Path, what: str, signal: int
) -> None:
    (tmp_path / "out.log").write_text(ABORTED.format(what=what, signal=signal), encoding="utf-8")
    assert workspace.diagnose_paths([tmp_path / "out.log"]).first_failing_rank == 10


REPEATS = """[rank0]: step 40 loss 2.1
[rank{rank}]: ERROR:megatron.core.rerun_state_machine:Unexpected result nan at iteration 41 was persistent on this device, reproduced
[rank0]: step 41 loss 2.1
[rank0]: step 42 loss 2.0
"""
DIAG = """# dcgmi diag -r 3 (n5)
+---------------------------+------------------------------------------------+
| Diagnostic                | Result                                         |
+===========================+================================================+
| Diagnostic                | Fail - GPU: 2                                  |
| Warning: GPU 2            | Detected 3 miscompares in the GEMM results     |
+---------------------------+------------------------------------------------+
"""


def test_a_rank_that_cannot_sit_on_the_card_is_not_taken(
    workspace: Workspace, tmp_path: Path
) -> None:
    raised = REPEATS.format(rank=10) + "[rank0]: RuntimeError: stopped by the rerun state machine\n"
    (tmp_path / "out.log").write_text(raised, encoding="utf-8")
    (tmp_path / "diag.txt").write_text(DIAG, encoding="utf-8")
    found = workspace.diagnose_paths([tmp_path / "out.log", tmp_path / "diag.txt"])
    assert found.first_failing_rank != 0


KERNEL = "[ 911.201] {host} kernel: amdgpu 0000:c5:00.0: amdgpu: 1 uncorrectable hardware errors detected in umc block\n"


@pytest.mark.parametrize(("host", "rank"), [("n5", 10), ("n6", None)])
def test_a_fault_of_a_device_is_of_the_rank_that_crashed_on_its_host(
    workspace: Workspace, tmp_path: Path, host: str, rank: int | None
) -> None:
    missing = "[rank4]:[E301 10:10:33.255512575 ProcessGroupNCCL.cpp:629] [Rank 4] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=8, OpType=ALLREDUCE, "
    rest = "NumelIn=64, NumelOut=64, Timeout(ms)=600000) ran for 600080 milliseconds before timing out.\n"
    log = ABORTED.format(what="Aborted", signal=6) + missing + rest
    (tmp_path / "out.log").write_text(log, encoding="utf-8")
    (tmp_path / f"{host}-dmesg.log").write_text(KERNEL.format(host=host), encoding="utf-8")
    found = workspace.diagnose_paths([tmp_path / "out.log", tmp_path / f"{host}-dmesg.log"])
    assert found.signature == "kernel.amd_uncorrectable"
    assert (found.first_failing_rank == 10) is (rank == 10)
