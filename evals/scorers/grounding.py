"""Does every shown fix stand on a log quote and a page quote that are really there? Checked afresh."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from firstfault.grounding.quotes import quote_holds
from firstfault_tools.knowledge.page import Page
from firstfault_tools.log.window import read_window


def count_grounded(row: dict[str, Any], inputs: Sequence[Path], pages: dict[str, Page]) -> int:
    """Number of fixes of a diagnosis whose log and page citations both verify."""
    paths = {p.name: p for p in inputs}
    citations = {c["n"]: c for c in row["citations"]}
    grounded = 0
    for fix in row["fixes"]:
        cited = [citations[n] for n in fix["citations"] if n in citations]
        kinds = {c["kind"] for c in cited if _holds(c, paths, pages)}
        grounded += "page" in kinds and bool(kinds & {"log", "tool"}) and len(kinds) >= 2
    return grounded


def _holds(citation: dict[str, Any], paths: dict[str, Path], pages: dict[str, Page]) -> bool:
    if citation["kind"] == "tool":
        return citation["file"] in paths
    if citation["kind"] == "log":
        path = paths.get(citation["file"])
        if path is None:
            return False
        window = read_window(path, citation["line"], citation["line"])
        return bool(window) and quote_holds(citation["quote"], window[0][1])
    page = pages.get(citation["page"])
    if page is None:
        return False
    return any(quote_holds(citation["quote"], s.text) for s in page.sections)
