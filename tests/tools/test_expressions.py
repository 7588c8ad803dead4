from __future__ import annotations

import copy
import importlib
import pickle
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import firstfault
import firstfault_tools
from firstfault_tools.expressions import _Expression, expression


def _late_in(value: Any, depth: int = 0) -> Iterator[_Expression]:
    if isinstance(value, _Expression):
        yield value
    elif isinstance(value, dict) and depth < 3:
        for item in value.values():
            yield from _late_in(item, depth + 1)
    elif isinstance(value, tuple | list | frozenset | set) and depth < 3:
        for item in value:
            yield from _late_in(item, depth + 1)


def test_every_pattern_of_every_module_compiles() -> None:
    """What `re.compile` said at import is said here, with the module to edit."""
    seen = 0
    for package in (firstfault_tools, firstfault):
        root = Path(package.__path__[0])
        for file in sorted(root.rglob("*.py")):
            if "expression(" not in file.read_text(encoding="utf-8"):
                continue
            name = ".".join((package.__name__, *file.relative_to(root).with_suffix("").parts))
            for late in _late_in(vars(importlib.import_module(name))):
                try:
                    re.compile(late.pattern, late.flags)
                except re.error as error:
                    pytest.fail(f"{file}: {late.pattern!r}: {error}")
                seen += 1
    assert seen > 500


def test_it_behaves_like_a_compiled_pattern() -> None:
    late, now = expression(r"(?P<rank>\d+)", re.I), re.compile(r"(?P<rank>\d+)", re.I)
    text = "rank 7 of 16"
    assert late.search(text)["rank"] == "7"  # type: ignore[index]
    assert late.findall(text) == now.findall(text)
    assert late.sub("N", text) == now.sub("N", text)
    assert [m.span() for m in late.finditer(text)] == [m.span() for m in now.finditer(text)]
    assert late.groupindex == now.groupindex
    assert late.pattern == now.pattern
    assert expression(b"\xff").search(b"a\xff") is not None


def test_nothing_is_compiled_before_its_first_use() -> None:
    late = expression("(")
    with pytest.raises(re.error):
        late.search("x")


def test_it_can_be_copied_and_sent_to_a_worker() -> None:
    late = expression("a+")
    assert late.search("caat") is not None
    for other in (copy.deepcopy(late), pickle.loads(pickle.dumps(late))):
        found = other.search("caat")
        assert found is not None
        assert found[0] == "aa"
