"""Does a quote stand where its citation says? Pure functions over text."""

from __future__ import annotations

from firstfault_tools.expressions import expression

_SPACE = expression(r"\s+")

WRITTEN_AS = str.maketrans("<>|[]", "\u2039\u203a\u00a6\u27e6\u27e7")
"""What stands for the characters of a chat mark where a model sees it: as readable, and no mark to any model."""


def flatten(text: str) -> str:
    """Text with runs of white space as one space: how quotes are compared."""
    return _SPACE.sub(" ", text).strip()


def quote_holds(quote: str, text: str) -> bool:
    """The quote is a non-empty part of `text`, white space aside."""
    wanted = flatten(quote)
    return bool(wanted) and wanted in flatten(text)
