"""Which lines does the evidence hold? Overview, grep and window: bounded, and they say what they cut."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from firstfault.agent.context import ToolAnswer, TurnContext
from firstfault.agent.untrusted import make_plain
from firstfault.grounding.items import Item
from firstfault.plain_text import say_pattern_error
from firstfault_tools.errors import InvalidParameter
from firstfault_tools.log import secrets
from firstfault_tools.log.line import normalise
from firstfault_tools.log.window import read_window

if TYPE_CHECKING:
    from langchain_core.tools import StructuredTool

MAX_SHOWN = 30
MAX_PATTERN = 200
GREP_SECONDS = 6.0
COUNT_BYTES = 512 * 1024 * 1024


def make_line_tools(context: TurnContext) -> list[StructuredTool]:
    """Tools over the artefacts of the incident."""
    from langchain_core.tools import StructuredTool
    from pydantic import BaseModel, Field

    class Nothing(BaseModel):
        """No arguments."""

    class Grep(BaseModel):
        """Arguments of grep."""

        pattern: str = Field(max_length=MAX_PATTERN)
        file: str = Field("", max_length=300)
        first: int = Field(1, ge=1)

    class Window(BaseModel):
        """Arguments of window."""

        file: str = Field(max_length=300)
        line: int = Field(ge=1)
        around: int = Field(10, ge=0, le=40)

    if not context.question.artefacts:
        return []
    return [
        StructuredTool.from_function(
            lambda: show_overview(context), name="overview", args_schema=Nothing,
            description="All files with size and lines.",
            response_format="content_and_artifact",
        ),
        StructuredTool.from_function(
            lambda pattern, file="", first=1: grep(context, pattern, file, first), name="grep",
            args_schema=Grep, response_format="content_and_artifact",
            description=f"Lines that match an RE2 pattern, from line `first` on, in one file (F1) or all; at most {MAX_SHOWN}.",
        ),
        StructuredTool.from_function(
            lambda file, line, around=10: show_window(context, file, line, around), name="window",
            args_schema=Window, response_format="content_and_artifact",
            description="Lines around one line of a file.",
        ),
    ]  # fmt: skip


def show_overview(context: TurnContext) -> ToolAnswer:
    """One row a file, and its ends."""
    rows, items = [], []
    for number, (name, path) in enumerate(context.question.artefacts.items(), 1):
        if number > 40:
            rows.append(f"({len(context.question.artefacts) - 40} more files)")
            break
        size = path.stat().st_size
        lines = f"{_count_lines(path)} lines" if size <= COUNT_BYTES else "too large to count"
        rows.append(f"F{number} {context.veil.hide(make_plain(name, 120))}: {size} bytes, {lines}")
        for line, text in read_window(path, 1, 2):
            item = context.book.add_line(name, line, text)
            items.append(item)
            rows.append("  " + context.show(item))
    receipt = context.question.diagnosis.input if context.question.diagnosis is not None else None
    if receipt is not None:
        rows.append(
            f"ranks seen: {len(receipt.ranks_seen)}; world size {receipt.world_size or 'not printed'}"
        )
        rows += [
            f"not read: {make_plain(s.what, 80)} ({make_plain(s.why, 120)})"
            for s in receipt.skipped[:10]
        ]
    summary = context.book.add_result(
        "overview", "\n".join(r for r in rows if not r.startswith("  "))
    )
    return context.result(f"{summary.id} overview\n" + "\n".join(rows), [*items, summary])


def _compile_pattern(pattern: str) -> Any:
    import re2

    if not pattern.strip():
        raise InvalidParameter("pattern", "must not be empty")
    try:
        return re2.compile(pattern)
    except re2.error as error:
        raise InvalidParameter(
            "pattern", f"no RE2 expression: {say_pattern_error(error)}"
        ) from error


def grep(context: TurnContext, pattern: str, file: str = "", first: int = 1) -> ToolAnswer:
    """Matching lines in reading order. Bounded by time, so it says where it stopped."""
    compiled = _compile_pattern(context.veil.restore(pattern))
    files = dict(context.question.artefacts)
    if file.strip():
        one = context.file_of(file)
        if one is None:
            raise InvalidParameter("file", f"no file {file[:60]!r}; there are F1 to F{len(files)}")
        files = dict([one])
    limit = time.monotonic() + GREP_SECONDS
    shown: list[str] = []
    items: list[Item] = []
    counts: list[tuple[int, str]] = []
    stopped = ""
    for name, path in files.items():
        found = 0
        for number, text in _lines(path, first):
            if number % 4096 == 0 and (time.monotonic() > limit or context.question.is_stopped()):
                stopped = (
                    f"stopped for time at {context.alias(name)}:{number}; go on with first={number}"
                )
                break
            if not compiled.search(text):
                continue
            found += 1
            if len(shown) < MAX_SHOWN:
                item = context.book.add_line(name, number, text)
                items.append(item)
                shown.append(context.show(item))
        counts.append((found, name))
        if stopped:
            break
    total = sum(c for c, _ in counts)
    where = ", ".join(f"{c} in {context.alias(n)}" for c, n in counts if c)[:600]
    found_in = f" ({where})" if where else ""
    count = f"{total} lines match{found_in}" + (f"; {stopped}" if stopped else "")
    # the pattern is the model's own words; it may only say of them that they are not there
    echo = context.veil.restore(pattern) if total == 0 and not stopped else ""
    summary = context.book.add_result("grep", count, echo)
    more = f"\n({total - len(shown)} more matches not shown)" if total > len(shown) else ""
    head = f"{summary.id} grep {pattern!r}: {count}"
    return context.result("\n".join([head, *shown]) + more, [*items, summary])


def show_window(context: TurnContext, file: str, line: int, around: int = 10) -> ToolAnswer:
    """Lines around a line."""
    one = context.file_of(file)
    if one is None:
        count = len(context.question.artefacts)
        raise InvalidParameter("file", f"no file {file[:60]!r}; there are F1 to F{count}")
    name, path = one
    items = [
        context.book.add_line(name, number, text)
        for number, text in read_window(path, line - around, line + around)
        if text.strip()
    ]
    if not items:
        return context.result(f"{context.alias(name)} has no line {line}.", [])
    return context.result("\n".join(context.show(i) for i in items), items)


def _lines(path: Path, first: int) -> Iterator[tuple[int, str]]:
    with path.open("rb") as stream:
        raws = iter(lambda: stream.readline(16 * 1024 * 1024), b"")
        shown = secrets.redact_lines(map(normalise, islice(raws, max(0, first - 2), None)))
        for number, text in enumerate(shown, max(1, first - 1)):
            if number >= first:
                yield number, text


def _count_lines(path: Path) -> int:
    count, last = 0, b"\n"
    with path.open("rb") as stream:
        while block := stream.read(1 << 20):
            count += block.count(b"\n")
            last = block[-1:]
    return count + (last != b"\n")
