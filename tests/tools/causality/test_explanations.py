"""Why did an exception come about? Words from values, code and settings, for each kind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from firstfault.workspace import Workspace
from firstfault_tools.causality.explanations import _load
from firstfault_tools.knowledge.pack import read_yaml

ROWS = read_yaml((Path(__file__).parent / "explanations.yaml").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def workspace() -> Workspace:
    return Workspace()


def write_log(row: dict[str, Any]) -> str:
    """Printed lines, then one traceback for each rank."""
    raised = ["Traceback (most recent call last):"]
    for place, code in row["stack"]:
        raised += [f'  File "{place}", line 12, in run', f"    {code}"]
    raised.append(row["raised"])
    ranks = row.get("ranks", [""])
    lines = row.get("before", [])
    return "\n".join([*lines, *(f"{r}{line}" for r in ranks for line in raised)]) + "\n"


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["id"])
def test_reason(row: dict[str, Any], workspace: Workspace, tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    path.write_text(write_log(row), encoding="utf-8")
    found = workspace.diagnose_paths([path])
    for words in row.get("says", []):
        assert words in found.root_cause, found.root_cause
    for words in row.get("not", []):
        assert words not in found.root_cause, found.root_cause
    if "category" in row:
        assert found.category == row["category"], found.root_cause
    if "page" in row:
        assert any(c.page == row["page"] for c in found.citations), found.root_cause


def test_every_kind_names_pages_and_signatures_that_exist() -> None:
    knowledge = Path(__file__).parents[3] / "knowledge"
    pages = {p.stem for p in (knowledge / "pages").rglob("*.md")}
    signatures = {p.stem for p in (knowledge / "signatures").rglob("*.yaml")}
    for kind in _load()[0]:
        assert kind.page is None or kind.page in pages, kind.page
        assert kind.signatures <= signatures, kind.signatures - signatures
        assert kind.says.count("[") == kind.says.count("]")
