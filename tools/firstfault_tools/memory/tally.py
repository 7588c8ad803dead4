"""How many elements does a formula over a config.json's fields come to?

Formulas are data (counts.json): whole-number arithmetic, conditions and four functions over the fields of a
configuration. A field that a file may leave out has its default in the table. Nothing of the file is run.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from firstfault_tools.errors import InvalidParameter

Value = int | str | tuple[Any, ...]
LARGEST = 10**16
"""No model is larger; a product beyond it is a wrong unit."""


@cache
def list_tables() -> dict[str, dict[str, Any]]:
    """Tables of counts.json by model type or class name."""
    data = json.loads(Path(__file__).with_name("counts.json").read_text(encoding="utf-8"))
    tables: dict[str, dict[str, Any]] = data["tables"]
    return tables


def tally(table: str, config: Mapping[str, Any], **given: int) -> int:
    """Value of a table's `count` over a configuration's fields; `given` are names of the caller.

    Raises InvalidParameter for a field that is missing, no whole number or out of any range.
    """
    entry = list_tables()[table]
    if "same" in entry:
        entry = list_tables()[entry["same"]]
    names = _Names({**entry.get("defaults", {}), **_drop_missing(config), **given})
    for name, formula in entry.get("let", {}).items():
        names.known[name] = _evaluate(_parse(formula), names)
    return _whole("count", _evaluate(_parse(entry["count"]), names))


def _drop_missing(config: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in config.items() if value is not None}


class _Names:
    """Fields of a configuration, read as whole numbers, words or rows of either."""

    __slots__ = ("known",)

    def __init__(self, known: dict[str, Any]) -> None:
        self.known = known

    def read(self, name: str) -> Value:
        """Value of a field. Raises InvalidParameter."""
        if name not in self.known:
            raise InvalidParameter(name, "is not given by this config.json")
        value = self.known[name]
        if isinstance(value, bool | int):
            return int(value)
        if isinstance(value, float) and value == int(value):
            return int(value)
        if isinstance(value, str):
            return value
        if isinstance(value, list | tuple):
            return tuple(value)
        raise InvalidParameter(name, f"must be a whole number, got {str(value)[:40]!r}")


@cache
def _parse(formula: str) -> ast.expr:
    return ast.parse(formula, mode="eval").body


def _whole(name: str, value: Value) -> int:
    if not isinstance(value, int):
        raise InvalidParameter(name, f"must be a whole number, got {str(value)[:40]!r}")
    if abs(value) > LARGEST:
        raise InvalidParameter(name, "is larger than any known model; check the units")
    return value


def _count(row: Value, item: Value) -> int:
    if not isinstance(row, tuple | str):
        raise InvalidParameter("layers", "must be a list of layer kinds")
    return row.count(item)  # type: ignore[arg-type]


def _turns(length: Value, every: Value, offset: Value = 0) -> int:
    """How many of `length` layers stand at `offset` in turns of `every`."""
    total, turn, first = (_whole("layers", value) for value in (length, every, offset))
    if turn < 1 or not 0 <= total <= 10_000:
        raise InvalidParameter("layers", f"cannot be told in turns of {turn}")
    return sum(1 for layer in range(total) if layer % turn == first)


_FUNCTIONS: dict[str, Callable[..., int]] = {
    "count": _count,
    "turns": _turns,
    "size": lambda row: len(row) if isinstance(row, tuple | str) else 0,
    "ceil": lambda value, step: -(-_whole("size", value) // max(1, _whole("step", step))),
}

_ARITHMETIC: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.FloorDiv: lambda a, b: a // b if b else 0,
}


def _name(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else "count"


def _evaluate(node: ast.expr, names: _Names) -> Value:
    match node:
        case ast.Constant(value=int() | str() as value):
            return int(value) if isinstance(value, bool) else value
        case ast.Name(id=name):
            return names.read(name)
        case ast.BinOp(left=left, op=operator, right=right) if type(operator) in _ARITHMETIC:
            first, second = (_whole(_name(side), _evaluate(side, names)) for side in (left, right))
            return _whole("count", _ARITHMETIC[type(operator)](first, second))
        case ast.IfExp(test=test, body=body, orelse=other):
            return _evaluate(body if _evaluate(test, names) else other, names)
        case ast.Compare(left=left, ops=[ast.Eq()], comparators=[right]):
            return int(_evaluate(left, names) == _evaluate(right, names))
        case ast.Call(func=ast.Name(id=name), args=arguments) if name in _FUNCTIONS:
            return _FUNCTIONS[name](*(_evaluate(argument, names) for argument in arguments))
        case ast.Subscript(value=row, slice=place):
            found = _evaluate(row, names)
            index = _whole("index", _evaluate(place, names))
            if isinstance(found, tuple) and 0 <= index < len(found):
                return _whole("size", found[index])
            return _whole("size", found)
    raise ValueError(f"no formula of a table: {ast.dump(node)[:80]}")
