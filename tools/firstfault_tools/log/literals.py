"""Which fixed text must a line hold for a pattern to match it? Read off the pattern's syntax tree.

A set of literals stands for "every match contains at least one of these". Searching for literals
needs a far smaller automaton than the patterns themselves, so most of a log is dismissed by them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

Literal = tuple[str, bool]
"""(text, any case)."""

SHORTEST = 4
MOST, MOST_COMMON = 64, 512
ENOUGH = 12
"""Longer literals are not rarer in practice."""

COMMON = frozenset(
    (
        *("rank", "loss", "iter", "iteration", "step", "steps", "epoch", "batch", "batches"),
        *("token", "tokens", "time", "checkpoint", "async", "grad norm", "memory", "cuda", "info"),
        *("warning", "error", "train", "training", "model", "data", "api", "access", "secret"),
        *("passw", "nccl", "process", "thread", "writer", "reader", "worker", "learning rate"),
        *("loss scale", "samples"),
    )
)
"""Words of ordinary step lines; a pattern that only holds these is better tried whole."""


VERSION = 2
"""Raised when the choice of literals changes, so that written ones are not taken for it."""

_read: dict[str, frozenset[Literal] | None] = {}
"""Literals read from the knowledge pack: parsing a thousand patterns takes a fifth of a second."""

_unread: list[Any] = []
"""What was taken over and not yet looked at: a short log asks for no literals."""


def write_literals(patterns: Iterable[str]) -> dict[str, Any]:
    """Literals of patterns as JSON-able data."""
    found = {pattern: required_literals(pattern) for pattern in patterns}
    return {
        "version": VERSION,
        "of": {p: sorted(map(list, s)) if s is not None else None for p, s in found.items()},
    }


def read_literals(row: Any) -> None:
    """Take over what `write_literals` wrote; other data and other versions are passed over."""
    if isinstance(row, dict) and row.get("version") == VERSION:
        _unread.append(row["of"])


def _read_on() -> None:
    while _unread:
        for pattern, literals in _unread.pop(0).items():
            _read[pattern] = (
                frozenset((text, bool(any_case)) for text, any_case in literals)
                if literals is not None
                else None
            )


def required_literals(pattern: str) -> frozenset[Literal] | None:
    """The most telling set of literals of which every match holds one; None where there is none."""
    if _unread:
        _read_on()
    return _read[pattern] if pattern in _read else _find_literals(pattern)


@lru_cache(maxsize=8192)
def _find_literals(pattern: str) -> frozenset[Literal] | None:
    from re import _parser  # type: ignore[attr-defined]

    try:
        tree = _parser.parse(pattern)
    except re.error:  # said where the pattern is compiled
        return None
    sets = _candidates(list(tree), bool(tree.state.flags & re.IGNORECASE))
    telling = [s for s in sets if _worth(s) >= SHORTEST and not _is_common(s)]
    return max(telling, key=lambda s: (min(_worth(s), ENOUGH), -len(s)), default=None)


@lru_cache(maxsize=8192)
def common_literals(pattern: str) -> frozenset[Literal] | None:
    """As `required_literals`, of words that any log may hold: they tell something of a few lines only."""
    from re import _parser  # type: ignore[attr-defined]

    tree = _parser.parse(pattern)
    sets = _candidates(list(tree), bool(tree.state.flags & re.IGNORECASE), MOST_COMMON)
    some = [s for s in sets if all(len(text) > 1 for text, _ in s)]
    return max(some, key=lambda s: (min(_worth(s), ENOUGH), -len(s)), default=None)


def _worth(literals: Iterable[Literal]) -> int:
    return min(len(text.strip()) for text, _ in literals)


def _is_common(literals: Iterable[Literal]) -> bool:
    return any(text.strip(" :=,.'\"[]()").lower() in COMMON for text, _ in literals)


def _candidates(
    items: list[tuple[Any, Any]], any_case: bool, most: int = MOST
) -> list[frozenset[Literal]]:
    """Every set of literals that a sequence of syntax nodes requires."""
    out: list[frozenset[Literal]] = []
    run = ""
    for node, argument in items:
        kind = str(node)
        if kind == "LITERAL":
            run += chr(argument)
            continue
        if kind == "AT":  # anchors and word borders take no room
            continue
        if kind == "SUBPATTERN":
            _, added, removed, inner = argument
            inner_case = (any_case or bool(added & re.IGNORECASE)) and not removed & re.IGNORECASE
            if inner_case == any_case and all(str(n) == "LITERAL" for n, _ in inner):
                run += "".join(chr(code) for _, code in inner)
                continue
            out += _close(run, any_case) + _candidates(list(inner), inner_case, most)
        elif kind == "BRANCH":
            out += _close(run, any_case) + _join_branches(run, argument[1], any_case, most)
        elif kind in ("MAX_REPEAT", "MIN_REPEAT") and argument[0] >= 1:
            out += _close(run, any_case) + _candidates(list(argument[2]), any_case, most)
        else:
            out += _close(run, any_case)
        run = ""
    return out + _close(run, any_case)


def _close(run: str, any_case: bool) -> list[frozenset[Literal]]:
    return [frozenset([(run, any_case)])] if run else []


def _join_branches(
    prefix: str, branches: Iterable[Any], any_case: bool, most: int
) -> list[frozenset[Literal]]:
    """One set that holds the best of each branch, the text before them put in front."""
    from re import _constants  # type: ignore[attr-defined]

    before = [(_constants.LITERAL, ord(character)) for character in prefix]
    union: set[Literal] = set()
    for branch in branches:
        sets = _candidates([*before, *branch], any_case, most)
        if not sets:
            return []
        union |= max(sets, key=lambda s: (not _is_common(s), _worth(s)))
    return [frozenset(union)] if len(union) <= most else []
