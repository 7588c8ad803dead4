"""`firstfault search`: ask the knowledge base."""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from firstfault_tools.expressions import expression
from firstfault_tools.findings import Category

if TYPE_CHECKING:
    from firstfault.knowledge_base.search import Found

_MARKS = expression(r"(\*\*|\*|`)(\S(?:[^*`]*\S)?)\1")
"""Emphasis and code of Markdown around words; a lone star or backtick stays."""
MAX_INPUT, MAX_LINES, WIDEST = 1_000_000, 8, 100


@click.command("search")
@click.argument("words", metavar="QUESTION", nargs=-1, required=True)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list, best first.")
@click.option("--limit", default=8, show_default=True, type=click.IntRange(1, 50))
@click.option("--full", is_flag=True, help="Print passages whole.")
@click.option(
    "--category",
    metavar="NAME",
    type=click.Choice([c.value for c in Category]),
    help=f"Only pages of one category: {', '.join(c.value for c in Category)}.",
)
@click.option("--framework", default=None, help="Only pages for this framework (or any).")
@click.option("--method", default="fused", type=click.Choice(["fused", "lexical", "vector"]))
def COMMAND(
    words: tuple[str, ...],
    as_json: bool,
    limit: int,
    full: bool,
    category: str | None,
    framework: str | None,
    method: str,
) -> None:
    """Find the passages that answer QUESTION: plain words, or pasted error lines ('-' reads stdin)."""
    from firstfault.knowledge_base.search import Method, open_index

    def progress(done: int, total: int) -> None:
        if sys.stderr.isatty():
            click.echo(f"\rembedding new passages {done}/{total}", err=True, nl=done == total)

    question = " ".join(words)
    if question == "-":
        question = sys.stdin.buffer.read(MAX_INPUT).decode("utf-8", errors="replace")
    if not question.strip():
        raise click.UsageError("the question is empty")
    index = open_index(vectors=method != "lexical", progress=progress)
    if framework is not None:
        _check_framework(framework, (name for p in index.passages for name in p.frameworks))
    found = index.search(question, limit, Method(method), category, framework)
    if as_json:
        click.echo(json.dumps([asdict(f) for f in found], ensure_ascii=False, indent=1))
        return
    if not found:
        click.echo("No page matches.")
    elif not index.knows_words(question):
        click.echo("No page holds any of these words; these are the nearest in meaning:\n")
    _show_passages(found, None if full else MAX_LINES)


def _show_passages(found: Sequence[Found], most_lines: int | None) -> None:
    for number, item in enumerate(found, 1):
        click.echo(f"{number}. {item.title} > {item.heading}  ({item.page}, {item.score:.3f})")
        for line in lay_out(item.passage, most_lines):
            click.echo(f"   {line}".rstrip())
        click.echo(f"   {item.url}\n" if item.url else "")


def _check_framework(framework: str, known: Iterable[str]) -> None:
    names = {name.lower(): name for name in known}
    if framework.lower() not in names:
        listed = ", ".join(sorted(names.values()))
        raise click.UsageError(f"--framework: no page is about {framework!r}; there are {listed}")


def lay_out(passage: str, limit: int | None) -> list[str]:
    """Lines of a passage as wide as the terminal; commands stay whole, so that they can be copied."""
    width = max(20, min(WIDEST, shutil.get_terminal_size().columns) - 3)
    lines: list[str] = []
    code = False
    for line in passage.splitlines():
        text = line.strip()
        if text.startswith("```"):
            code = not code
        elif code:
            lines.append(f"    {text}")
        elif text:
            text = _MARKS.sub(r"\2", text)
            lines += textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False)
    return lines if limit is None or len(lines) <= limit else [*lines[:limit], "… (--full)"]
