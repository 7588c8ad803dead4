"""A value that rules read is told by somebody, and is read as the type that it is asked for."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.rows import each_row

from firstfault_tools.facts import Fact, Json, known
from firstfault_tools.findings import Finding, Level

ROOT = Path(__file__).parents[2]


def finding(value: Json) -> Finding:
    return Finding("a.b", "t", Level.CONTEXT, facts=known(ranks=value))


@each_row(
    ("value", "text", "whole", "number", "wholes", "flag"),
    [
        (None, "", None, None, (), False),
        (False, "", 0, 0.0, (), False),
        (True, "True", 1, 1.0, (), True),
        (0, "0", 0, 0.0, (), False),
        (7, "7", 7, 7.0, (), True),
        (2.5, "2.5", None, 2.5, (), True),
        (float("nan"), "nan", None, None, (), True),
        ("12", "12", 12, None, (), True),
        ("12 GiB", "12 GiB", None, None, (), True),
        ("9" * 30, "9" * 30, None, None, (), True),
        ([3, "4"], "[3, '4']", None, None, (3, 4), True),
    ],
)
def test_a_value_is_read_as_it_is_asked_for(
    value: Json, text: str, whole: int | None, number: float | None, wholes: tuple[int, ...], flag: bool
) -> None:  # fmt: skip
    told = finding(value)
    assert (told.text(Fact.RANKS), told.whole(Fact.RANKS)) == (text, whole)
    assert told.number(Fact.RANKS) == pytest.approx(number, nan_ok=True) or number is None
    assert (told.wholes(Fact.RANKS), told.flag(Fact.RANKS)) == (wholes, flag)


def test_who_tells_each_fact() -> None:
    """A capture of a signature or of a table, or a name in the tools: else the rule that reads it never holds."""
    places = [*(ROOT / "tools").rglob("*.py"), *(ROOT / "tools").rglob("*.json"), *(ROOT / "knowledge/signatures").rglob("*.yaml")]  # fmt: skip
    text = "\n".join(p.read_text(encoding="utf-8") for p in places if p.name != "facts.py")
    forms = ('"{}"', "(?P<{}>", "{}=", "Fact.{}:")
    silent = [f for f in Fact if not any(w.format(n) in text for w in forms for n in (f.value, f.name))]  # fmt: skip
    assert not silent


def test_a_subject_begins_the_title() -> None:
    told = Finding("a.b", "GPU 3: is hot", Level.CAUSE, subject="GPU 3")
    assert told.predicate == "is hot"
    assert Finding("a.b", "is hot", Level.CAUSE).predicate == "is hot"


def test_a_page_comes_from_the_kind_where_none_is_named() -> None:
    assert Finding("stacks.fatal_error", "t", Level.CAUSE).page == "segfault"
    assert Finding("stacks.fatal_error", "t", Level.CAUSE, page="other").page == "other"
    assert Finding("signature.nothing", "t", Level.CAUSE).page is None
