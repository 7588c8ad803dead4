"""Does every page exist that a finding names, in code or in a table? Also of findings that no case holds."""

from __future__ import annotations

import re
from pathlib import Path

from firstfault_tools.kind_pages import named_fixes

ROOT = Path(__file__).parents[2]
TOOLS = ROOT / "tools" / "firstfault_tools"
PAGES = {path.stem for path in (ROOT / "knowledge/pages").rglob("*.md")}
_NAMED = re.compile(
    r'(?:\bpage(?:_of_\w+)? ?[=:] |page=|"page": |Fault\.\w+: |else |page=.*? if )"([a-z0-9]+(?:-[a-z0-9]+)+)"'
)


def test_every_page_that_a_finding_names_exists() -> None:
    named = {
        (path.name, page)
        for path in TOOLS.rglob("*.*")
        if path.suffix in (".py", ".json")
        for page in _NAMED.findall(path.read_text(encoding="utf-8"))
    }
    named |= {(kind, row["page"]) for kind, row in named_fixes().items() if "page" in row}
    assert len(named) > 150
    assert [place for place in sorted(named) if place[1] not in PAGES] == []
