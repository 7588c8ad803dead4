"""Which page holds the fixes of what a tool reports, and which of them is its own? Data beside the kinds.

A row is the id of a page; or `fix`, how that fix of its page begins which mends this kind, with or without `page`. A
signature names both itself.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path


def page_of_kind(kind: str) -> str | None:
    """Id of the page of a kind of finding, None where the table has none."""
    return _table().get(kind, {}).get("page")


def fix_of_kind(kind: str) -> str:
    """How the fix of a kind begins, '' where its page has one cause."""
    return _table().get(kind, {}).get("fix", "")


def named_fixes() -> Mapping[str, Mapping[str, str]]:
    """The rows of the table by kind."""
    return _table()


@cache
def _table() -> Mapping[str, Mapping[str, str]]:
    rows = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
    return {kind: row if isinstance(row, dict) else {"page": row} for kind, row in rows.items()}
