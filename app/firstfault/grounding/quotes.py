"""Does a quote stand where its citation says? Pure functions over text."""

from __future__ import annotations

from firstfault_tools.expressions import expression

_SPACE = expression(r"\s+")


def flatten(text: str) -> str:
    """Text with runs of white space as one space: how quotes are compared."""
    return _SPACE.sub(" ", text).strip()


def quote_holds(quote: str, text: str) -> bool:
    """The quote is a non-empty part of `text`, white space aside."""
    wanted = flatten(quote)
    return bool(wanted) and wanted in flatten(text)
