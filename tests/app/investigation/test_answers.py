"""A harmless line becomes the answer only to the complaint that it accounts for."""

from __future__ import annotations

from pathlib import Path

import pytest

from firstfault.workspace import Workspace

STEP = "[rank0] iteration {step:8d}/ 100 | elapsed time per iteration (ms): 911.4 | lm loss: 2.{step:03d}E+00 | grad norm: 0.750\n"
WORKERS = (
    "UserWarning: This DataLoader will create 64 worker processes in total. Our suggested max number of "
    "worker in current system is 8, which is smaller than what this DataLoader is going to create.\n"
)


@pytest.mark.parametrize(
    ("question", "verdict", "named"),
    [
        ("Steps take 0.9 s instead of 0.4 s since Monday.", "warning", True),
        ("Is this healthy?", "healthy", False),
        ("The model never stops talking, it goes on until max length.", "unknown", False),
    ],
)
def test_notice_about_workers(tmp_path: Path, question: str, verdict: str, named: bool) -> None:
    log = tmp_path / "run.log"
    log.write_text(WORKERS + "".join(STEP.format(step=step) for step in range(1, 60)))
    told = Workspace().diagnose_paths([log], question)
    assert told.verdict.value == verdict
    assert (told.category == "performance") is named
    assert ("worker" in told.root_cause.lower()) is named
