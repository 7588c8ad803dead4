"""Host memory: who used it when Ray killed, and which work it grew in."""

from __future__ import annotations

import pytest

from firstfault.workspace import Workspace


@pytest.fixture(scope="module")
def workspace() -> Workspace:
    return Workspace()


def told(workspace: Workspace, *lines: str) -> dict[str, object]:
    return workspace.diagnose_text("train.log", ("\n".join(lines) + "\n").encode()).to_json()


KILL = [
    "ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.",
    "Memory on the node (IP: 10.0.0.9, ID: ab) where the task (task ID: cd, name=run_all, pid=77, memory used=3.10GB) was running was "
    "190.10GB / 200.00GB (0.9505), which exceeds the memory usage threshold of 0.95. Top 10 memory users:",
    "PID\tMEM(GB)\tCOMMAND",
]
ROWS = [f"{80 + i}\t{44.0 + i}\tray::Trainer.save_state" for i in range(4)]


def test_the_victim_is_not_the_user(workspace: Workspace) -> None:
    cause = str(told(workspace, *KILL, *ROWS, "77\t3.10\tray::run_all")["root_cause"])
    assert "4 processes ray::Trainer.save_state" in cause
    assert "while a checkpoint was saved" in cause
    assert "run_all (3.10 GB)" in cause


def test_small_users_are_not_named(workspace: Workspace) -> None:
    cause = str(
        told(workspace, *KILL, "81\t9.0\tray::A.step", "77\t3.1\tray::run_all")["root_cause"]
    )
    assert "largest" not in cause


def growth(loss: bool) -> list[str]:
    return [
        f"{i:3d}%|##  | {i * 10}/1000 [00:{i:02d}<01:00,  5.0it/s] host RAM used {40 + 2 * i}.0 / 250.0 GB"
        + (f" loss {3 - i / 100:.3f}" if loss else "")
        for i in range(4, 100, 6)
    ]


END = "ERROR:torch.distributed.elastic.multiprocessing.api:failed (exitcode: -9) local_rank: 2 (pid: 41) of binary: /usr/bin/python"


def test_growth_belongs_to_the_evaluation_it_grew_in(workspace: Workspace) -> None:
    found = told(workspace, "***** Running Evaluation *****", *growth(False), END)
    assert "during evaluation" in str(found["root_cause"])
    assert found["first_failing_rank"] == 2


def test_growth_in_training_keeps_its_usual_reason(workspace: Workspace) -> None:
    found = told(workspace, "***** Running Evaluation *****", "{'loss': 2.0}", *growth(True), END)
    assert "during evaluation" not in str(found["root_cause"])


HEAD = (
    "[rank0]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.50 GiB. GPU 0 has a total capacity of 79.15 GiB of which "
    "0.80 GiB is free. Including non-PyTorch memory, this process has 78.30 GiB memory in use. Of the allocated memory 76.00 GiB is "
    "allocated by PyTorch, with 300.00 MiB allocated in private pools (e.g., CUDA Graphs), and 500.00 MiB is reserved by PyTorch but "
    "unallocated."
)
ENGINE = "INFO worker.py:241] the current vLLM instance can use total_gpu_memory (79.15GiB) x gpu_memory_utilization (0.70) = 55.40GiB"
SHARED = "UserWarning: The requested device cuda:0 is also being used for training."


def test_engine_on_the_card_of_the_training(workspace: Workspace) -> None:
    assert "inference engine" in str(told(workspace, SHARED, ENGINE, HEAD)["root_cause"])
    assert "inference engine" not in str(told(workspace, ENGINE, HEAD.replace(", with 300.00 MiB allocated in private pools (e.g., CUDA Graphs),", ""))["root_cause"])  # fmt: skip
    asleep = "INFO Sleep mode freed 52.10 GiB memory, 3.2 GiB memory is still in use."
    assert "inference engine" not in str(
        told(workspace, SHARED, ENGINE, asleep, HEAD)["root_cause"]
    )


FAULT = "RuntimeError: CUDA error: an illegal memory access was encountered"
STEPS = [f"[rank 0] iter {i} loss 2.{9 - i}" for i in range(4)]


def test_fault_that_follows_a_card(workspace: Workspace) -> None:
    first = "$ CUDA_VISIBLE_DEVICES=0,1,2,3 torchrun --nproc_per_node=4 t.py"
    swapped = "$ CUDA_VISIBLE_DEVICES=2,1,0,3 torchrun --nproc_per_node=4 t.py"
    moved = told(
        workspace, first, *STEPS, f"[rank 2] {FAULT}", swapped, *STEPS, f"[rank 0] {FAULT}"
    )
    assert moved["category"] == "hardware"
    assert "index 2" in str(moved["root_cause"])
    stays = told(
        workspace, first, *STEPS, f"[rank 2] {FAULT}", swapped, *STEPS, f"[rank 2] {FAULT}"
    )
    assert stays["category"] != "hardware"


def test_rank_of_a_process_that_reports_its_signal(workspace: Workspace) -> None:
    comm = [
        f"n0:{90 + r}:{190 + r} [{r}] NCCL INFO comm 0x7f rank {r} nranks 4 cudaDev {r} busId {r + 1}b000 - Init COMPLETE"
        for r in range(4)
    ]
    found = told(
        workspace, *comm, "[n0:00092] *** Process received signal ***", "[n0:00092] Signal: Bus error (7)",
        "ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared memory (shm).",
    )  # fmt: skip
    assert found["first_failing_rank"] == 2
