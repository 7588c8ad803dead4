"""What is an exception's message about, by its words alone? Asked where its type and its place do not tell."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path

from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Category

MOST_CHARS = 2_000


@dataclass(frozen=True, slots=True)
class Words:
    """A thing and what befell it, in the words that programs use."""

    category: Category
    words: re.Pattern[str]
    unless: re.Pattern[str] | None
    follows: bool


@cache
def _load() -> tuple[Words, ...]:
    raw = json.loads((Path(__file__).parent / "message_words.json").read_text(encoding="utf-8"))
    return tuple(
        Words(
            Category(row["category"]),
            expression(row["words"], re.IGNORECASE),
            expression(row["not"], re.IGNORECASE) if "not" in row else None,
            row.get("follows", False),
        )
        for row in raw["rows"]
    )


def read_category(message: str, causes: bool = False) -> Category | None:
    """Category that the words of a message tell, None where they tell of nothing in particular.

    causes: without the words that ranks say when another one is gone.
    """
    text = message[:MOST_CHARS]
    for row in _load():
        if causes and row.follows:
            continue
        if row.words.search(text) and (row.unless is None or not row.unless.search(text)):
            return row.category
    return None
