"""Is a window of a log drawn so that every line number has its place?"""

from __future__ import annotations

import re

from firstfault.investigation.diagnosis import Citation, CitationKind
from firstfault.service import Window
from firstfault.ui.evidence import write_window


def test_the_gutter_is_as_wide_as_its_largest_number() -> None:
    cited = Citation(1, CitationKind.LOG, file="big.log", line=450_001, quote="Stale file handle")
    lines = ((450_000, "step"), (450_001, "Stale file handle"), (450_002, "end"))
    drawn = write_window((cited,), Window("big.log", 450_001, lines), {1: cited}, {})
    assert re.search(r"--digits: 6\b", drawn)
    assert "--digits: 1" in write_window((Citation(1, CitationKind.TOOL, quote="x"),), None, {}, {})
