"""What people say beside a log that is well: what the log settles is healthy, trouble in any words is not."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.rows import each_row

from firstfault.workspace import Workspace
from firstfault_tools.findings import Verdict
from firstfault_tools.knowledge.pack import read_yaml

HERE = Path(__file__).parent / "statements"
TABLE = read_yaml((HERE / "statements.yaml").read_text(encoding="utf-8"))
FINE = [
    pytest.param(row["beside"], row["says"], id=f"{kind}-{n}")
    for kind, rows in TABLE["fine"].items()
    for n, row in enumerate(rows)
]
GOING = ("going_on", "limit")


@pytest.fixture(scope="module")
def workspace() -> Workspace:
    return Workspace()


@each_row(("beside", "says"), FINE)
def test_what_the_log_settles_is_healthy(beside: str, says: str, workspace: Workspace) -> None:
    found = workspace.diagnose_paths([HERE / f"{beside}.log"], says)
    assert found.verdict is Verdict.HEALTHY, found.root_cause


@each_row("says", TABLE["trouble"])
def test_trouble_is_never_waved_through(says: str, workspace: Workspace) -> None:
    for name in GOING:
        found = workspace.diagnose_paths([HERE / f"{name}.log"], says)
        assert found.verdict is not Verdict.HEALTHY, f"{name}: {found.root_cause}"
