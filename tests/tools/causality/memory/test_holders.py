"""Who holds the GPU memory that was missing, told by the message and by what stands beside it?"""

from __future__ import annotations

import pytest
from tests.rows import each_row

from firstfault.workspace import Workspace


@pytest.fixture(scope="module")
def workspace() -> Workspace:
    return Workspace()


def told(workspace: Workspace, *lines: str) -> dict[str, object]:
    return workspace.diagnose_text("train.log", ("\n".join(lines) + "\n").encode()).to_json()


HEAD = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 1 has a total capacity of 79.15 GiB of which 0.50 GiB is free."
BOOKS = "Of the allocated memory {used} GiB is allocated by PyTorch, and 0.20 GiB is reserved by PyTorch but unallocated."
OWN = "Including non-PyTorch memory, this process has {own} GiB memory in use."
OLD = (
    "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 216.00 MiB (GPU 0; 7.92 GiB total capacity; {used} GiB already "
    "allocated; 162.56 MiB free; {held} GiB reserved in total by PyTorch)"
)
CASES = [
    (
        [OLD.format(used="1.41", held="1.53"), "/dev/nvidia0:        root       4711 F...m python"],
        "fuser shows PID 4711",
    ),
    ([OLD.format(used="1.41", held="1.53")], "are held by another process that it does not see"),
    (
        [
            f"[rank1]: {HEAD} {OWN.format(own='1.20')} {BOOKS.format(used='0.80')}",
            "|  No running processes found  |",
        ],
        "nvidia-smi lists no process",
    ),
    (
        [
            "devices: [CudaDevice(id=0)]",
            f"[rank1]: {HEAD} {OWN.format(own='78.60')} {BOOKS.format(used='18.00')}",
        ],
        "JAX reserves",
    ),
    (
        [
            "engine started, gpu_memory_utilization=0.6",
            f"(Worker pid=99) {HEAD} Process 81 has 47.30 GiB memory in use. Process 99 has 31.30 GiB memory in use. "
            + BOOKS.format(used="29.00"),
        ],
        "the inference engine of the same job",
    ),
    (
        [
            f"[rank1]: {HEAD} {OWN.format(own='78.60')} Of the allocated memory 74.00 GiB is allocated by PyTorch, with 21.40 GiB "
            "allocated in private pools (e.g., CUDA Graphs), and 1.10 GiB is reserved by PyTorch but unallocated."
        ],
        "private pools of CUDA graphs",
    ),
    (
        [
            '[rank1]:     model = AutoModel.from_pretrained(base, device_map="auto")',
            f"[rank1]: {HEAD} {OWN.format(own='78.60')} {BOOKS.format(used='77.00')}",
        ],
        "device_map='auto' makes every process",
    ),
    (
        [
            "[rank3]: RuntimeError: cuDNN error: CUDNN_STATUS_NOT_INITIALIZED",
            *(f"{n}, {used} MiB, 24576 MiB" for n, used in enumerate((9110, 9112, 9110, 24310))),
        ],
        "GPU 3 was full: 24310 of 24576 MiB",
    ),
    (
        [
            "[rank2]: RuntimeError: CUDA error: CUDA-capable device(s) is/are busy or unavailable",
            *(f"{n}, Exclusive_Process, {used} MiB" for n, used in enumerate((5, 5, 10211, 5))),
        ],
        "GPU 2 is in compute mode Exclusive_Process",
    ),
]


@each_row(("lines", "words"), CASES, ids=[w[:24] for _, w in CASES])
def test_the_holder_is_named(workspace: Workspace, lines: list[str], words: str) -> None:
    assert words in str(told(workspace, *lines)["root_cause"])


def test_a_process_that_fills_the_card_itself_blames_nobody(workspace: Workspace) -> None:
    line = f"[rank1]: {HEAD} {OWN.format(own='78.60')} {BOOKS.format(used='77.00')}"
    cause = str(told(workspace, line)["root_cause"])
    assert "77.00 GiB already held by tensors" in cause
    assert "another" not in cause


CHANNEL = (
    "{host}:{pid}:9 [{dev}] NCCL INFO Channel 00/0 : {a}[{a}] -> {b}[{b}] [{how}] via NET/IB/0"
)
WARN = "n1:33:9 [1] include/alloc.h:185 NCCL WARN Failed to CUDA calloc 6291456 bytes"


def channel(host: str, pid: int, dev: int, a: int, b: int, how: str) -> str:
    return CHANNEL.format(host=host, pid=pid, dev=dev, a=a, b=b, how=how)


@each_row(
    ("lines", "rank"),
    [
        ([channel("n1", 33, 1, 5, 6, "send"), channel("n2", 40, 0, 5, 6, "receive")], 5),
        ([channel("n1", 33, 1, 4, 5, "receive")], 5),
        # ranks of a smaller communicator: two processes would have the same one
        ([channel("n1", 33, 1, 1, 0, "send"), channel("n2", 40, 1, 1, 0, "send")], None),
    ],
)
def test_channels_seat_a_process_of_nccl(
    workspace: Workspace, lines: list[str], rank: int | None
) -> None:
    assert told(workspace, *lines, WARN)["first_failing_rank"] == rank


def test_a_message_of_two_ranks_of_several_lines_is_nobodys(workspace: Workspace) -> None:
    lines = [
        line
        for rank in (1, 0)
        for line in (
            f"[rank{rank}]: RuntimeError: Error(s) in loading state_dict for Net:",
            '\tMissing key(s) in state_dict: "a.weight", "b.weight". ',
            '\tUnexpected key(s) in state_dict: "module.a.weight", "module.b.weight". ',
        )
    ]
    end = "ERROR:torch.distributed.elastic.multiprocessing.api:failed (exitcode: 1) local_rank: 0 (pid: 7021) of binary: python"
    assert told(workspace, *lines, end)["first_failing_rank"] is None


@each_row(
    ("memory", "full"),
    [
        ("Mem:            31Gi        30Gi       210Mi", True),
        ("Mem:            31Gi        12Gi        18Gi", False),
    ],
)
def test_a_kill_on_a_full_host(workspace: Workspace, memory: str, full: bool) -> None:
    killed = "[ERROR] [launch.py:321:sigkill_handler] ['python', 'train.py', '--local_rank=0'] exits with return code = -9"
    row = told(workspace, "step 1 loss 2.0", "step 2 loss 1.9", killed, "$ free -h", memory)
    assert (row["category"] == "oom") is full
