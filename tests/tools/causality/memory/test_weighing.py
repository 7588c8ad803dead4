"""What do out-of-memory, kill and checkpoint findings mean beside what the process was doing?"""

from __future__ import annotations

import pytest
from tests.rows import each_row

from firstfault.workspace import Workspace


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    return Workspace()


def told(workspace: Workspace, *lines: str) -> dict[str, object]:
    return workspace.diagnose_text("train.log", ("\n".join(lines) + "\n").encode()).to_json()


OOM = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {tried} GiB. GPU {gpu} has a total capacity of "
    "79.15 GiB of which {free} GiB is free. Including non-PyTorch memory, this process has 68.12 GiB memory in use. "
    "Of the allocated memory 59.90 GiB is allocated by PyTorch, and 6.71 GiB is reserved by PyTorch but unallocated."
)


def stack(*names: str) -> list[str]:
    return [
        "[rank3]: Traceback (most recent call last):",
        *(
            f'[rank3]:   File "/w/{name}.py", line {n + 5}, in {name}'
            for n, name in enumerate(names)
        ),
    ]


@each_row(
    ("tried", "fragmented"),
    [("9.00", True), ("17.00", True), ("27.30", False)],
)
def test_fragmentation_needs_room_enough(
    workspace: Workspace, tried: str, fragmented: bool
) -> None:
    message = "[rank3]: " + OOM.format(tried=tried, gpu=3, free="11.02")
    row = told(workspace, *stack("main", "forward"), message)
    assert ("through fragmentation" in str(row["root_cause"])) is fragmented
    assert row["first_failing_rank"] == 3


@each_row(
    ("frame", "words"),
    [("state_dict", "gathered for a checkpoint"), ("load_checkpoint", "checkpoint was loaded")],
)
def test_the_stack_names_the_phase(workspace: Workspace, frame: str, words: str) -> None:
    message = "[rank3]: " + OOM.format(tried="27.30", gpu=3, free="1.02")
    row = told(workspace, *stack("main", frame, "unshard"), message)
    assert words in str(row["root_cause"])


def killed(*before: str) -> list[str]:
    return [
        *before,
        "Traceback (most recent call last):",
        '  File "/w/train.py", line 9, in main',
        "    mp.spawn(work, nprocs=2)",
        "torch.multiprocessing.spawn.ProcessExitedException: process 0 terminated with signal SIGKILL",
    ]


@each_row(
    ("before", "category"),
    [
        (
            ["Loading & Quantizing Model Shards:  73%|#######   | 11/15 [06:12<02:14, 33.6s/it]"],
            "oom",
        ),
        (["starting workers"], None),
        (
            ["Loading checkpoint shards: 100%|####| 4/4 [00:12<00:00, 3s/it]"]
            + [f"step {i} loss 2.{i}" for i in range(5)],
            None,
        ),
    ],
)
def test_a_kill_while_loading_is_host_memory(
    workspace: Workspace, before: list[str], category: str | None
) -> None:
    assert told(workspace, *killed(*before))["category"] == category


def test_a_cap_is_named(workspace: Workspace) -> None:
    message = (
        "[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.96 GiB. GPU 1 has a total capacity of "
        "79.18 GiB of which 22.90 GiB is free. 35.63 GiB allowed; Of the allocated memory 33.31 GiB is allocated by "
        "PyTorch, and 1.10 GiB is reserved by PyTorch but unallocated."
    )
    assert "a cap lets this process hold 35.63 GiB" in str(told(workspace, message)["root_cause"])


@each_row(
    ("launch", "rank"),
    [("", None), ("--nnodes=1 --nproc_per_node=8", 5), ("--nnodes=2 --nproc_per_node=8", None)],
)
def test_a_device_is_a_rank_where_the_job_has_one_host(
    workspace: Workspace, launch: str, rank: int | None
) -> None:
    lines = [line.replace("[rank3]: ", "") for line in stack("main", "forward")]
    message = OOM.format(tried="27.30", gpu=5, free="1.02")
    row = told(workspace, f"+ torchrun {launch} train.py", *lines, message)
    assert row["first_failing_rank"] == rank
    assert "GPU 5" in str(row["gpu"])


def test_like_processes_on_one_gpu_are_ranks_of_the_job(workspace: Workspace) -> None:
    message = (
        "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 90.00 MiB. GPU 0 has a total capacity of "
        "15.90 GiB of which 33.75 MiB is free. Process 20112 has 4.11 GiB memory in use. Process 20113 has 3.90 GiB "
        "memory in use. Process 20114 has 3.88 GiB memory in use. Including non-PyTorch memory, this process has 3.97 "
        "GiB memory in use. Of the allocated memory 3.42 GiB is allocated by PyTorch, and 91.50 MiB is reserved by "
        "PyTorch but unallocated."
    )
    row = told(workspace, message)
    assert "4 processes of like size" in str(row["root_cause"])
    assert row["first_failing_rank"] is None


