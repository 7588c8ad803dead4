"""What the run trained on after for long did not end it, where another cause elsewhere is told of the end."""

from __future__ import annotations

from pathlib import Path

import pytest

from firstfault.workspace import Workspace

STEPS = "".join(
    f"0: 2026-03-11 03:{30 + i // 6:02d}:{i % 6}0 Training epoch 0, iteration {i + 100}/60000 | lr: 2.4e-04 | reduced_train_loss: {3 - i / 90:.3f} | train_step_timing in s: 9.9\n"
    for i in range(60)
)
END = "35: 2026-03-11 03:49:59 RuntimeError: CUDA error: unspecified launch failure\n"
PORT = "Mar 11 03:{at} {host} kernel: mlx5_core 0000:5e:00.0: Port module event: module 0, Cable error\n"
XID = "Mar 11 03:39:55 gpu-h045 kernel: NVRM: Xid (PCI:0000:5d:00): 79, pid=11, name=python3, GPU has fallen off the bus.\n"


@pytest.mark.parametrize(
    ("journal", "leads"),
    [
        pytest.param(PORT.format(at="31:07", host="gpu-h042") + XID, "Xid 79", id="long-before-and-elsewhere"),
        pytest.param(PORT.format(at="39:40", host="gpu-h042") + XID, "Cable error", id="right-before"),
    ],
)  # fmt: skip
def test_a_cause_that_the_run_outlived_until_another_does_not_lead(
    journal: str, leads: str, tmp_path: Path
) -> None:
    run, kernel = tmp_path / "job.out", tmp_path / "journal.txt"
    run.write_text(STEPS + END)
    kernel.write_text(journal)
    assert leads in Workspace().diagnose_paths([run, kernel]).root_cause
