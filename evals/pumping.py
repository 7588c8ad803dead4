"""Which texts make a pattern work hardest? Read off its own parse tree: a prefix that matches, then a pump."""

from __future__ import annotations

import re
import re._constants as codes
import re._parser as parser
from collections.abc import Iterator, Sequence
from typing import Any

GENERIC = " \t0a_A.,:;-=/\\\"'()[]{}<>|#*%"
MANY = 32
"""Repetitions from which on a counted repeat is pumped like an open one."""

_OF_CLASS = {
    codes.CATEGORY_DIGIT: (r"\d", "7"),
    codes.CATEGORY_SPACE: (r"\s", " \t"),
    codes.CATEGORY_WORD: (r"\w", "a7_"),
    codes.CATEGORY_NOT_SPACE: (r"\S", "x.7"),
    codes.CATEGORY_NOT_DIGIT: (r"\D", "x "),
    codes.CATEGORY_NOT_WORD: (r"\W", " .-"),
}
Pump = tuple[str, str]


def pumps(pattern: str, flags: int, generic: bool) -> tuple[Pump, ...]:
    """(prefix, piece to repeat) worth trying on a pattern."""
    tree = parser.parse(pattern, flags)
    whole = _example(tree)
    found: list[Pump] = [("", c) for c in GENERIC] if generic else []
    for prefix, piece in _repeats(tree, ""):
        found += [(prefix, piece), ("", prefix + piece)]
    if whole:
        found += [("", whole), ("", whole[:-1] or "x")]
    return tuple(dict.fromkeys(found))


def pumped(pump: Pump, size: int) -> str:
    """A text of about `size` characters that begins to match and does not end so."""
    prefix, piece = pump
    return (prefix + piece * max(1, (size - len(prefix)) // len(piece)))[:size] + "\x01"


def _characters(items: Sequence[Any]) -> list[str]:
    if items and items[0][0] is codes.NEGATE:
        return [c for c in "a 7.,:_-\"'([{/=" if not _holds(items[1:], c)] or ["\x02"]
    out: list[str] = []
    for code, value in items:
        if code is codes.LITERAL:
            out.append(chr(value))
        elif code is codes.RANGE:
            out.append(chr(value[0]))
        elif code is codes.CATEGORY:
            out += _OF_CLASS[value][1]
    return out or ["x"]


def _holds(items: Sequence[Any], character: str) -> bool:
    for code, value in items:
        if code is codes.LITERAL and value == ord(character):
            return True
        if code is codes.RANGE and value[0] <= ord(character) <= value[1]:
            return True
        if code is codes.CATEGORY and re.match(_OF_CLASS[value][0], character):
            return True
    return False


def _candidates(node: tuple[Any, Any]) -> list[str]:
    code, value = node
    if code is codes.LITERAL:
        return [chr(value)]
    if code is codes.NOT_LITERAL:
        return [c for c in "a 7." if ord(c) != value]
    if code is codes.ANY:
        return ["a", " ", "7", "."]
    if code is codes.IN:
        return _characters(list(value))
    return [_example([node])]


def _example(nodes: Any) -> str:
    out = ""
    for code, value in nodes:
        if code in (codes.LITERAL, codes.NOT_LITERAL, codes.ANY, codes.IN):
            out += _candidates((code, value))[0]
        elif code is codes.SUBPATTERN:
            out += _example(value[3])
        elif code is codes.BRANCH:
            out += min(map(_example, value[1]), key=len)
        elif code in (codes.MAX_REPEAT, codes.MIN_REPEAT):
            out += _example(value[2]) * value[0]
    return out


def _repeats(nodes: Any, prefix: str) -> Iterator[Pump]:
    for node in nodes:
        code, value = node
        if code is codes.SUBPATTERN:
            yield from _repeats(value[3], prefix)
        elif code is codes.BRANCH:
            for branch in value[1]:
                yield from _repeats(branch, prefix)
        elif code in (codes.MAX_REPEAT, codes.MIN_REPEAT):
            body = list(value[2])
            if value[1] is codes.MAXREPEAT or value[1] >= MANY:
                for piece in _candidates(body[0]) if len(body) == 1 else [_example(body)]:
                    if piece:
                        yield prefix, piece
            yield from _repeats(body, prefix)
        prefix += _example([node])
