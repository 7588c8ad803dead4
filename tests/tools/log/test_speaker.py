"""Who wrote a line: prefixes of the launchers seen in the field."""

from __future__ import annotations

import pytest

from firstfault_tools.log.speaker import read_speaker


@pytest.mark.parametrize(
    ("text", "rank", "host", "task", "body"),
    [
        (
            "[rank5]: Traceback (most recent call last):",
            5,
            None,
            None,
            "Traceback (most recent call last):",
        ),
        ("[default3]:boom", 3, None, None, "boom"),
        ("[2026-01-02 03:04:05] ERROR [train.util:158, rank=41] Uncaught x", 41, None, None, None),
        ("EI0002: [PID: 7] The wait execution times out", None, None, None, None),
        ("[ERROR] 2026 (PID:7, Device:3, RankID:11) ERR02200 DIST call", 11, None, None, None),
        (
            "2026-09-11 05:41:24 [rank3]:[E911 05:41:24.04 ProcessGroupNCCL.cpp:632] [Rank 3] x",
            3,
            None,
            None,
            None,
        ),
        ("[1,2]<stdout>:nccl-worker-0:199:263 [2] NCCL INFO x", 2, "nccl-worker-0", None, None),
        ("(WorkerDict pid=31877, ip=10.88.4.13) step", None, "10.88.4.13", None, "step"),
        ("[task 42 s2grn7] E0905 x failed", None, "s2grn7", 42, "E0905 x failed"),
        ("[worker-1] E0905 x failed", None, None, None, None),
        ("12: RuntimeError: x", None, None, 12, "RuntimeError: x"),
        ("[pod/train-3/pytorch] hello", None, "train-3", None, "hello"),
        ("10.40.23.6: gpu-6:228460:228600 [0] NCCL INFO x", None, "10.40.23.6", None, None),
        ("[E ProcessGroupNCCL.cpp:485] [Rank 6] Watchdog caught", 6, None, None, None),
        ("AssertionError: Rank 57: found NaN in local grad norm", 57, None, None, None),
        (
            "Traceback (most recent call last):",
            None,
            None,
            None,
            "Traceback (most recent call last):",
        ),
        ("RuntimeError: it broke", None, None, None, "RuntimeError: it broke"),
        ('  File "/a/b.py", line 3, in f', None, None, None, None),
        ("step 12 loss 2.5", None, None, None, "step 12 loss 2.5"),
    ],
)
def test_speaker(
    text: str, rank: int | None, host: str | None, task: int | None, body: str | None
) -> None:
    speaker, offset = read_speaker(text)
    assert (speaker.rank, speaker.host, speaker.task) == (rank, host, task)
    if body is not None:
        assert text[offset:] == body


def test_global_rank_of_the_prefix_beats_the_group_rank_of_the_body() -> None:
    speaker, _ = read_speaker("[rank15]:[E227 07:12:40.0 P.cpp:1] [PG ID 9 PG GUID 72 Rank 1] x")
    assert speaker.rank == 15
