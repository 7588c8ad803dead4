"""A fault stays one when a passing test, or the good log of another job, is laid beside it."""

from __future__ import annotations

from pathlib import Path

import pytest
from evals.cases import Case, load_cases

from firstfault.workspace import Workspace
from firstfault_tools.findings import Verdict

SAMPLED = 30
PASSED = (
    "# nThread 1 nGpus 1 minBytes 1073741824 maxBytes 4294967296\n# Using devices\n"
    "#  Rank  0 Group  0 Pid 1201 on gpu-a1 device  0 [0x1b] NVIDIA H100\n"
    "#       size         count      type   redop    root     time   algbw   busbw #wrong\n"
    "  1073741824     268435456     float     sum      -1     6021  178.33  334.37      0\n"
    "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 334.37\n"
)
OTHER = (
    "".join(
        f"2026-11-09 08:{i // 60:02d}:{i % 60:02d} step {i * 100} loss {3 - i / 60:.3f}\n"
        for i in range(1, 48)
    )
    + "2026-11-09 08:01:00 training finished\n"
)


def choose_faults() -> list[Case]:
    cases = [c for c in load_cases() if c.expect.kind not in ("healthy", "undecided")]
    return cases[:: max(1, len(cases) // SAMPLED)]


@pytest.fixture(scope="module")
def workspace() -> Workspace:
    return Workspace()


@pytest.mark.parametrize("case", choose_faults(), ids=lambda case: case.id)
def test_fault_stays(case: Case, workspace: Workspace, tmp_path: Path) -> None:
    for name, text in (("nccl_node09.txt", PASSED), ("other-job.log", OTHER)):
        beside = tmp_path / name
        beside.write_text(text, encoding="utf-8")
        found = workspace.diagnose_paths([*case.inputs, beside], case.question)
        assert found.verdict is not Verdict.HEALTHY, f"{name}: {found.root_cause}"
