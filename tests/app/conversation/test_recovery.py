"""Is what was away told as back, flapping or away, and does the answer name the right node, checkpoint and cost?"""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

STEPS = "".join(
    f"[2025-11-04 13:{n:02}:10] [Rank 0] step={n}0 loss=1.40 lr=1.0e-05 iter_time=6.4s\n"
    for n in range(40, 59)
)
FLAPS = (
    "[2025-11-04 13:39:11] node-111: ranks 0-7  8x H100-SXM\n[2025-11-04 13:39:11] node-113: ranks 8-15  8x H100-SXM\n"
    + STEPS
    + """\
[2025-11-04 13:58:20] [Rank 0] saving checkpoint global_step580 -> /lustre/run done in 41.8s
[2025-11-04 13:58:40] healthd node-113 WARN: mlx5_4 (enp155s0np0) rx_power -9.1 dBm
[2025-11-04 13:59:33] node-113 kernel: mlx5_core 0000:9b:00.0 enp155s0np0: Link down
[2025-11-04 13:59:38] leaf-r4 %PORT-5-IF_DOWN: Ethernet1/13/1 down (peer node-113 enp155s0np0)
[2025-11-04 13:59:44] node-111:5112:5412 [4] NCCL WARN NET/IB: Got completion from peer 10.20.4.113<40761> with status=12 opcode=0 len=0 vendor err 129 hca mlx5_4
[2025-11-04 13:59:46] [rank4]:[E1104 ProcessGroupNCCL.cpp:1895] [PG ID 0 Rank 4] Process group watchdog thread terminated with exception: NCCL error: remote process exited
[2025-11-04 13:59:51] node-113 kernel: mlx5_core 0000:9b:00.0 enp155s0np0: Link up
[2025-11-04 13:59:58] node-113 kernel: mlx5_core 0000:9b:00.0 enp155s0np0: Link down
[2025-11-04 14:00:14] node-113 kernel: mlx5_core 0000:9b:00.0 enp155s0np0: Link up
[2025-11-04 14:00:20] supervisor: job run7 FAILED, auto_restart=off, checkpoint latest=global_step580
"""
)
GROWS = (
    "INFO - 8 nodes, gpus=64\n"
    + "".join(
        f"[rank0]:2025-10-22 19:{n:02}:30,673 - root - INFO - step: {100 + n}  loss:  {2.1 + (n > 30) * 0.2 * (n - 30):.4f}  grad_norm:   {0.5 * 1.09**n:.4f}  lr: 3.000e-04\n"
        + (
            f"[rank0]:2025-10-22 19:{n:02}:40,000 - root - INFO - Saving the checkpoint to /fsx/checkpoint/step-{100 + n}\n"
            f"[rank0]:2025-10-22 19:{n:02}:50,000 - root - INFO - Finished saving the checkpoint in 9.95 seconds.\n"
            if n in (2, 25, 45)
            else ""
        )
        for n in range(1, 50)
    )
    + (
        "[rank0]:2025-10-22 19:51:17,614 - root - INFO - step: 150  loss:     nan  grad_norm:      nan  lr: 2.998e-04\n"
        "[rank0]:2025-10-22 19:52:17,614 - root - INFO - step: 151  loss:     nan  grad_norm:      nan  lr: 2.998e-04\n"
        "[rank0]:2025-10-22 19:53:03,272 - root - ERROR - alert hook: loss nan, sending SIGTERM\n"
    )
)

EATEN = "".join(
    f"2025-12-01 22:{n:02}:33,407 (driver) step:{n} reward/mean:0.300 timing/step:169.3s\n2025-12-01 22:{n:02}:34,576 (monitor) pod worker-1 {509 + (n - 1) * 13}GiB limit 900GiB\n"
    for n in range(1, 31)
) + (
    "2025-12-01 22:31:34,576 (monitor) pod worker-1 898GiB limit 900GiB\n"
    "2025-12-01 22:32:06,103 (a3-22 kernel) Memory cgroup out of memory: Killed process 88412 (ray::WorkerDict) total-vm:311240512kB, anon-rss:61120340kB, file-rss:210004kB\n"
    "2025-12-01 22:32:06,315 (a3-22 kernel) Tasks state: [ 87703] ray::Rewards rss 398GiB; [ 88412] ray::WorkerDict rank13 rss 58.3GiB\n"
)


@pytest.mark.parametrize(
    ("log", "question", "said"),
    [
        (FLAPS, "rank 4 threw the first error, should i drain node-111?", r"^No, .*node-113, not at node-111"),
        (FLAPS, "link is up again, can i restart on the same nodes?", r"^It is up by its own word, which is no reason(?s:.*)2 times(?s:.*)without node-113(?s:.*)step 580"),
        (FLAPS, "exactly which port do i send the tech to", r"node-113(?s:.*)Ethernet1/13/1"),
        (FLAPS, "did someone bump the cable on node-113?", r"^The log does not show that"),
        (FLAPS, "what would prove that it is the cable", r"move the suspected cable"),
        (FLAPS, "all these NCCL errors.. so its the fabric right?", r"^(?!The closest)(?s:.*)node-113"),
        (EATEN, "who ate the memory", r"^ray::Rewards held the most, 398 GiB(?s:.*)only the victim(?s:.*)from 509 to 898"),
        (GROWS, "from which checkpoint do I resume", r"^Resume from step 102"),
        (GROWS, "Explique-moi ça en trois phrases pour mon chef, avec le coût en GPU-heures", r"calculation became unstable(?s:.*)GPU-hours: "),
    ],
)  # fmt: skip
def test_what_is_asked_is_answered(
    ask_of_log: Callable[[str, str], str], log: str, question: str, said: str
) -> None:
    answer = ask_of_log(log, question)
    assert re.search(said, answer), answer
