"""Which page holds the fixes of what a tool reports, and which of them is its own? Data beside the kinds.

A row is the id of a page; or `fix`, how that fix of its page begins which mends this kind, or `check`, how that check
begins which comes first since several mechanisms leave this finding (`before`: only before the fix that begins so;
`unless`: not where the cause says one of these), with or without `page`. A signature names its page and fix itself.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from firstfault_tools.dataclass import dataclass


def page_of_kind(kind: str) -> str | None:
    """Id of the page of a kind of finding, None where the table has none."""
    page = _table().get(kind, {}).get("page")
    return str(page) if page is not None else None


def fix_of_kind(kind: str) -> str:
    """How the fix of a kind begins, '' where its page has one cause."""
    return str(_table().get(kind, {}).get("fix", ""))


@dataclass(frozen=True, slots=True)
class KindCheck:
    """How the check of a kind begins, how the fix begins that it comes before, and words of the cause that settle it."""

    begins: str
    before: str
    unless: tuple[str, ...]

    def is_settled(self, cause: str) -> bool:
        """The cause says what the check would tell."""
        return any(words in cause for words in self.unless)


def check_of_kind(kind: str) -> KindCheck | None:
    """The check of a kind that comes before a fix, None where none does."""
    row = _table().get(kind, {})
    if "check" not in row:
        return None
    unless = row.get("unless", ())
    told = (unless,) if isinstance(unless, str) else tuple(unless)
    return KindCheck(str(row["check"]), str(row.get("before", "")), told)


def named_fixes() -> Mapping[str, Mapping[str, Any]]:
    """The rows of the table by kind."""
    return _table()


@cache
def _table() -> Mapping[str, Mapping[str, Any]]:
    rows = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
    return {kind: row if isinstance(row, dict) else {"page": row} for kind, row in rows.items()}
