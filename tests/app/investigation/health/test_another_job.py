"""The good end of another day's job does not speak for a log of ranks that neither ends nor takes a step."""

from __future__ import annotations

from pathlib import Path

import pytest

from firstfault.workspace import Workspace
from firstfault_tools.findings import Verdict

STARTING = "".join(
    f"[rank{rank}]: 2026-03-02 14:00:{10 + n},417 INFO loading weights, part {n} of 17\n"
    for n in range(6)
    for rank in range(2)
)


def finished(day: str) -> str:
    steps = "".join(
        f"{day} 15:{n // 60:02d}:{n % 60:02d},000 INFO step {n}/300 loss {3 - n / 200:.4f} step time 1.00 s\n"
        for n in range(1, 301)
    )
    return f"{steps}{day} 15:06:00,000 INFO training completed: 300 of 300 steps\n"


@pytest.mark.parametrize(
    ("day", "verdict"), [("2026-03-02", Verdict.HEALTHY), ("2026-05-20", Verdict.UNKNOWN)]
)
def test_end_of_another_day(tmp_path: Path, day: str, verdict: Verdict) -> None:
    (tmp_path / "ranks.log").write_text(STARTING)
    (tmp_path / "main.log").write_text(finished(day))
    assert Workspace().diagnose_paths([tmp_path], "is this run fine?").verdict is verdict
