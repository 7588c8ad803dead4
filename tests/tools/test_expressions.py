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


@pytest.mark.parametrize("limit", [0, 128])
@pytest.mark.parametrize("pad", ["", "x" * 300, "é" * 300, "\ud800" * 300])
def test_short_and_long_texts_are_answered_alike(limit: int, pad: str) -> None:
    source = r"(?P<host>[a-z]+\d)(?: rank (?P<rank>\d+))?"
    late, now = expression(source, re.I, limit), re.compile(source, re.I)
    text = f"{pad} node7 rank 12, node8 {pad}"
    got, wanted = late.search(text), now.search(text)
    assert got is not None
    assert wanted is not None
    assert got.groupdict() == wanted.groupdict()
    assert got.span("rank") == wanted.span("rank")
    assert (got.start("host"), got.end("host"), got.end()) == (
        wanted.start("host"), wanted.end("host"), wanted.end(),
    )  # fmt: skip
    assert [m.span("host") for m in late.finditer(text)] == [
        m.span("host") for m in now.finditer(text)
    ]
    assert late.findall(text) == now.findall(text)
    if "\ud800" not in pad:
        assert late.sub(lambda m: str(m.start("host")), text) == now.sub(
            lambda m: str(m.start("host")), text
        )
        assert late.sub(r"<\g<host>>", text) == now.sub(r"<\g<host>>", text)
        assert late.split(text, 1) == now.split(text, 1)


def test_what_needs_a_look_around_is_found_in_any_window() -> None:
    late = expression(r"(?<!\w)rank (\d+)(?!\w)")
    for place in (0, 120, 900, 1_000, 1_020, 1_030, 5_000):
        text = " " * place + "rank 17" + " " * 3_000
        found = late.search(text)
        assert found is not None
        assert (found.start(), found[1]) == (place, "17")
