"""`firstfault search`: ask the knowledge base."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict

import click

MAX_INPUT = 1_000_000


@click.command("search")
@click.argument("question")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list, best first.")
@click.option("--limit", default=8, show_default=True, type=click.IntRange(1, 50))
@click.option("--category", default=None, help="Only pages of this category.")
@click.option("--framework", default=None, help="Only pages for this framework (or any).")
@click.option("--method", default="fused", type=click.Choice(["fused", "lexical", "vector"]))
def COMMAND(
    question: str,
    as_json: bool,
    limit: int,
    category: str | None,
    framework: str | None,
    method: str,
) -> None:
    """Find the passages that answer QUESTION: plain words, or pasted error lines ('-' reads stdin)."""
    from firstfault.knowledge_base.search import Method, open_index

    def progress(done: int, total: int) -> None:
        if sys.stderr.isatty():
            click.echo(f"\rembedding new passages {done}/{total}", err=True, nl=done == total)

    if question == "-":
        question = sys.stdin.buffer.read(MAX_INPUT).decode("utf-8", errors="replace")
    index = open_index(vectors=method != "lexical", progress=progress)
    found = index.search(question, limit, Method(method), category, framework)
    if as_json:
        click.echo(json.dumps([asdict(f) for f in found], ensure_ascii=False, indent=1))
        return
    if not found:
        click.echo("No page matches.")
    elif not index.knows_words(question):
        click.echo("No page holds any of these words; these are the nearest in meaning:\n")
    for number, item in enumerate(found, 1):
        lines = " ".join(item.passage.split())[:280]
        click.echo(
            f"{number}. {item.title} > {item.heading}  ({item.page}, {item.score:.3f})\n   {lines}\n"
        )
