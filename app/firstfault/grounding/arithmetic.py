"""Does a number follow from others by one step of arithmetic? Ratio, share, difference, sum, unit.

A sentence may say "48 %" of two lines that print 9269.1 and 4426.2. What it says is recomputed here and
compared at the precision at which it is stated.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import permutations

MOST_GIVEN = 40
"""Beyond so many numbers nearly every short one follows from some pair, so more are not tried."""
LEAST_ELEMENTS = 100_000
"""Numbers from here on may count elements of a tensor, which are told in bytes, too."""

_SIZES = (2, 4, 8)
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
