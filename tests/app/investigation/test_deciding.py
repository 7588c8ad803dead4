"""Is the frame of a table kept out of what is shown as the deciding line?"""

from __future__ import annotations

from tests.rows import each_row

from firstfault.investigation.deciding import drop_frames
from firstfault_tools.findings import Evidence, Finding, Level
from firstfault_tools.hardware.host.tables import is_frame


@each_row(
    ("text", "frame"),
    [
        ("------------ ---------- --------", True),
        ("+-----+------+", True),
        ("JobID           State ExitCode", True),
        ("NAME READY STATUS RESTARTS AGE", True),
        ("step,loss,grad_norm,lr", True),
        ("| Device | Status | Errors |", True),
        ("| diagnostic                | Fail                       |", False),
        ("882134   scavenge   low  PREEMPTED   0:0", False),
        ("RuntimeError: CUDA error: unspecified launch failure", False),
        ("Killed", False),
    ],
)
def test_a_rule_and_names_of_columns_are_a_frame(text: str, frame: bool) -> None:
    assert is_frame(text) is frame


def test_a_finding_keeps_what_it_rests_on() -> None:
    head, row = Evidence("a.txt", 1, "JobID           State ExitCode"), Evidence("a.txt", 3, "17  FAILED  1:0")  # fmt: skip
    finding = Finding(kind="x", title="x", level=Level.CAUSE, evidence=(head, row))
    assert drop_frames(finding).evidence == (row,)
    alone = Finding(kind="x", title="x", level=Level.CAUSE, evidence=(head,))
    assert drop_frames(alone) is alone
