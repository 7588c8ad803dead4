"""Which calculations does a text write out? Sides of equations with their values, numbers and units.

`23 x 55 min = 1,265 min = 21.1 h` has three sides. Words between numbers and signs are passed over, units
are kept. What a text says of a calculation is not judged here: derived.py does it again.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from enum import Enum, auto
from functools import cache
from pathlib import Path
from typing import Any

from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression

DAY = 86_400.0
MOST_TOKENS = 600
"""Of a text; what stands behind them is not read as a calculation."""
MOST_WORDS = 4
"""Words between a number and the sign before or behind it: `94.1 lost training + 36.3 crash loop`."""
DEEPEST = 24
"""Brackets and powers within each other."""

_TOKEN = expression(
    r"(?P<clock>\d{1,2}:\d\d(?::\d\d(?:\.\d{1,9})?)?)"
    r"|(?P<number>\d+(?:,\d{3})*(?:\.\d+)?(?:[eE][+-]?\d{1,3})?)"
    r"|(?P<word>[A-Za-z_µÀ-ÖØ-öø-ɏ]\w*(?:[-:.]\w+|/[A-Za-z]\w*)*|[%秒分天日]|時間|小时)"
    r"|(?P<sign>\*{1,2}|[-+/^×·⋅÷−–()√²³])"
    r"|(?P<same>[=≈≃≅≒→])"
    r"|(?P<stop>[.,;:?!`\"\n。、，；])"
)
_DATE = expression(r"\b\d{4}-\d\d-\d\d(?:[T ]|\b)")
_TIMES = expression(r"(?<=[\dBGKMTk)])[x×](?=[\d(])")
_RANGE = expression(r"(?<=\d)[-–](?=\d)")
_BOLD = expression(r"(?<![\d)])\*\*(?=\S)|(?<=\S)\*\*(?![\d(])")
_SIGNS = {"x": "*", "×": "*", "·": "*", "⋅": "*", "÷": "/", "−": "-", "–": "-", "**": "^"}
_RAISED = {"²": 2.0, "³": 3.0}
FUNCTIONS: Mapping[str, Callable[[float], float]] = {
    "exp": math.exp, "ln": math.log, "log": math.log, "log2": math.log2, "log10": math.log10,
    "sqrt": math.sqrt, "√": math.sqrt, "ceil": math.ceil, "floor": math.floor, "round": round,
}  # fmt: skip


class Kind(Enum):
    """What a token is."""

    NUMBER = auto()
    CLOCK = auto()
    WORD = auto()
    SIGN = auto()
    SAME = auto()
    STOP = auto()


@dataclass(frozen=True, slots=True)
class Unit:
    """What a number counts, and how much of its family one of it is: hours, 3600."""

    family: str
    factor: float


@dataclass(frozen=True, slots=True)
class Token:
    """A piece of a text. `written`: without commas; `value`: of a number or a time of day, in seconds."""

    kind: Kind
    written: str
    value: float = 0.0
    unit: Unit | None = None
    power: float = 1.0
    """What the letter behind a number multiplies it by: 1e9 of `70B`."""


@dataclass(frozen=True, slots=True)
class Side:
    """One side of an equation.

    numbers: what it is made of; parts: values of its brackets; is_sum: something is to be calculated; plain:
    nothing but numbers, signs and units stands in it; clocks: times of day that it adds up to, one or none.
    """

    value: float
    numbers: tuple[Token, ...]
    parts: tuple[float, ...] = ()
    is_sum: bool = False
    plain: bool = True
    clocks: int = 0


Equation = tuple[Side, ...]


@dataclass(frozen=True, slots=True)
class Written:
    """What a text holds of numbers: its equations (of one side where nothing is said to come out), and every number and time."""

    equations: tuple[Equation, ...]
    numbers: tuple[Token, ...]
    clocks: tuple[Token, ...]


def read_sums(text: str) -> Written:
    """Every calculation and every number of a text."""
    tokens = _read_tokens(text)
    numbers = tuple(t for t in tokens if t.kind is Kind.NUMBER)
    clocks = tuple(t for t in tokens if t.kind is Kind.CLOCK)
    return Written(tuple(_equations(tokens)), numbers, clocks)


def is_calculation(quoted: str) -> bool:
    """What stands between backticks or quotation marks is nothing but a calculation: numbers, signs, units."""
    tokens = _read_tokens(quoted)
    left = _TOKEN.sub("", _TIMES.sub("", quoted)).strip(" $€£¥")
    words = [t.written for t in tokens if t.kind is Kind.WORD]
    return (
        not left
        and all(unit_of(w) or w.lower() in _counted() or w in FUNCTIONS for w in words)
        and any(side.is_sum for equation in _equations(tokens) for side in equation)
    )


def unit_of(word: str) -> Unit | None:
    """The unit that a word is; of `GB/s` the one above the stroke."""
    above, _, below = word.partition("/")
    if below and below.lower() not in _per():
        return None
    return _units().get(above) or _units().get(above.lower())


def unit_below(unit: Unit) -> Unit | None:
    """The next smaller unit of the same family that is a whole base unit or more: minutes of an hour; None where none is."""
    smaller = [u for u in _units().values() if u.family == unit.family and 1 <= u.factor < unit.factor]  # fmt: skip
    return max(smaller, key=lambda u: u.factor, default=None)


def factors(family: str) -> frozenset[float]:
    """How much the units of a family are."""
    return frozenset(u.factor for u in _units().values() if u.family == family)


def _read_tokens(text: str) -> list[Token]:
    text = _BOLD.sub("", _DATE.sub(" ; ", text))
    text = _TIMES.sub(" * ", _RANGE.sub(" – ", text))
    out: list[Token] = []
    end = -1
    for m in _TOKEN.finditer(text):
        if len(out) >= MOST_TOKENS:
            break
        kind = Kind[str(m.lastgroup).upper()]
        written = m[0]
        joined = m.start() == end and out and out[-1].kind is Kind.NUMBER
        end = m.end()
        if kind is Kind.NUMBER:
            written = written.replace(",", "")
            out.append(Token(kind, written, float(written)))
        elif kind is Kind.CLOCK:
            out.append(Token(kind, written, _seconds(written)))
        elif kind is Kind.SIGN or written == "x":
            out.append(Token(Kind.SIGN, _SIGNS.get(written, written)))
        elif kind is Kind.WORD and out and out[-1].kind is Kind.NUMBER and (u := unit_of(written)):
            power = u.factor if joined and len(written) == 1 and u.family == "amount" else 1.0
            out[-1] = replace(out[-1], value=out[-1].value * power, unit=u, power=power)
        else:
            out.append(Token(kind, written))
    return out


def _seconds(clock: str) -> float:
    hours, minutes, *rest = clock.split(":")
    return int(hours) * 3600 + int(minutes) * 60 + (float(rest[0]) if rest else 0.0)


def _equations(tokens: Sequence[Token]) -> Iterator[Equation]:
    place = 0
    while place < len(tokens):
        reader = _Reader(tokens, place)
        side = reader.side()
        if side is None:
            place += 1
            continue
        sides = [side]
        place = reader.place
        while (behind := _behind_same(tokens, place)) is not None:
            reader = _Reader(tokens, behind)
            if (side := reader.side()) is None:
                break
            sides.append(side)
            place = reader.place
        yield tuple(sides)


def _behind_same(tokens: Sequence[Token], place: int) -> int | None:
    """Where the next side of an equation begins."""
    for n, token in enumerate(tokens[place : place + MOST_WORDS], place):
        if token.kind is Kind.SAME:
            skipped = _skip(tokens, n + 1)
            return skipped if skipped < len(tokens) else None
        if token.kind is not Kind.WORD:
            return None
    return None


def _skip(tokens: Sequence[Token], place: int) -> int:
    """Behind a few words."""
    last = place + MOST_WORDS
    while (
        place < min(len(tokens), last)
        and tokens[place].kind is Kind.WORD
        and tokens[place].written not in FUNCTIONS
    ):
        place += 1
    return place


class _NoSum(ValueError):
    """What stands there is not to be calculated."""


@dataclass
class _Reader:
    """Reads the longest calculation from a token on; what does not go on with one is left."""

    tokens: Sequence[Token]
    place: int
    numbers: list[Token] = field(default_factory=list)
    parts: list[float] = field(default_factory=list)
    signs: int = 0
    words: int = 0
    depth: int = 0
    clocks: int = 0

    def side(self) -> Side | None:
        """The calculation or lone number that begins here."""
        timed = self._is_timed()
        try:
            value = self._sum(timed)
        except (_NoSum, ValueError, ZeroDivisionError, OverflowError):
            return None
        if isinstance(value, complex) or not math.isfinite(value):
            return None
        return Side(
            float(value), tuple(self.numbers), tuple(self.parts), self.signs > 0, self.words == 0, self.clocks
        )  # fmt: skip

    def _is_timed(self) -> bool:
        """A time of day stands in it, so durations beside it count in seconds."""
        for token in self.tokens[self.place :]:
            if token.kind in (Kind.SAME, Kind.STOP):
                return False
            if token.kind is Kind.CLOCK:
                return True
        return False

    def _sum(self, timed: bool) -> float:
        value = self._product(timed)
        while (sign := self._sign("+-")) is not None:
            before = self.clocks
            found = self._attempt(lambda: self._product(timed))
            if found is None:
                break
            if sign == "-":
                self.clocks = before - (self.clocks - before)
            value = value + found if sign == "+" else value - found
        return value

    def _product(self, timed: bool) -> float:
        value = self._power(timed)
        while (sign := self._sign("*/")) is not None:
            found = self._attempt(lambda: self._power(timed))
            if found is None:
                break
            value = value * found if sign == "*" else value / found
        return value

    def _power(self, timed: bool) -> float:
        self.depth += 1
        if self.depth > DEEPEST:
            raise _NoSum
        value = self._operand(timed)
        token = self._peek()
        if token is not None and token.written in _RAISED:
            self.place += 1
            self.signs += 1
            value = value ** _RAISED[token.written]
        elif self._sign("^") is not None:
            found = self._attempt(lambda: self._power(timed))
            if found is not None:
                value = float(value**found)
        self.depth -= 1
        return value

    def _attempt(self, read: Callable[[], float]) -> float | None:
        """What stands behind a sign; where nothing does, the sign belongs to the words."""
        kept = (self.place, self.signs, self.words, self.clocks, self.depth)
        numbers, parts = len(self.numbers), len(self.parts)
        self.place = skipped = _skip(self.tokens, self.place + 1)
        self.words += skipped - kept[0] - 1
        self.signs += 1
        try:
            return read()
        except _NoSum:
            self.place, self.signs, self.words, self.clocks, self.depth = kept
            del self.numbers[numbers:], self.parts[parts:]
            return None

    def _operand(self, timed: bool) -> float:
        token = self._peek()
        if token is None:
            raise _NoSum
        self.place += 1
        if token.kind is Kind.NUMBER:
            self.numbers.append(token)
            counted = timed and token.unit is not None and token.unit.family == "time"
            return token.value * (token.unit.factor if counted and token.unit else 1.0)
        if token.kind is Kind.CLOCK:
            self.numbers.append(token)
            self.clocks += 1
            return token.value
        if token.written == "-":
            return -self._power(timed)
        if token.written == "(":
            return self._bracket(timed)
        if token.written in FUNCTIONS:
            return self._called(token.written, timed)
        raise _NoSum

    def _bracket(self, timed: bool) -> float:
        value = self._sum(timed)
        self.place = _skip(self.tokens, self.place)
        closing = self._peek()
        if closing is None or closing.written != ")":
            raise _NoSum
        self.place += 1
        self.parts.append(value)
        return value

    def _called(self, name: str, timed: bool) -> float:
        bracket = self._peek()
        if bracket is None or (bracket.written != "(" and name != "√"):
            raise _NoSum
        value = float(FUNCTIONS[name](self._power(timed) if name == "√" else self._operand(timed)))
        self.signs += 1
        self.parts.append(value)
        return value

    def _sign(self, wanted: str) -> str | None:
        """The sign that goes on here, words before it passed over; it is not taken yet."""
        place = _skip(self.tokens, self.place)
        if place < len(self.tokens):
            token = self.tokens[place]
            if token.kind is Kind.SIGN and token.written in wanted:
                self.words += place - self.place
                self.place = place
                return token.written
        return None

    def _peek(self) -> Token | None:
        return self.tokens[self.place] if self.place < len(self.tokens) else None


@cache
def _data() -> dict[str, Any]:
    raw: dict[str, Any] = json.loads(Path(__file__).with_name("units.json").read_text("utf-8"))
    return raw


@cache
def _units() -> Mapping[str, Unit]:
    return {
        word: Unit(family, float(factor))
        for family, rows in _data()["families"].items()
        for factor, words in rows.items()
        for word in words.split()
    }


@cache
def _per() -> frozenset[str]:
    return frozenset(_data()["per"].lower().split())


@cache
def _counted() -> frozenset[str]:
    return frozenset(_data()["counted"].lower().split())
