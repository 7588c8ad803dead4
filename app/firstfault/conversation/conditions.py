"""For which case is something asked, or an answer meant? The names (a number format, a library, a scheduler) that make it one.

An answer for a case is none to a question that does not speak of it, however alike the rest is worded.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from firstfault_tools.expressions import expression
from firstfault_tools.knowledge.pack import read_yaml

TABLE = Path(__file__).with_name("condition_terms.yaml")


@cache
def _terms() -> tuple[re.Pattern[str], ...]:
    rows = read_yaml(TABLE.read_text(encoding="utf-8"))["conditions"]
    return tuple(expression(row, re.IGNORECASE) for row in rows)


@cache
def conditions_of(text: str) -> frozenset[int]:
    """The rows of the table whose names the text holds."""
    return frozenset(n for n, term in enumerate(_terms()) if term.search(text))
