"""Can a text make any pattern work out of proportion to its length? Every one of code, tables and signatures.

A long text goes to google-re2, linear by construction, or window by window to `re`. So three things are
asked: who executes a pattern; what one window costs where that is `re`; what a text costs that is short
enough for `re`. Cost is the quickest of several searches beside that of a plain square: a search takes
less than a turn of the scheduler, so some of them run undisturbed. The clock is that of the wall, as
those of threads and processes tick in hundredths of a second on some machines. The bounds are a multiple
of what was measured.
"""

from __future__ import annotations

import ast
import gc
import importlib
import inspect
import re
import signal
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from evals.pumping import pumped, pumps
from tests.rows import each_row

import firstfault
import firstfault_tools
from firstfault.workspace import Workspace
from firstfault_tools.expressions import (
    SHORT,
    WINDOW,
    Windows,
    _Expression,
    compile_linear,
    expression,
)

WORST_WINDOW = 110.0
"""Times a plain square of `WINDOW` characters that one window may cost; the dearest took 35, a prefix of a rank."""

GREW = 24.0
"""Times the same square that a text of `INLINE` characters costs where a pattern grows with its cube."""

WORST_SHORT = 700.0
"""Times a plain square of `SHORT` characters that a text of that length may cost; the dearest took 224."""

INLINE = 4 * WINDOW
"""Characters on which patterns that are written into a call of `re` are tried, with the bound of a window."""

ENOUGH = 1.0
"""Seconds of CPU after which a search is broken off: beyond any bound."""

TIMES = 40
"""Searches of which the quickest counts; a search within the bound ends the measurement."""

Search = Callable[[str], object]


@cache
def every_expression() -> dict[tuple[str, int], _Expression]:
    """Every expression of every module, table and signature."""
    for package in (firstfault_tools, firstfault):
        root = Path(package.__path__[0])
        for file in sorted(root.rglob("*.py")):
            name = ".".join((package.__name__, *file.relative_to(root).with_suffix("").parts))
            if file.stem == "__main__" or ".ui." in name or ".migrations" in name:
                continue
            module = importlib.import_module(name)
            for value in list(vars(module).values()):
                # tables are compiled by cached functions without parameters
                cached = hasattr(value, "cache_info") and value.__module__ == name
                if cached and not inspect.signature(value).parameters:
                    value()
    signatures = Workspace().knowledge.signatures
    for pattern in {
        p for s in signatures.signatures for p in (*s.patterns, *s.unless, *s.needs, *s.without)
    }:
        signatures.expression(pattern)
    gc.unfreeze()  # a page that was started in this process sets what it loaded aside
    found = [o for o in gc.get_objects() if type(o) is _Expression]
    return {
        (o.pattern, o.flags): o for o in found if isinstance(o.pattern, str) and o.pattern != "("
    }


def every_inline_pattern() -> dict[str, str]:
    """Constant patterns of `re.search(...)` and its like, with where they stand."""
    found: dict[str, str] = {}
    for package in (firstfault_tools, firstfault):
        root = Path(package.__path__[0])
        for file in sorted(root.rglob("*.py")):
            for node in ast.walk(ast.parse(file.read_text("utf-8"))):
                if (
                    isinstance(node, ast.Call)
                    and isinstance(node.func, ast.Attribute)
                    and isinstance(node.func.value, ast.Name)
                    and node.func.value.id == "re"
                    and node.args
                    and isinstance(node.args[0], ast.Constant)
                    and isinstance(node.args[0].value, str)
                ):
                    found[node.args[0].value] = f"{file.relative_to(root)}:{node.lineno}"
    return found


class _Endless(Exception):
    """A search was broken off."""


@pytest.fixture
def square() -> Iterator[Callable[[int], float]]:
    """Seconds of a plain square over so many characters; searches are broken off after ENOUGH."""

    def stop(_number: int, _frame: FrameType | None) -> None:
        raise _Endless

    before = signal.signal(signal.SIGPROF, stop)
    yield cache(lambda size: cost(re.compile(r"\s*x").search, " " * size, 0.0))
    signal.signal(signal.SIGPROF, before)


def cost(search: Search, text: str, bound: float) -> float:
    """Seconds of the quickest of several searches, of which the first within the bound is enough."""
    best = ENOUGH
    for _ in range(TIMES):
        signal.setitimer(signal.ITIMER_PROF, ENOUGH)
        begin = time.perf_counter()
        try:
            search(text)
        except _Endless:
            return ENOUGH
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
        best = min(best, time.perf_counter() - begin)
        if best <= bound:
            break
    return best


def find_dear(pattern: str, flags: int, size: int, bound: float) -> str:
    """The first text of `size` characters that costs more than `bound`; empty where none does."""
    search = re.compile(pattern, flags).search
    for pump in pumps(pattern, flags, True):
        if cost(search, pumped(pump, size - 4), bound) > bound:
            return f"{size} characters of {pump!r}: {pattern[:200]}"
    return ""


