"""Is every row tried though one fails, under its own name, and are fixtures still asked for?"""

from __future__ import annotations

import inspect
from contextlib import AbstractContextManager, suppress
from pathlib import Path

import pytest
from tests.rows import each_row


class Told:
    """Stands for the fixture of pytest: notes the names and lets failures pass."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def test(self, name: str) -> AbstractContextManager[None]:
        self.names.append(name)
        return suppress(AssertionError)


@pytest.mark.parametrize(
    ("ids", "named"),
    [(None, ["1, 'x'", "2, 'y'"]), (("a", "b"), ["a", "b"]), (type, ["<class 'int'>, <class 'str'>"] * 2)],
)  # fmt: skip
def test_all_rows_are_tried(ids: object, named: list[str]) -> None:
    tried = []

    def check(number: int, word: str, tmp_path: Path) -> None:
        tried.append((number, word, tmp_path.name))
        raise AssertionError

    told = Told()
    test = each_row("number, word", [(1, "x"), pytest.param(2, "y")], ids=ids)(check)  # type: ignore[arg-type]
    assert list(inspect.signature(test).parameters) == ["subtests", "tmp_path"]
    test(told, tmp_path=Path("p"))
    assert tried == [(1, "x", "p"), (2, "y", "p")]
    assert told.names == named


def test_a_table_without_rows_is_a_mistake() -> None:
    with pytest.raises(AssertionError):
        each_row("number", [])
