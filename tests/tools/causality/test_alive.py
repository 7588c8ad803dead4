"""A task that was declared lost, and what it says afterwards."""

from __future__ import annotations

from pathlib import Path

import pytest

from firstfault.intake.collect import collect_paths
from firstfault.investigation.examination import examine
from firstfault.workspace import Workspace

LOST = "0: UNAVAILABLE: Task /job:jax_worker/replica:0/task:5 heartbeat timeout."


@pytest.mark.parametrize(
    ("after", "alive"),
    [
        ("5: I0102 10:00:31 compiling module jit_train_step took 212 s", True),
        ("3: I0102 10:00:31 compiling module jit_train_step took 212 s", False),
        ("5: E0102 10:00:31 step aborted, terminating", False),
    ],
)
def test_a_task_that_works_on_was_not_dead(tmp_path: Path, after: str, alive: bool) -> None:
    log = tmp_path / "job.log"
    log.write_text("\n".join(["0: starting", "5: starting", LOST, after, after]) + "\n")
    workspace = Workspace()
    artefacts = collect_paths([log], workspace.spool).artefacts
    found = examine(artefacts, workspace.knowledge.signatures).findings
    (told,) = (f for f in found if f.kind == "signature.jax-task-unhealthy")
    assert ("not dead" in told.title) is alive
