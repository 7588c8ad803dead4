"""What may a claim refer to? Items of evidence with ids, and what is written down."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from enum import StrEnum
from functools import cached_property

from firstfault.grounding import words
from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression

LEAST_CELLS = 3
"""Words of a line, from which it may be the heading of a table."""

_BETWEEN = expression(r"\s*[,;|]\s*|\t|\s{2,}")
_NAME = expression(r"#?\s?[A-Za-z][\w /.%()\[\]-]{0,40}")
_NOUNS = {
    "rank": "rank", "global_rank": "rank", "ep_rank": "rank", "dp_rank": "rank", "gpu": "gpu", "gpu_index": "gpu", "index": "gpu",
    "step": "step", "iteration": "iteration", "iter": "iteration", "epoch": "epoch", "xid": "xid", "node": "node",
}  # fmt: skip
"""Columns that count what a sentence names with a number."""


class ItemKind(StrEnum):
    """Where an item comes from. USER: a person said it; what they saw, and no proof of a cause."""

    LOG = "log"
    PAGE = "page"
    TOOL = "tool"
    USER = "user"


@dataclass(frozen=True, slots=True)
class Item:
    """One quotable piece of evidence. `line` is 1-based, 0 for a whole artefact or a tool's result."""

    id: str
    kind: ItemKind
    text: str
    file: str = ""
    line: int = 0
    page: str = ""
    heading: str = ""
    url: str = ""
    rank: int | None = None
    host: str | None = None
    echo: str = ""
    """What the asker chose himself (a search pattern): it proves at most that nothing like it is there."""


@dataclass(frozen=True)
class Ground:
    """Everything a claim is held against: what was shown, and what is written down.

    items: what the speaker was shown, by id; the words of a verdict are not among them, since a verdict
    proves nothing for itself. names: files of the incident. ranks, world_size: which ranks there are.
    lore: text of all knowledge pages, in lower case; variables: settings that a release reads.
    healthy: a sentence may say that the run is. general: there is no incident, so what the pages say counts
    as shown. computed: numbers of the tools' own reading. private: texts that no claim may repeat.
    """

    items: Mapping[str, Item]
    names: tuple[str, ...] = ()
    ranks: frozenset[int] = frozenset()
    world_size: int = 0
    lore: str = field(default="", repr=False)
    variables: frozenset[str] = frozenset()
    healthy: bool = False
    general: bool = False
    computed: frozenset[float] = frozenset()
    private: tuple[str, ...] = field(default=(), repr=False)

    @cached_property
    def cells(self) -> frozenset[tuple[str, int]]:
        """What the tables among what was shown count by: (rank, 21), (step, 400)."""
        return read_cells(self.items.values())

    @cached_property
    def numbers(self) -> frozenset[float]:
        """Every number of what was shown, those that names end with too."""
        return frozenset(words.numbers(self.everything) | words.endings(self.everything))

    @cached_property
    def everything(self) -> str:
        """All that was shown, as one text."""
        return "\n".join([*(spoken(i) for i in self.items.values()), *self.names])


def read_cells(items: Iterable[Item]) -> frozenset[tuple[str, int]]:
    """(noun, number) of the cells of tables whose heading was shown: `rank` 21 of a row under `step,rank,loss`."""
    by_file: dict[str, list[Item]] = {}
    for item in items:
        if item.kind is ItemKind.LOG and item.line:
            by_file.setdefault(item.file, []).append(item)
    found: set[tuple[str, int]] = set()
    for rows in by_file.values():
        names: list[str] = []
        for item in sorted(rows, key=lambda i: i.line or 0):
            cells = [c.strip() for c in _BETWEEN.split(item.text.strip())]
            if len(cells) >= LEAST_CELLS and all(_NAME.fullmatch(c) for c in cells):
                names = [c.lower() for c in cells]
            elif len(cells) == len(names):
                found |= {
                    (_NOUNS[n], int(c))
                    for n, c in zip(names, cells, strict=True)
                    if n in _NOUNS and c.isascii() and c.isdigit()
                }
    return frozenset(found)


def spoken(item: Item) -> str:
    """What an item says, its place included."""
    place = f"rank {item.rank} " if item.rank is not None else ""
    host = f"host {item.host} " if item.host else ""
    line = f"{item.file} line {item.line} " if item.line else f"{item.file} "
    return f"{place}{host}{line}{item.heading} {item.text}"
