"""A test over rows of data is one test: every row is tried, and each that fails is told by its name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from typing import Any

import pytest

Check = Callable[..., None]
_Named = type(pytest.param())


def each_row(
    names: str | Sequence[str],
    table: Iterable[Any],
    ids: Iterable[Any] | Callable[[Any], Any] | None = None,
) -> Callable[[Check], Check]:
    """Decorator with the arguments of `pytest.mark.parametrize`, for rows that leave nothing behind.

    Fixtures are made once for all rows: where each row needs a folder or a patch of its own, parametrise.
    """
    alone = isinstance(names, str) and "," not in names
    columns = [n.strip() for n in names.split(",")] if isinstance(names, str) else list(names)
    given = list(table)
    told = list(ids) if ids is not None and not callable(ids) else [None] * len(given)
    tell = ids if callable(ids) else lambda value: repr(value)[:60]
    table = []
    for row, name in zip(given, told, strict=True):
        if isinstance(row, _Named):
            assert not row.marks, "a row with a mark is a test of its own"
            values, name = row.values, name or row.id
        else:
            values = (row,) if alone else tuple(row)
        table.append((str(name or ", ".join(str(tell(value)) for value in values)), values))
    assert table, "a table without rows tests nothing"

    def decorate(check: Check) -> Check:
        needs = inspect.signature(check).parameters
        assert set(columns) <= set(needs)

        @wraps(check)
        def try_rows(subtests: pytest.Subtests, **fixtures: Any) -> None:
            for name, values in table:
                with subtests.test(name):
                    check(**fixtures, **dict(zip(columns, values, strict=True)))

        own = inspect.signature(try_rows).replace
        shown = [p for name, p in needs.items() if name not in columns]
        asked = inspect.Parameter("subtests", inspect.Parameter.POSITIONAL_OR_KEYWORD)
        try_rows.__signature__ = own(parameters=[asked, *shown])  # type: ignore[attr-defined]
        return try_rows

    return decorate
