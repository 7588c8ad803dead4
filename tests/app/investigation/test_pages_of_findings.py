"""Every finding points to a page that exists, so that a fault never lacks its fixes by a typing slip."""

from __future__ import annotations

from pathlib import Path

import pytest

from firstfault.investigation.examination import examine
from firstfault.workspace import Workspace
from firstfault_tools.findings import Level
from firstfault_tools.registry import Artefact

CASES = sorted((Path(__file__).parents[3] / "evals" / "cases").glob("*/case.yaml"))
WORKSPACE = Workspace()


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.parent.name)
def test_pages_exist(case: Path) -> None:
    files = [p for p in sorted(case.parent.iterdir()) if p.name != "case.yaml" and p.is_file()]
    examination = examine([Artefact(p.name, p) for p in files], WORKSPACE.knowledge.signatures)
    pages = WORKSPACE.knowledge.pages
    unknown = {(f.kind, f.page) for f in examination.findings if f.page and f.page not in pages}
    assert not unknown
    first = examination.chain.first
    if first is not None and first.level is Level.CAUSE:
        assert first.page, f"{first.kind} has no page"
