"""Is the time from which on it lasts the same, whether all lines are measured or only those near the deciding one?"""

from __future__ import annotations

from pathlib import Path

import pytest
from evals.cases import find_case

from firstfault.investigation.begin import time_of_fault
from firstfault.investigation.diagnosis import Diagnosis
from firstfault.postmortem import extent
from firstfault.ui.card import make_card
from firstfault.workspace import Workspace
from firstfault_tools.log import plan

CASES = [
    "comm-ib-port-flap",
    "lab-oom_one_rank",
    "public-comm-27-per-rank-continue-skips-backward",
]
STEP = "[rank0]: 2026-11-27 {h:02d}:{m:02d}:{s:02d} INFO step {n} loss 2.31 grad_norm 0.97\n"
TRACEBACK = 'Traceback (most recent call last):\n  File "/srv/train.py", line 90, in step\n    torch.save(x)\n'
FULL = "OSError: [Errno 28] No space left on device: '/ckpt/x.pt'\n"
AT = "[rank3]: 2026-11-27 11:10:00 ERROR "
CLOSED = "2026-11-27 11:40:00 INFO launcher: closing signal SIGTERM\n"


def list_inputs(case: str) -> list[Path]:
    return [p for p in sorted(find_case(case).iterdir()) if p.name != "case.yaml"]


def diagnose(paths: list[Path], patch: pytest.MonkeyPatch, large: bool) -> Diagnosis:
    with patch.context() as now:
        if large:
            now.setattr(extent, "MOST_BYTES", 0)
            now.setattr(plan, "COMPLETE_BYTES", 64 * 1024)
        return Workspace().diagnose_paths(paths)


@pytest.mark.parametrize("case", CASES)
def test_since_and_chain_are_those_of_the_whole_measure(
    case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    small, large = (diagnose(list_inputs(case), monkeypatch, x) for x in (False, True))
    assert small.measured is not None
    assert large.measured is None, "hours and silences need every line"
    assert time_of_fault(large) == time_of_fault(small) != (None, False)
    for one, other in zip(large.cascade, small.cascade, strict=True):
        assert one.at in (None, other.at)


def test_what_only_the_whole_log_tells_is_not_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """No line near it prints a time: the run stood still by what all its lines tell."""
    paths = list_inputs("lab-missing_collective")
    small, large = (diagnose(paths, monkeypatch, x) for x in (False, True))
    assert time_of_fault(small)[1], "only about then"
    assert time_of_fault(large) == (None, False)


@pytest.mark.parametrize(
    ("end", "since", "idle"),
    [
        (AT + FULL + CLOSED, "27 Nov 2026, 11:10:00 UTC", "4.0 GPU-hours to the last line"),
        (TRACEBACK + FULL + CLOSED, "about 27 Nov 2026, 11:40:00 UTC", ""),
        (TRACEBACK + FULL, "about 27 Nov 2026, 11:06:30 UTC", ""),
    ],
    ids=["stamped", "stamp-after", "stamp-before"],
)
def test_the_card_of_a_large_log_says_since_when(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str, since: str, idle: str
) -> None:
    steps = (STEP.format(h=t // 3600, m=t // 60 % 60, s=t % 60, n=t // 10) for t in range(0, 40_000, 10))  # fmt: skip
    log = tmp_path / "train.log"
    log.write_text("[rank0]: 2026-11-27 00:00:00 INFO world_size=8\n" + "".join(steps) + end)
    large = diagnose([log], monkeypatch, True)
    assert large.timed is not None
    assert not large.timed.whole
    facts = dict(make_card(large).facts)
    assert facts["Since"] == since
    if idle:
        assert facts["Idle so far"].startswith(idle)
