"""A process that ends itself since a service told it that another is lost is no crash of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from firstfault.workspace import Workspace

STEPS = "".join(
    f"I0614 04:05:{i:02d}.346975 139001 metric_logger.py:226] completed step: {5100 + i}, seconds: 3.304, loss: 2.520\n"
    for i in range(1, 40)
)
TOLD = (
    "2026-06-14 04:07:44.250193: F external/xla/xla/pjrt/distributed/client.h:80] Terminating process because the JAX distributed service "
    "detected fatal errors. This most likely indicates that another task died; see the other task logs for more details.\n"
    "/job:jax_worker/replica:0/task:21\nThe tasks have crashed.\n"
)
ABORT = (
    "Fatal Python error: Aborted\n\nThread 0x00007f5e2bfff6c0 (most recent call first):\n"
    '  File "/usr/local/lib/python3.12/threading.py", line 359 in wait\n'
    "Current thread 0x00007f60c14dd740 (most recent call first):\n"
    '  File "/opt/maxtext/MaxText/train.py", line 640 in train_loop\n  File "/opt/maxtext/MaxText/train.py", line 707 in main\n'
)


@pytest.mark.parametrize(
    ("log", "verdict"),
    [
        pytest.param(STEPS + TOLD + ABORT, "unknown", id="told-of-a-loss"),
        pytest.param(STEPS + ABORT, "fault", id="of-its-own"),
        pytest.param(STEPS + TOLD + ABORT.replace("Aborted", "Segmentation fault"), "fault", id="a-crash-is-one"),
    ],
)  # fmt: skip
def test_the_abort(log: str, verdict: str, tmp_path: Path) -> None:
    path = tmp_path / "process0.log"
    path.write_text(log, encoding="utf-8")
    found = Workspace().diagnose_paths([path])
    assert str(found.verdict) == verdict, found.root_cause
