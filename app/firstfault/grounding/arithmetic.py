"""Does a number follow from others by one step of arithmetic? Ratio, share, difference, sum, unit.

A sentence may say "48 %" of two lines that print 9269.1 and 4426.2. What it says is recomputed here and
compared at the precision at which it is stated.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import permutations

from firstfault_tools.expressions import expression

MOST_GIVEN = 40
"""Beyond so many numbers nearly every short one follows from some pair, so more are not tried."""
LEAST_ELEMENTS = 100_000
"""Numbers from here on may count elements of a tensor, which are told in bytes, too."""

_SIZES = (2, 4, 8)
_WRITTEN = expression(
    r"(?P<sum>[\d(][\d.,()+*/^x×·÷−eE \w%-]{2,200}?)\s?[=≈]\s?(?P<result>\d[\d,]*(?:\.\d+)?(?:[eE][+-]?\d{1,3})?)"
)
"""A calculation that a sentence writes out, and what it says comes out."""
_TOKEN = expression(
    r"(?P<number>\d[\d,]*(?:\.\d+)?(?:[eE][+-]?\d{1,3})?)(?P<power>[kKMGBT]?)\b|(?P<sign>[-+*/^x×·÷−()])|(?P<word>[A-Za-z%]\w*)"
)
_POWERS = {"k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "B": 1e9, "T": 1e12}
_SIGNS = {"x": "*", "×": "*", "·": "*", "÷": "/", "−": "-"}
MOST_TOKENS = 60
SCALES = (
    1.0,
    100.0,
    1000.0,
    1024.0,
    1024.0**2,
    1024.0**3,
    1e6,
    1e9,
    60.0,
    3600.0,
    60_000.0,
    86_400.0,
)
"""Of units: percent, thousands, binary thousands, minutes, hours, days."""


def follows(stated: str, given: Collection[float]) -> bool:
    """The number `stated`, as it is written, follows from one or two of `given`."""
    text = stated.replace(",", "").strip()
    try:
        wanted = float(text)
    except ValueError:
        return False
    allowed = slack(text)
    numbers = sorted(given, key=abs)[:MOST_GIVEN]
    return any(abs(abs(wanted) - abs(found)) <= allowed for found in _results(numbers))


def worked_out(text: str) -> frozenset[str]:
    """Results of calculations that a sentence writes out and that come out right: 14 of `7B x 16 / 8 = 14 GB`."""
    return frozenset(
        m["result"].replace(",", "")
        for m in _WRITTEN.finditer(text)
        if _comes_out(m["sum"], m["result"].replace(",", ""))
    )


def _comes_out(written: str, result: str) -> bool:
    # words before the calculation are none of it, so it is tried from every number and bracket on
    tokens = _read_tokens(written)
    starts = [
        i
        for i, t in enumerate(tokens)
        if i == 0 or tokens[i - 1] not in ("+", "-", "*", "/", "^", "(")
    ]
    for start in starts:
        found = _evaluate(tokens[start:])
        if found is not None and any(
            abs(abs(value) - float(result)) <= slack(result)
            for scale in (*SCALES, 1e12, 1024.0**4)
            for value in (found * scale, found / scale)
        ):
            return True
    return False


def _read_tokens(written: str) -> list[str | float]:
    """Numbers and signs; units and other words between them are passed over."""
    tokens: list[str | float] = []
    for m in _TOKEN.finditer(written):
        if m["number"]:
            tokens.append(float(m["number"].replace(",", "")) * _POWERS.get(m["power"], 1.0))
        elif m["sign"]:
            tokens.append(_SIGNS.get(m["sign"], m["sign"]))
    return tokens[-MOST_TOKENS:]


def _evaluate(tokens: list[str | float]) -> float | None:
    """Value of a calculation with at least one sign; None where it is none."""
    if len(tokens) < 3:
        return None
    rest = list(reversed(tokens))
    try:
        value = _sum(rest)
    except (IndexError, ValueError, ZeroDivisionError, OverflowError):
        return None
    return None if rest or isinstance(value, complex) else value


def _sum(rest: list[str | float]) -> float:
    value = _product(rest)
    while rest and rest[-1] in ("+", "-"):
        value = value + _product(rest) if rest.pop() == "+" else value - _product(rest)
    return value


def _product(rest: list[str | float]) -> float:
    value = _power(rest)
    while rest and rest[-1] in ("*", "/"):
        value = value * _power(rest) if rest.pop() == "*" else value / _power(rest)
    return value


def _power(rest: list[str | float]) -> float:
    value = _operand(rest)
    if rest and rest[-1] == "^":
        rest.pop()
        value = float(value ** _power(rest))
    return value


def _operand(rest: list[str | float]) -> float:
    token = rest.pop()
    if token == "(":
        value = _sum(rest)
        if rest.pop() != ")":
            raise ValueError("a bracket is not closed")
        return value
    if isinstance(token, str):
        raise ValueError(f"{token} is no number")
    return token


def _results(numbers: Collection[float]) -> Iterator[float]:
    for one in numbers:
        if one >= LEAST_ELEMENTS:
            yield from (one * size / unit for size in _SIZES for unit in (1e6, 1e9, 2**20, 2**30))
        for scale in SCALES:
            yield one * scale
            yield one / scale
    yield sum(numbers)
    for one, other in permutations(numbers, 2):
        yield one - other
        yield one + other
        yield one * other
        if other:
            ratio = one / other
            yield ratio
            yield ratio * 100
            yield (1 - ratio) * 100
            yield (one - other) / 1000
            yield (one - other) / 60


def slack(text: str) -> float:
    """Half a unit of the last digit written, a little more for numbers said in round."""
    mantissa, _, exponent = text.lower().partition("e")
    decimals = len(mantissa.partition(".")[2])
    power = int(exponent) if exponent.lstrip("+-").isdecimal() else 0
    step = 10.0 ** (power - decimals)
    digits = mantissa.lstrip("-").replace(".", "")
    zeros = len(digits) - len(digits.rstrip("0")) if "." not in mantissa and len(digits) > 2 else 0
    return 0.51 * step * 10.0 ** min(zeros, len(digits) - 2)
