"""Is it told what became of the run, and what is done with it now?"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from firstfault.investigation.diagnosis import Diagnosis, PhaseName, RunState
from firstfault.investigation.phases import STATES
from firstfault.ui.card import make_card
from firstfault.ui.extent import say_run
from firstfault.workspace import Workspace
from firstfault_tools.findings import Category

WORKSPACE = Workspace()
STAMP = "2026-03-10 02:{m:02d}:{s:02d}"
XID = "[Tue Mar 10 02:00:25 2026] NVRM: Xid (PCI:0000:3b:00): 79, pid=4123, name=python, GPU has fallen off the bus.\n"
OOM = "[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 3 has a total capacity of 79.15 GiB of which 1.20 GiB is free.\n"
LOAD = "loading checkpoint from /ckpt at iteration 20\nsuccessfully loaded checkpoint from /ckpt [ t 0 ] at iteration 20\n"


def steps(first: int, last: int, loss: str = "2.1000", minute: int = 0) -> str:
    """Step lines of Megatron-LM, one a second."""
    rows = (
        f"[{STAMP.format(m=minute, s=n % 60)}] iteration {n:>6}/ 1000 | elapsed time per iteration (ms): 1000.0 | lm loss: {loss} | grad norm: 1.000 |"
        for n in range(first, last + 1)
    )
    return "\n".join(rows) + "\n"


def diagnose(tmp_path: Path, logs: dict[str, str]) -> Diagnosis:
    paths = [tmp_path / name for name in logs]
    for path in paths:
        path.write_text(logs[path.name], encoding="utf-8")
    return WORKSPACE.diagnose_paths(paths)


SAVED = steps(1, 20) + "successfully saved checkpoint from iteration      20 to /ckpt\n"
HELD = "(stop it if it still holds its GPUs"
BARE = OOM.replace("torch.OutOfMemoryError: ", "")
LOGS = [
    ("raised", {"a.log": SAVED + steps(21, 24) + OOM}, RunState.ENDED, "ended (once mended, start it again from step 20)"),
    ("goes on with NaN", {"a.log": steps(1, 20) + steps(21, 40, "nan")}, RunState.GOES_ON, "goes on (stop it: what it trains from here on may be worthless)"),
    ("started again", {"a.log": SAVED + steps(21, 24) + OOM + LOAD + steps(21, 23, minute=5)}, RunState.STARTED_AGAIN, "was started again (it can happen again"),
    ("never a step", {"a.log": "[rank3]: loading the model\n" + BARE}, RunState.NOT_BEGUN, f"takes no step yet {HELD}"),
    ("no step after it", {"a.log": steps(1, 24), "dmesg.txt": XID}, RunState.STOPPED, f"takes no step any more {HELD}"),
    ("steps after it", {"a.log": steps(1, 59), "dmesg.txt": XID}, RunState.GOES_ON, "goes on"),
]  # fmt: skip


@pytest.mark.parametrize(("logs", "state", "run"), [x[1:] for x in LOGS], ids=[x[0] for x in LOGS])
def test_what_became_of_the_run(
    tmp_path: Path, logs: dict[str, str], state: RunState, run: str
) -> None:
    diagnosis = diagnose(tmp_path, logs)
    assert diagnosis.run_state is state
    triage = next(p for p in diagnosis.phases if p.name is PhaseName.TRIAGE)
    assert triage.summary.startswith(STATES[state])
    facts = dict(make_card(diagnosis, WORKSPACE.knowledge.pages).facts)
    assert facts["Run"].startswith(run)


def test_nothing_is_told_of_a_healthy_run(tmp_path: Path) -> None:
    diagnosis = diagnose(tmp_path, {"a.log": steps(1, 59)})
    assert diagnosis.run_state is RunState.UNSHOWN
    assert "Run" not in dict(make_card(diagnosis).facts)


def test_a_slow_run_whose_node_is_taken_out_is_stopped_after_a_save(tmp_path: Path) -> None:
    diagnosis = diagnose(tmp_path, {"a.log": steps(1, 20) + steps(21, 40, "nan")})
    slow = replace(diagnosis, category=Category.PERFORMANCE, host="gpu-a17")
    assert "without" not in say_run(slow, "")[1]
    assert say_run(slow, "gpu-a17") == (
        "goes on",
        "let it save, then stop it and start it again without gpu-a17",
    )
