"""Which numbers of a text follow from calculations that it writes out itself? Each is done again.

What holds goes on to a fixpoint: a calculation counts once all its numbers stand in the evidence or came
out of another that counts, so no number carries itself. What came out may be said again in another unit
of its kind (min, h) or rounded. A time of day may be worked out, too, and what lies between two of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field
from itertools import combinations, pairwise

from firstfault.grounding.arithmetic import SCALES, slack
from firstfault.grounding.sums import (
    DAY,
    Kind,
    Side,
    Token,
    Unit,
    Written,
    factors,
    read_sums,
    unit_below,
    unit_of,
)
from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression

MOST_CLOCKS = 12
"""Times of a text between which durations are sought."""
PLAINLY_WRONG = 0.03
"""Share by which a calculation must miss what is said to come out, to be called wrong: less is rounding on the way."""

_RESULTS = (*SCALES, 1e12, 1024.0**4, 24.0, 168.0, 1440.0)
_TO_BINARY = tuple((1024 / 1000) ** n for n in (1, 2, 3, 4))
_CONSTANTS = frozenset({*_RESULTS, 365.0, 604_800.0})
"""What turns one unit into another. It may stand in a calculation without evidence, beside what has it."""
MOST_ROUNDS = 8
"""Of a fixpoint: calculations that stand on each other in one paragraph."""
LEAST_WHOLES = 2
"""Below, one more is no rounding."""
_TIME = "time"
_SECOND = Unit(_TIME, 1.0)
_COMPOUND = expression(
    r"(?i)\b(?P<n>\d{1,4}) ?(?P<unit>d|days?|h|hours?|heures?|m|min|minutes?) ?(?:and |et )?(?P<more>\d{1,2}) ?(?P<rest>h|hours?|m|min|minutes?|s|sec|seconds?|)\b"
)
"""`2h40`, `1 h 5 min`, `3 min 20 s`."""


@dataclass(frozen=True, slots=True)
class Quantity:
    """What holds, and what it is counted in where that is known."""

    value: float
    unit: Unit | None = None


@dataclass(frozen=True, slots=True)
class Derived:
    """numbers: those that came out, as they are written, times of day too. wrong: what is said to come out and does not.

    used: numbers that calculations which were done again are made of.
    """

    numbers: frozenset[str] = frozenset()
    used: frozenset[str] = frozenset()
    wrong: tuple[str, ...] = ()


Holds = Callable[[str, float], bool]


def derive(
    text: str,
    holds: Holds,
    clock_holds: Callable[[str], bool],
    asked: Sequence[str] = (),
    cited: Sequence[str] = (),
) -> Derived:
    """Numbers that follow from those that hold; what a person counts may be said in another unit.

    asked: what a person said; cited: lines, of which durations such as `2h40` are read.
    """
    written = read_sums(text)
    work = _Work(written, holds, clock_holds)
    for said in asked:
        work.found += [_quantity(t) for t in read_sums(said).numbers if t.unit is not None]
    for source in (*asked, *cited):
        work.found += [Quantity(s, _SECOND) for s, _ in _durations(source)]
    for seconds, parts in _durations(text):
        if all(holds(p, float(p)) for p in parts):
            work.found.append(Quantity(seconds, _SECOND))
    for _ in range(MOST_ROUNDS):
        if not work.round():
            break
    used = frozenset(t.written for side in work.done for t in side.numbers)
    return Derived(frozenset(work.told), used, tuple(dict.fromkeys(work.find_wrong())))


def _durations(text: str) -> Iterator[tuple[float, tuple[str, str]]]:
    for m in _COMPOUND.finditer(text):
        unit = unit_of(m["unit"].lower())
        if unit is None or (next_below := unit_below(unit)) is None:
            continue
        below = unit_of(m["rest"].lower()) if m["rest"] else next_below
        if below is not None and below.family == _TIME and below.factor < unit.factor:
            yield float(m["n"]) * unit.factor + float(m["more"]) * below.factor, (m["n"], m["more"])


@dataclass
class _Work:
    written: Written
    holds: Holds
    clock_holds: Callable[[str], bool]
    found: list[Quantity] = field(default_factory=list)
    results: list[Quantity] = field(default_factory=list)
    """Those of `found` that are written there."""
    told: set[str] = field(default_factory=set)
    done: set[Side] = field(default_factory=set)
    """Sides that have been worked out."""
    spans: set[tuple[str, str]] = field(default_factory=set)
    operands: frozenset[Token] = frozenset()
    """Numbers that stand in a calculation."""

    def __post_init__(self) -> None:
        self.operands = frozenset(
            t for e in self.written.equations for s in e if s.is_sum for t in s.numbers
        )

    def round(self) -> bool:
        """Go once over everything that is written; whether anything new holds."""
        before = len(self.told), len(self.done), len(self.spans)
        self._measure_spans()
        for equation in self.written.equations:
            for side in equation:
                self._work_out(side)
            for one, other in pairwise(equation):
                self._take_over(one, other)
                self._take_over(other, one)
        for number in self.written.numbers:
            if number.written not in self.told and (
                any(_says(number, q, number in self.operands) for q in self.found)
                or self._is_share(number)
            ):
                self._tell(number)
        return before != (len(self.told), len(self.done), len(self.spans))

    def _is_share(self, number: Token) -> bool:
        """What one of two results is of the other, both in units of a kind: 1.6 % of 11.5 h and 720 h."""
        if number.unit is None or number.unit.family != "share":
            return False
        said, allowed = number.value, slack(number.written)
        return any(
            abs(said - 100 * min(a, b) / max(a, b)) <= allowed for a, b in self._alike() if min(a, b) > 0
        )  # fmt: skip

    def _alike(self) -> Iterator[tuple[float, float]]:
        """Pairs of results that count the same, in the smallest unit of their kind."""
        counted = [(q.value * q.unit.factor, q.unit.family) for q in self.results if q.unit]
        for (a, of_a), (b, of_b) in combinations(dict.fromkeys(counted), 2):
            if of_a == of_b:
                yield a, b

    def find_wrong(self) -> Iterator[str]:
        """What is plainly said to come out of numbers that hold, and does not."""
        for equation in self.written.equations:
            for pair in pairwise(equation):
                for one, other in (pair, pair[::-1]):
                    number = _alone(other)
                    if number is None or one not in self.done or not one.plain or one.clocks:
                        continue
                    if number.kind is Kind.NUMBER and number.value and one.value > 0 and not _nearly(one.value, number.value):  # fmt: skip
                        yield number.written

    def _measure_spans(self) -> None:
        """What lies between two times of day that hold; the later one may be of the next day."""
        clocks = [c for c in self.written.clocks if self._stands(c)][:MOST_CLOCKS]
        for one, other in combinations(clocks, 2):
            if (one.written, other.written) not in self.spans:
                self.spans.add((one.written, other.written))
                apart = other.value - one.value
                self.found.append(Quantity(abs(apart), _SECOND))
                if apart < 0:
                    self.found.append(Quantity(apart + DAY, _SECOND))

    def _work_out(self, side: Side) -> None:
        if not side.is_sum or side in self.done or not self._is_given(side):
            return
        self.done.add(side)
        if side.clocks != 1:
            timed = any(t.kind is Kind.CLOCK for t in side.numbers)
            unit = _SECOND if timed and len(side.numbers) == 2 else None
            self.found.append(Quantity(side.value, unit))
        self.found += [Quantity(p) for p in side.parts]
        self.told |= {t.written for t in side.numbers if _is_constant(t)}

    def _is_given(self, side: Side) -> bool:
        """All its numbers hold, and they are not merely those that turn units into others."""
        held = [self._stands(t) for t in side.numbers]
        return any(held) and all(
            h or _is_constant(t) for h, t in zip(held, side.numbers, strict=True)
        )

    def _take_over(self, one: Side, other: Side) -> None:
        """The number behind a calculation that holds, where it is what comes out."""
        number = _alone(other)
        if number is None or one not in self.done or number.written in self.told:
            return
        if number.kind is Kind.CLOCK:
            if one.clocks == 1 and _same_time(one.value, number):
                self._tell(number)
        elif one.clocks != 1 and any(
            abs(abs(v) - number.value / number.power) <= slack(number.written)
            for scale in _RESULTS
            for v in (one.value * scale, one.value / scale)
        ):
            self._tell(number)

    def _tell(self, number: Token) -> None:
        self.told.add(number.written)
        if number.kind is Kind.NUMBER:
            self.results.append(_quantity(number))
            self.found.append(self.results[-1])

    def _stands(self, number: Token) -> bool:
        if number.written in self.told:
            return True
        if number.kind is Kind.CLOCK:
            return self.clock_holds(number.written)
        return self.holds(number.written, number.value / number.power)


def _quantity(number: Token) -> Quantity:
    return Quantity(number.value / number.power, number.unit)


def _is_constant(number: Token) -> bool:
    return number.kind is Kind.NUMBER and number.value in _CONSTANTS


def _alone(side: Side) -> Token | None:
    return side.numbers[0] if not side.is_sum and len(side.numbers) == 1 else None


def _same_time(seconds: float, clock: Token) -> bool:
    """To the second, or to the minute where no more is written."""
    within = 0.51 if clock.written.count(":") == 2 else 60.0
    apart = abs(seconds - clock.value) % DAY
    return min(apart, DAY - apart) < within


def _nearly(value: float, said: float) -> bool:
    """The calculation comes to what is said, in whatever unit, or misses it by what rounding may cost."""
    return any(
        abs(v - said) <= max(slack(f"{said:g}"), PLAINLY_WRONG * said)
        for scale in (*_RESULTS, *_TO_BINARY)
        for v in (value * scale, value / scale)
    )


def _says(number: Token, known: Quantity, in_a_sum: bool) -> bool:
    """The number says what is known: the same, rounded, or in another unit of its kind.

    In a calculation a number may stand without its unit: the 160 of 2h40 in `512 x 160 / 60`.
    """
    allowed = slack(number.written)
    said, value = number.value / number.power, abs(known.value)
    family = number.unit.family if number.unit is not None else ""
    own = frozenset({number.unit.factor}) if number.unit is not None else frozenset({1.0})
    units = frozenset({known.unit.factor}) if known.unit is not None else frozenset({1.0})
    if known.unit is None and family:
        units = factors(family) | {1.0}
    elif known.unit is not None and not family and (in_a_sum or known.unit.family == "share"):
        own = factors(known.unit.family) | units
    elif known.unit is None or known.unit.family != family:
        own = units = frozenset({1.0})
    return any(
        abs(said - value * unit / one) <= allowed or _rounds_up(said, value * unit / one)
        for unit in units
        for one in own
    )


def _rounds_up(said: float, value: float) -> bool:
    """So many whole ones are needed: 143,052 steps of 143,051.15."""
    return value > LEAST_WHOLES and said == math.ceil(value)
