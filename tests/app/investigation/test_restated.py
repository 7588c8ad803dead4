"""An effect that the person states is no answer; one that they did not know of is."""

from __future__ import annotations

from pathlib import Path

import pytest

from firstfault.workspace import Workspace
from firstfault_tools.findings import Verdict

SLOWER = "".join(
    f"step {n} loss {3 - n / 500:.3f} step_time {2.0 if n < 120 else 3.1:.2f} s\n"
    for n in range(1, 240)
)
CURVE = "step,loss\n" + "".join(
    f"{n},{(2.2 + (n - 300) / 90 if n > 300 else 4 - n / 170):.4f}\n" for n in range(10, 600, 10)
)


@pytest.mark.parametrize(
    ("log", "name", "question", "verdict"),
    [
        (SLOWER, "train.log", "50 % slower since step 120. network?", Verdict.UNKNOWN),
        (SLOWER, "train.log", "what do you see in this log?", Verdict.FAULT),
        (CURVE, "loss.csv", "loss explodes after 300, lr or a bad GPU?", Verdict.UNKNOWN),
        (CURVE, "loss.csv", "what do you see in this curve?", Verdict.FAULT),
    ],
)
def test_effect_that_is_stated_stays_open(
    tmp_path: Path, log: str, name: str, question: str, verdict: Verdict
) -> None:
    path = tmp_path / name
    path.write_text(log)
    diagnosis = Workspace().diagnose_paths([path], question)
    assert diagnosis.verdict is verdict
    assert diagnosis.category is None or verdict is Verdict.FAULT
