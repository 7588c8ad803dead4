"""Does a number follow from others by one step of arithmetic? Ratio, share, difference, sum, unit.

A sentence may say "48 %" of two lines that print 9269.1 and 4426.2. What it says is recomputed here and
compared at the precision at which it is stated.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from itertools import permutations
from math import inf, prod

from firstfault_tools.expressions import expression

MOST_GIVEN = 40
"""Beyond so many numbers nearly every short one follows from some pair, so more are not tried."""
LEAST_ELEMENTS = 100_000
"""Numbers from here on may count elements of a tensor, which are told in bytes, too."""

_SIZES = (2, 4, 8)
_SIGN = expression(r"(?<=[\d ])[x×*+/÷−-](?=[\d ])")
_VALUE = expression(r"\d[\d,]*(?:\.\d+)?")
_WORKED = expression(
    r"(?<![\w.])(?P<sum>\d[\d,]*(?:\.\d+)?(?:\s?[x×*+/÷−-]\s?\d[\d,]*(?:\.\d+)?){1,5})\s?[=≈]\s?(?P<result>\d[\d,]*(?:\.\d+)?)"
)
_SCALES = (
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
    """Results of sums that a sentence writes out and that come out right: 2048 of `4 x 16 x 32 = 2048`."""
    return frozenset(m["result"].replace(",", "") for m in _WORKED.finditer(text) if _comes_out(m))


def _comes_out(worked: re.Match[str]) -> bool:
    values = [float(v.replace(",", "")) for v in _VALUE.findall(worked["sum"])]
    signs = set(_SIGN.findall(worked["sum"]))
    result = worked["result"].replace(",", "")
    if signs <= set("x×*"):
        found = prod(values)
    elif signs == {"+"}:
        found = sum(values)
    elif len(values) == 2:
        one, other = values
        found = one - other if signs <= set("-−") else one / other if other else inf
    else:
        return False
    return abs(found - float(result)) <= slack(result)


def _results(numbers: Collection[float]) -> Iterator[float]:
    for one in numbers:
        if one >= LEAST_ELEMENTS:
            yield from (one * size / unit for size in _SIZES for unit in (1e6, 1e9, 2**20, 2**30))
        for scale in _SCALES:
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
