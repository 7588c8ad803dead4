from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SOURCES = [
    path
    for room in ("collectives", "stacks", "profile")
    for path in sorted((ROOT / "tools/firstfault_tools" / room).rglob("*.*"))
    if path.suffix in (".py", ".json")
]
PAGES = {path.stem for path in (ROOT / "knowledge/pages").rglob("*.md")}
_NAMED = re.compile(
    r'(?:page=|"page": |Fault\.\w+: |else |page=.*? if )"([a-z0-9]+(?:-[a-z0-9]+)+)"'
)


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: p.name)
def test_every_page_that_a_finding_names_exists(path: Path) -> None:
    named = set(_NAMED.findall(path.read_text(encoding="utf-8")))
    assert named <= PAGES


def test_pages_are_named_at_all() -> None:
    named = {n for path in SOURCES for n in _NAMED.findall(path.read_text(encoding="utf-8"))}
    assert len(named) > 15
