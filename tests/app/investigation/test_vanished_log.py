"""A log that vanishes between the scan and the look at its quotes is named, and nothing is lost else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from firstfault.investigation import diagnose as door
from firstfault.investigation.examination import Examination
from firstfault.investigation.verdict import Judgement
from firstfault.workspace import Workspace


def test_vanished_log_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "run.log"
    log.write_text(
        "[rank0]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n"
    )
    judge = door.judge

    def judge_late(examination: Examination, *rest: Any) -> Judgement:
        log.unlink(missing_ok=True)
        return judge(examination, *rest)

    monkeypatch.setattr(door, "judge", judge_late)
    diagnosis = Workspace().diagnose_paths([log])
    assert [s.what for s in diagnosis.input.skipped] == ["run.log"]
    assert "run it once more" in diagnosis.input.skipped[0].why
    assert diagnosis.verdict.value == "unknown"
