"""How does a report read as Markdown? The source of the HTML, and what wikis paste."""

from __future__ import annotations

import re

from firstfault.postmortem.document import (
    BLANK,
    Block,
    Bullets,
    Chart,
    Grid,
    Heading,
    Paragraph,
    Source,
    lay_out,
)
from firstfault.postmortem.report import Report
from firstfault_tools.expressions import expression

CHART = "chart"
"""Name of the fence round a chart of plain characters, whose lines must not wrap."""

_SPECIAL = expression(r"([\\`*<>|~])")
_UNDERSCORE = expression(r"(?<!\S)_{8}(?!\S)|(?<=[^\W_])_(?=[^\W_])|(_)")
"""A blank, an underscore inside a word, or (group 1) one that could become emphasis."""
_BRACKET = expression(r"\[(?!\d+\])|(?<!\d)\]|(?<=\d)\](?=\()")
_START = expression(r"^(\s*\d*)([#+-]|(?<=\d)[.)])(?=\s)")


def write_markdown(report: Report) -> str:
    """The report as Markdown with tables (GitHub's flavour)."""
    return "\n\n".join(_block(b) for b in lay_out(report)).rstrip() + "\n"


def escape(text: str) -> str:
    """Text that shows as it is: log lines cannot make links, tags or tables. [n] marks stay."""
    flat = " ".join(text.split())
    flat = _SPECIAL.sub(r"\\\1", flat)
    flat = _UNDERSCORE.sub(lambda m: "\\_" if m[1] else m[0], flat)
    flat = _BRACKET.sub(lambda m: "\\" + m[0], flat)
    return _START.sub(r"\1\\\2", flat)


def escape_around_code(text: str, cell: bool = False) -> str:
    """Like `escape`, but `code` in single backticks stays code. cell: of a table, which a bar in code would split."""
    parts = re.split(r"(?<!`)`([^`]+)`(?!`)", " ".join(text.split()))
    return "".join(_code(p, cell) if n % 2 else escape_part(p) for n, p in enumerate(parts))


def _code(text: str, cell: bool) -> str:
    return "`" + (text.replace("|", "\\|") if cell else text) + "`"


def escape_part(text: str) -> str:
    """`escape` for a piece of a line: outer spaces are kept."""
    inner = text.strip()
    lead = " " if text[:1].isspace() else ""
    trail = " " if inner and text[-1:].isspace() else ""
    return f"{lead}{escape(inner)}{trail}"


def _block(block: Block) -> str:
    if isinstance(block, Heading):
        return f"{'#' * block.level} {escape(block.text)}"
    if isinstance(block, Paragraph):
        # a line of underscores alone would be a rule
        return escape_around_code(block.text) if block.text != BLANK else "\\" + BLANK
    if isinstance(block, Bullets):
        return "\n".join(_item(block, n, item) for n, item in enumerate(block.items, 1))
    if isinstance(block, Grid):
        header = block.header or [" "] * len(block.widths)
        lines = [_row(header, raw=not block.header), _row(["---"] * len(header), raw=True)]
        return "\n".join([*lines, *map(_row, block.rows)])
    if isinstance(block, Chart):
        return f"```{CHART}\n{block.text}\n```"
    return _source(block)


def _item(block: Bullets, number: int, item: str) -> str:
    marker = f"{number}." if block.numbered else "- [ ]" if block.boxes else "-"
    return f"{marker} {escape_around_code(item)}"


def _row(cells: tuple[str, ...] | list[str], raw: bool = False) -> str:
    return "| " + " | ".join(c if raw else escape_around_code(c, cell=True) for c in cells) + " |"


def _source(source: Source) -> str:
    fence = "`" * max(3, 1 + max((len(m) for m in re.findall(r"`+", source.quote)), default=0))
    link = f" <{source.url}>" if source.url.startswith(("http://", "https://")) else ""
    return f"[{source.n}] {escape(source.place)}{link}\n\n{fence}text\n{source.quote}\n{fence}"
