"""What does an Xid code mean, is it a cause or a consequence, and what does the vendor say to do?

Two tables: `xids.json` beside this file holds level and category of every code; the words and the page
come from `knowledge/xids.yaml`, and from `xids.json` for codes that are not in it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from firstfault_tools.dataclass import dataclass
from firstfault_tools.findings import Category, Level

TABLE = Path(__file__).with_name("xids.json")


@dataclass(frozen=True, slots=True)
class XidMeaning:
    """One code. now: the immediate action; then: what to look into afterwards.

    fatal_word: the message itself says `Fatal` or `Nonfatal`, which decides the level.
    """

    code: int
    name: str
    level: Level
    category: Category
    now: str
    then: str
    reading: str
    page: str | None = None
    fatal_word: bool = False


def find_knowledge_table() -> Path | None:
    """`knowledge/xids.yaml` of the checkout or of the installed package, None where neither is."""
    root = Path(__file__).resolve().parents[3]
    places = (
        root.parent / "knowledge" / "xids.yaml",
        root / "firstfault" / "_knowledge" / "xids.yaml",
    )
    return next((place for place in places if place.is_file()), None)


def _load_words() -> dict[int, Mapping[str, str]]:
    place = find_knowledge_table()
    if place is None:
        return {}
    import yaml

    rows = yaml.safe_load(place.read_text(encoding="utf-8"))["xids"]
    return {int(row["code"]): row for row in rows}


@cache
def load_meanings() -> Mapping[int, XidMeaning]:
    """Both tables joined by code, read once, and only when an Xid is met."""
    words = _load_words()
    rows = {int(c): r for c, r in json.loads(TABLE.read_text(encoding="utf-8"))["xids"].items()}
    meanings = {}
    for code in sorted({*rows, *words}):
        row = rows.get(code, {"name": "", "level": "failure", "category": "hardware"})
        told = words.get(code, {})
        meanings[code] = XidMeaning(
            code=code,
            name=told.get("meaning") or row["name"],
            level=Level(row["level"]),
            category=Category(row["category"]),
            now=told.get("immediate") or row.get("now", ""),
            then=told.get("then") or row.get("then", ""),
            reading=told.get("reading") or row.get("reading", row["name"]),
            page=told.get("page"),
            fatal_word=bool(row.get("fatal_word", False)),
        )
    return meanings


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
