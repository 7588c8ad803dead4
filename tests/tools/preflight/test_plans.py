"""Timeouts, interval and clocks: passed, failed, and open with what is missing."""

from __future__ import annotations

import json

from tests.rows import each_row

from firstfault_tools.metrics.checklist import CheckState
from firstfault_tools.preflight.plans import (
    Planned,
    check_clocks,
    check_interval,
    check_timeouts,
)

PASSED, FAILED, UNKNOWN = CheckState.PASSED, CheckState.FAILED, CheckState.UNKNOWN


@each_row(
    ("text", "pause", "state", "says"),
    [
        ("", 120.0, PASSED, r"600 s (PyTorch's default"),
        ("", 400.0, FAILED, "against a pause of 400 s"),
        ("distributed_timeout_minutes ............. 30", 400.0, PASSED, "1800 s (as configured)"),
        ('"ddp_timeout": 7200', 3000.0, PASSED, "7200 s"),
        ("TORCH_NCCL_DUMP_ON_TIMEOUT=1", 10.0, PASSED, "pause of 10 s"),
        ("", None, UNKNOWN, "--save-seconds"),
    ],
)
def test_timeouts(text: str, pause: float | None, state: CheckState, says: str) -> None:
    found, reason = check_timeouts(Planned(save_seconds=pause), [("args.txt", text)])
    assert found is state
    assert says in reason
    assert ("leaves a dump" in reason) == (pause is not None and "DUMP" not in text)


@each_row(
    ("planned", "steps", "state"),
    [
        (Planned(1024, 60, 10), 360, PASSED),
        (Planned(1024, 60, 10), 5_000, FAILED),
        (Planned(1024, 60, 10), 20, FAILED),
        (Planned(1024, 60), 180, UNKNOWN),
        (Planned(), 180, UNKNOWN),
    ],
)
def test_interval(planned: Planned, steps: int, state: CheckState) -> None:
    found, reason = check_interval(
        planned, [("args.txt", f"  save_interval ............... {steps}")]
    )
    assert found is state, reason


def probe(host: str, **values: object) -> str:
    return json.dumps({"kind": "result", "host": host, "test": "clock", "status": "ok", "values": values})  # fmt: skip


CHRONY = "Reference ID    : A9FEA97B\nStratum         : 4\nSystem time     : 0.000{0} seconds slow of NTP time\n"


@each_row(
    ("texts", "state", "says"),
    [
        ([probe("a", offset_ms=0.2), probe("b", offset_ms=-0.4)], PASSED, "2 nodes synchronised, at most 0.6 ms apart"),
        ([probe("a", offset_ms=0.2), probe("b", offset_ms=-700)], FAILED, "b and a are 700 ms apart"),
        ([probe("a", synchronised=True), probe("b", synchronised=False)], FAILED, "not synchronised: b"),
        ([CHRONY.format(120), CHRONY.format(340)], PASSED, "at most 0.2 ms apart"),
        (["System clock synchronized: yes\n", "System clock synchronized: no\n"], FAILED, "node1.txt"),
        ([probe("a", offset_ms=0.2)], UNKNOWN, "at least two nodes"),
        (["torch==2.6.0\n", "torch==2.6.0\n"], UNKNOWN, "chronyc tracking"),
    ],
)  # fmt: skip
def test_clocks(texts: list[str], state: CheckState, says: str) -> None:
    found, reason = check_clocks([(f"node{n}.txt", text) for n, text in enumerate(texts)])
    assert found is state, reason
    assert says in reason
