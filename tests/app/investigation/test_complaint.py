"""Facts of a question are complaints; guesses, first steps and mere questions are none."""

from __future__ import annotations

from pathlib import Path

from tests.rows import each_row

from firstfault.investigation.complaint import read_complaint
from firstfault.workspace import Workspace
from firstfault_tools.findings import Complaint

STEP = "[rank0] iteration {step:8d}/ 100 | elapsed time per iteration (ms): 911.4 | lm loss: 2.{step:03d}E+00 | grad norm: 0.750\n"


@each_row(
    ("question", "complaint"),
    [
        ("Steps take 9.1 s instead of 5.1 s since Monday. Where is it lost?", Complaint.SLOW),
        ("Throughput fell from 142K to 89K tokens/s and nothing crashed.", Complaint.SLOW),
        ("It runs three times slower than last week.", Complaint.SLOW),
        ("The loss jumps to 9 after 2000 steps. Bad batch?", Complaint.DIVERGED),
        ("loss is nan from step 12 on", Complaint.DIVERGED),
        ("Is NCCL slow?", None),
        ("Is the loss nan?", None),
        ("The first iteration took 52 s instead of 0.4 s. Straggler?", None),
        ("I resume on 3 nodes instead of 4 and it dies.", None),
        ("", None),
    ],
)
def test_complaint(question: str, complaint: Complaint | None) -> None:
    assert read_complaint(question) is complaint


def test_slow_run_is_not_called_healthy(tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    log.write_text("".join(STEP.format(step=step) for step in range(1, 60)))
    workspace = Workspace()
    assert workspace.diagnose_paths([log]).verdict.value == "healthy"
    told = workspace.diagnose_paths([log], "Steps take 0.9 s instead of 0.4 s since Monday.")
    assert (told.verdict.value, told.category, told.confidence.value) == ("unknown", None, "possible")  # fmt: skip
    assert told.next_artefacts
    assert told.citations
