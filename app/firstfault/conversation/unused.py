"""Which numbers of a question did not enter its result? They are named, so that none is dropped in silence.

A number counts as used where an amount of the result is it in some unit: 30 min in 1,800 s, 70B in 7e10 parameters.
"""

from __future__ import annotations

from collections.abc import Collection

from firstfault_tools.expressions import expression

_NUMBER = expression(
    r"(?<![\w.,-])(?P<value>\d{1,3}(?:,\d{3})+|\d{1,12}(?:\.\d{1,6})?)(?P<word> ?(?:%|[A-Za-z/][\w/-]{0,14}(?: (?:a|per) [a-z]{1,8})?))?(?![\d.]*\d)"
)
_NAMES = expression(
    r"(?i)\b(?:[habvl][1-9]\d{1,2}s?|gh200|gb200|mi300x|rtx[- ]?\d{4}|a6000)\b(?:[- ]{0,2}(?:sxm|nvl|pcie)?\d?[- ]{0,2}\(?\d{2,3} ?gi?b\)?)?|"
    r"\b(?:llama|qwen|mistral|mixtral|gpt|gemma|phi|deepseek|olmo)[- ]?v?\d(?:\.\d)?\b|"
    r"\b(?:zero|stage|fsdp|fp|bf|int|python|cuda|nccl|adam)[- ]?\d{1,2}(?:\.\d{1,2})*(?:[- ]?bit)?\b|\b\d{1,2}-?bit\b|\b1f1b\b"
)
"""Numbers that are part of a name."""
_UNITS = (
    1.0, 8.0, 0.01, 100.0, 1e3, 1e6, 1e9, 1e12, 1.25e2, 1.25e5, 1.25e8, 1.25e11, 60.0, 3600.0, 86_400.0, 604_800.0, 2_592_000.0,
    31_557_600.0, 1024.0, 1024.0**2, 1024.0**3, 1024.0**4, 1e-3,
)  # fmt: skip
MOST = 3


def find_unused(text: str, used: Collection[float]) -> list[str]:
    """The numbers of a text, with the word behind each, of which no used value is made."""
    products = [x * y for x in used for y in used if x >= 1 and y >= 1]
    made = [v for v in (*used, *products) if v]
    out: list[str] = []
    for found in _NUMBER.finditer(_NAMES.sub(" ", text)):
        value = float(found["value"].replace(",", ""))
        if value and not any(_same(value * unit, v) for unit in _UNITS for v in made):
            out.append(found[0].strip())
    return list(dict.fromkeys(out))[:MOST]


def _same(one: float, other: float) -> bool:
    return abs(one - other) <= 1e-6 * abs(other)
