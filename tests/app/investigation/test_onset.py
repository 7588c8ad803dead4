"""The line that begins where the numbers change is told with them; one that came all along is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from firstfault.workspace import Workspace

TROUBLE = "WARNING fetcher: object store answered 503, retry in 4 s"
KNOWN = "DeepSpeed: 4 pytorch allocator cache flushes since last step. this happens when there is high memory pressure"


def run(line: str, always: bool) -> str:
    rows = []
    for step in range(1, 90):
        slow = step > 45
        rows.append(
            f"step {step} loss {3 - 0.01 * step:.3f} step_time {6.1 if slow else 2.0:.2f}s lr 1.0e-04"
        )
        if slow or always:
            rows.append(line)
    return "\n".join(rows) + "\n"


@pytest.mark.parametrize(
    ("line", "always", "words"),
    [
        (TROUBLE, False, "503"),
        ("W fetch worker: reward service refused the connection", False, "reward service refused"),
        (KNOWN, False, "what accounts for it: 4 allocator cache flushes"),
        (TROUBLE, True, ""),
        ("INFO batch written to the tracker", False, ""),
    ],
)  # fmt: skip
def test_line_that_begins_with_the_change(
    line: str, always: bool, words: str, tmp_path: Path
) -> None:
    path = tmp_path / "run.log"
    path.write_text(run(line, always), encoding="utf-8")
    found = Workspace().diagnose_paths([path])
    assert found.signature == "metrics.throughput_drop"
    assert words in found.root_cause
    assert words or "again and again" not in found.root_cause
