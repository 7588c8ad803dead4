"""What sets one apart from its like, what two starts say differently, and lines that speak of what a question names."""

from __future__ import annotations

import re

import pytest
from tests.app.conversation.conftest import AskOfLog

from firstfault.conversation.widths import read_parts

PODS = "\n".join(
    [
        "2025-11-20 06:15:30 worker-1 sidecar 'report' started inside the training container, rss 71 GiB",
        *(f"2025-11-20 06:37:3{n} worker-{n} memwatch memory.current={389 if n == 1 else 316 + n} GiB of 960 GiB" for n in range(4)),
        "2025-11-20 06:38:00 worker-0 [rank0] step=500, loss=1.3144, samples/sec=398.6",
        "2025-11-20 06:58:47 worker-1 kernel: Memory cgroup out of memory: Killed process 41877 (pt_data_worker) total-vm:99kB, anon-rss:8178892kB",
    ]
)  # fmt: skip
STARTS = "\n".join(
    [
        "2025-02-08 04:31:00 train_batch_size ............. 1024",
        "2025-02-08 04:32:10 Loading checkpoint from /ckpt/global_step22500",
        "2025-02-08 04:32:54 successfully loaded checkpoint global_step22500",
        "2025-02-08 04:38:15 step 22550 | loss 2.2334 | grad_norm 0.382 | lr 2.205e-04",
        "2025-02-08 04:41:30 step 22600 | loss 2.2302 | grad_norm 0.379 | lr 2.201e-04",
        "2025-02-08 06:30:54 slurmstepd: JOB 77120 PREEMPTED, SIGTERM",
        "2025-02-08 09:12:00 train_batch_size ............. 512",
        "2025-02-08 09:13:05 Loading checkpoint from /ckpt/global_step22500",
        "2025-02-08 09:13:45 successfully loaded checkpoint global_step22500",
        "2025-02-08 09:18:15 step 22550 | loss 3.2334 | grad_norm 8.382 | lr 2.205e-04",
    ]
)
LINKS = "\n".join(
    [
        "2025-04-17 13:39:50 n03 kernel: mlx5_core 0000:5d:00.0 mlx5_1: Port: 1 Link DOWN",
        "2025-04-17 13:39:52 n03 kernel: mlx5_core 0000:5d:00.0 mlx5_1: Port: 1 Link UP",
        *(f"2025-04-17 14:{n}:00 [rank0] step {100 + n} loss 2.{n}" for n in range(10, 40)),
        "2025-04-17 14:41:00 [rank2]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
    ]
)


@pytest.mark.parametrize(
    ("log", "question", "says", "never"),
    [
        (PODS, "why only worker-1?", r"What sets worker-1 apart(?s:.*)389 against 316 to 319(?s:.*)", "No line that was read tells"),
        (STARTS, "what changed?", r"1024`(?s:.*)then `(?s:.*)512`", "does not say"),
        (LINKS, "why did the link mlx5_1 go down?", r"give no reason for that(?s:.*)Link DOWN(?s:.*)GPU out of memory", "Because of this"),
    ],
    ids=["pods", "starts", "another subject"],
)  # fmt: skip
def test_answers_stand_on_lines(
    log: str, question: str, says: str, never: str, ask_of_log: AskOfLog
) -> None:
    told = ask_of_log(log, question)
    assert re.search(says, told), told
    assert never not in told


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("bf16 weights+grads, fp32 master and moments", {"weight_width": 2, "grad_width": 2, "master_width": 4, "moment_width": 8}),
        ("fp32 master, adam 8bit moments, bf16 weights", {"master_width": 4, "moment_width": 2, "weight_width": 2}),
        ("a 7B model in bf16 with adam", {}),
        ("no fp32 master, bf16 weights and bf16 grads", {"weight_width": 2, "grad_width": 2}),
    ],
)  # fmt: skip
def test_the_formats_of_parts_are_read(text: str, parts: dict[str, float]) -> None:
    assert read_parts(text) == parts
