"""What does an Xid code mean, is it a cause or a consequence, and what does the vendor say to do?"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from firstfault_tools.findings import Category, Level

TABLE = Path(__file__).with_name("xids.json")


@dataclass(frozen=True, slots=True)
class XidMeaning:
    """One row of the table. now: the immediate action; then: what to look into afterwards.

    fatal_word: the message itself says `Fatal` or `Nonfatal`, which decides the level.
    """

    code: int
    name: str
    level: Level
    category: Category
    now: str
    then: str
    reading: str
    fatal_word: bool = False


@cache
def load_meanings() -> Mapping[int, XidMeaning]:
    """The table by code, read once."""
    rows = json.loads(TABLE.read_text(encoding="utf-8"))["xids"]
    return {
        int(code): XidMeaning(
            code=int(code),
            name=row["name"],
            level=Level(row["level"]),
            category=Category(row["category"]),
            now=row["now"],
            then=row["then"],
            reading=row["reading"],
            fatal_word=bool(row.get("fatal_word", False)),
        )
        for code, row in rows.items()
    }


def explain_xid(code: int) -> XidMeaning:
    """Meaning of a code; an unlisted one is a failure of unknown reach, never dropped."""
    return load_meanings().get(code) or XidMeaning(
        code=code,
        name="not in the table",
        level=Level.FAILURE,
        category=Category.HARDWARE,
        now="look the code up in the vendor's Xid catalogue",
        then="",
        reading="unlisted code",
    )
