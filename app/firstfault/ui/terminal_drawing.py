"""How are the rows of a diagnosis drawn on a terminal? With colours where it has them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.panel import Panel
from rich.rule import Rule
from rich.syntax import Syntax
from rich.text import Text

from firstfault.ui.terminal_rows import Row, RowKind


def draw(rows: Sequence[Row], border: str, console: Console | None = None) -> None:
    """Print the rows; border: colour of the verdict's card."""
    console = console or Console(highlight=False, soft_wrap=False)
    for kind, group in groupby(rows, key=lambda row: row.kind):
        if kind is RowKind.CARD:
            console.print(Panel(Group(*map(_say, group)), border_style=border))
            continue
        for row in group:
            if kind is RowKind.COMMAND:
                # a wrapped or cropped command cannot be copied
                console.print(_highlight(row), soft_wrap=True)
            else:
                console.print(*_shape(row))


def _shape(row: Row) -> Iterator[RenderableType]:
    if row.kind is RowKind.HEADING:
        yield Rule(row.text, align="left", style="dim")
    else:
        yield Padding(_say(row), (0, 0, 0, row.indent)) if row.indent else _say(row)


def _say(row: Row) -> Text:
    # the style of the whole text lets a wrapped line keep it
    if len(row.parts) == 1:
        return Text(row.parts[0][0], style=row.parts[0][1])
    return Text.assemble(*row.parts)


def _highlight(row: Row) -> Text:
    text = Syntax("", "bash", background_color="default").highlight(row.text)
    text.rstrip()
    lines = (Text(" " * row.indent).append_text(line) for line in text.split("\n"))
    return Text("\n").join(lines)