def test_long_texts_are_searched_by_google_re2_or_in_windows() -> None:
    known = every_expression()
    assert len(known) > 3_500
    refused = flat = 0
    for (pattern, flags), found in known.items():
        if found.is_flat:
            flat += 1
            continue
        found.search("x" * (max(SHORT, found.limit) + 1))
        linear = compile_linear(pattern, flags) is not None
        assert (found.__dict__["_linear"] is not None) == linear, pattern
        assert found.limit <= SHORT, pattern
        refused += not linear
    print(f"{len(known)} patterns, {refused} of them in windows, {flat} of them one class each")


def test_one_class_of_characters_grows_with_the_length(square: Callable[[int], float]) -> None:
    """As many characters as the square has comparisons would take a thousand times the bound."""
    size = WINDOW * 32
    bound = WORST_WINDOW * square(WINDOW)
    known = [key for key, found in every_expression().items() if found.is_flat]
    assert len(known) > 10
    dear = [found for p, flags in known if (found := find_dear(p, flags, size, bound))]
    assert not dear
    for pattern in (r"\s*x", r"[a-z]+\d", r"(?:[a-z]+)+", r"[a]|b", r"[\]]]"):
        assert not expression(pattern).is_flat  # type: ignore[attr-defined]
    for pattern in (r"\s+", r"[^]a]*", r"[\]x]", r"[-\d.+ ]+"):
        assert expression(pattern).is_flat  # type: ignore[attr-defined]


class _Watched:
    """A pattern that notes how much it is shown at once."""

    groups = 0

    def __init__(self) -> None:
        self.widest = 0
        self._compiled = re.compile("(?<!q)needle")

    def __getattr__(self, name: str) -> Any:
        def look(text: str, pos: int = 0, endpos: int | None = None) -> object:
            end = len(text) if endpos is None else endpos
            self.widest = max(self.widest, end - pos)
            return getattr(self._compiled, name)(text, pos, end)

        return look


@each_row(
    ("method", "given"),
    [
        ("search", ()),
        ("match", ()),
        ("fullmatch", ()),
        ("findall", ()),
        ("split", ()),
        ("sub", ("!",)),
        ("subn", ("!",)),
    ],
)
def test_windows_show_little_at_once_and_find_the_same(method: str, given: tuple[str, ...]) -> None:
    watched, plain = _Watched(), re.compile("(?<!q)needle")
    text = "".join("hay" * n + "needle" + "qneedle" * (n % 3) for n in range(0, 400, 7))
    told = getattr(Windows(watched), method)(*given, text)  # type: ignore[arg-type]
    assert watched.widest <= WINDOW
    expected = getattr(plain, method)(*given, text)
    spans = (told and told.span(), expected and expected.span()) if method == "search" else None
    assert spans[0] == spans[1] if spans else told == expected or method == "match"


@pytest.mark.slow
def test_no_window_costs_more_than_a_bound(square: Callable[[int], float]) -> None:
    bound = WORST_WINDOW * square(WINDOW)
    dear = [
        found
        for pattern, flags in every_expression()
        if compile_linear(pattern, flags) is None
        and (found := find_dear(pattern, flags, WINDOW, bound))
    ]
    assert not dear, "write them so that google-re2 takes them, or bound them:\n" + "\n".join(dear)


@pytest.mark.slow
def test_no_short_text_costs_more_than_a_bound(square: Callable[[int], float]) -> None:
    bound = WORST_SHORT * square(SHORT)
    dear = [
        found
        for (pattern, flags), known in every_expression().items()
        if known.limit and (found := find_dear(pattern, flags, SHORT, bound))
    ]
    assert not dear, "ask `re` about nothing (short=0):\n" + "\n".join(dear)


@pytest.mark.slow
def test_no_pattern_inside_a_call_grows_with_the_square(square: Callable[[int], float]) -> None:
    bound = WORST_WINDOW * square(WINDOW)
    known = every_inline_pattern()
    assert len(known) > 60
    dear = [
        f"{place}: {found}"
        for pattern, place in known.items()
        if (found := find_dear(pattern, 0, INLINE, bound))
    ]
    assert not dear, "bound every repeat, or name them as expressions:\n" + "\n".join(dear)


@pytest.mark.parametrize(
    "pattern",
    [
        r"(?i)num_workers[\"']?\s*[:=. ]+\s*(\d+)",
        r"(?i)(?:world[_ ]?size|world)['\"]?\s*(?:\.{2,}|[:=]|is)?\s*(\d{1,6})\b",
        r"(?i)(?:node|instance)[ =:\"]+(?P<node>[\w.-]*\d[\w.-]*).{0,60}spot interruption",
        r"(?P<what>(?:ppo_|mini_)\w*batch_size\w*)\S* ?\(?(?P<a>\d+)?\)? must be",
    ],
)
def test_what_once_hung_is_found_and_now_linear(
    square: Callable[[int], float], pattern: str
) -> None:
    """Under `re` each of these took minutes on one line of 60,000 characters."""
    assert find_dear(pattern, 0, INLINE, GREW * square(WINDOW))
    assert compile_linear(pattern) is not None
    assert expression(pattern).search("x" * INLINE) is None