@each_row(
    ("line", "signature"),
    [
        ("previous attempt: job 70112 ended by NODE_FAIL at 05:58:40", None),
        ("70112  train  gpu  acct  64  NODE_FAIL  1:0", "slurm-node-fail-state"),
    ],
)
def test_an_earlier_attempt_is_history(
    workspace: Workspace, line: str, signature: str | None
) -> None:
    assert told(workspace, "starting", line)["signature"] == signature


KEYS = (
    "RuntimeError: Error(s) in loading state_dict for Net:",
    "\tMissing key(s) in state_dict: {missing}. ",
    "\tUnexpected key(s) in state_dict: {extra}. ",
)


@each_row(
    ("missing", "extra", "prefix"),
    [
        ('"module.a.weight", "module.b.bias"', '"a.weight", "b.bias"', "module."),
        ('"a.weight", "b.bias"', '"_orig_mod.a.weight", "_orig_mod.b.bias"', "_orig_mod."),
        ('"net.x.weight"', '"net.y.weight"', None),
    ],
)
def test_keys_that_differ_by_a_prefix(
    workspace: Workspace, missing: str, extra: str, prefix: str | None
) -> None:
    row = told(workspace, *(k.format(missing=missing, extra=extra) for k in KEYS))
    assert row["category"] == "checkpoint"
    assert ("by the prefix" in str(row["root_cause"])) is (prefix is not None)
    assert prefix is None or f"'{prefix}'" in str(row["root_cause"])


def bars(host: str, first: int) -> list[str]:
    return [
        f"{host}:   1%|#         | {first + i}/634 [0{i}:57<10:04:22, 57.2s/it]" for i in range(4)
    ]


@each_row(("other", "differs"), [(0, True), (20, False)])
def test_nodes_that_resume_at_different_steps(
    workspace: Workspace, other: int, differs: bool
) -> None:
    lines = ["10.1.4.11: >>   Continuing training from global step 20", *bars("10.1.4.11", 20)]
    row = told(workspace, *lines, *bars("10.1.4.12", other))
    assert (row["category"] == "checkpoint") is differs


def straggler(event: str) -> list[str]:
    out = []
    for step in range(10):
        slow = step >= 5
        if step == 5:
            out.append(f"[rank 0] {event}")
        for rank in range(4):
            compute = 2.5 if slow and rank == 0 else 0.7
            wait = 0.1 if rank == 0 or not slow else 1.9
            out.append(f"[rank {rank}] step {step} | fwd+bwd {compute}s | comm wait {wait}s")
    return out


@each_row(
    ("event", "words"),
    [
        ("profiler: recording", "profiler began to record"),
        ("falling back to CPU decode", "right after"),
    ],
)
def test_what_a_straggler_said_when_it_became_slow(
    workspace: Workspace, event: str, words: str
) -> None:
    row = told(workspace, *(line for line in straggler(event) for _ in range(1)))
    assert words in str(row["root_cause"])
    assert row["first_failing_rank"] == 0


GUESTS = (
    "[rank0]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 52.00 MiB. GPU 0 has a total capacity of 79.15 GiB of "
    "which 40.00 MiB is free. Process 301 has {guest} GiB memory in use. Process 302 has {guest} GiB memory in use. Including "
    "non-PyTorch memory, this process has 70.10 GiB memory in use. Of the allocated memory 68.00 GiB is allocated by PyTorch, and "
    "410.00 MiB is reserved by PyTorch but unallocated."
)


@each_row(
    ("before", "guest", "words"),
    [
        ("=> loading checkpoint 'out/last.pth'", "3.10", "map_location"),
        ("starting", "0.60", "set_device"),
    ],
)
def test_other_ranks_on_the_first_gpu(
    workspace: Workspace, before: str, guest: str, words: str
) -> None:
    row = told(workspace, before, GUESTS.format(guest=guest))
    assert words in str(row["root_cause"])
    assert f"2 processes of other ranks hold {float(guest):.1f} GiB each" in str(row["root_cause"])
    assert row["first_failing_rank"] == 0


@each_row(("pid", "rank"), [(1104, 2), (999, None)])
def test_a_killed_worker_belongs_to_the_rank_that_reports_it(
    workspace: Workspace, pid: int, rank: int | None
) -> None:
    row = told(
        workspace,
        "[rank0]: step 10",
        f"[rank2]: SystemError: (Fatal) DataLoader process (pid {pid}) exited is killed by signal: Killed. (at data_loader.cc:181)",
        "[1902211.440951] Memory cgroup out of memory: Killed process 1104 (python) total-vm:41877120kB, anon-rss:4981212kB, file-rss:0kB",
    )
    if rank is not None:
        assert row["first_failing_rank"] == rank
        assert "a DataLoader worker of rank 2" in str(row["root_cause"])
    else:
        assert "DataLoader worker of rank" not in str(row["root_cause"])
