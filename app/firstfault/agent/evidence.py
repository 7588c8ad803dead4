"""Which pieces of evidence has the model been shown, and under which ids?

Ids are E1, E2, ...; those of the diagnosis' citations are their own numbers. What a tool shows is
added with the tool's message, so that a process that takes a turn over knows the same ids.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from firstfault.grounding.items import Item, ItemKind
from firstfault.investigation.diagnosis import Citation, CitationKind, Diagnosis
from firstfault_tools.log.speaker import read_speaker

MAX_ITEMS = 3_000


@dataclass
class EvidenceBook:
    """Items by id; safe to use from several threads."""

    items: dict[str, Item] = field(default_factory=dict)
    _places: dict[tuple[str, str, int, str], str] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add_line(self, file: str, line: int, text: str) -> Item:
        """A log line."""
        speaker = read_speaker(text)[0]
        return self._add(
            Item("", ItemKind.LOG, text, file, line, rank=speaker.rank, host=speaker.host)
        )

    def add_passage(self, page: str, heading: str, text: str, url: str | None) -> Item:
        """A passage of the knowledge base."""
        return self._add(Item("", ItemKind.PAGE, text, page=page, heading=heading, url=url or ""))

    def add_result(self, tool: str, text: str, echo: str = "") -> Item:
        """What a tool computed or counted; echo: the part that the model chose."""
        return self._add(Item("", ItemKind.TOOL, text, file=tool, echo=echo))

    def add_said(self, text: str) -> Item:
        """What the person said. It can be referred to and proves nothing about machines."""
        return self._add(Item("", ItemKind.USER, text))

    def adopt(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Take over items recorded with a tool's message."""
        with self._lock:
            for row in rows:
                item = Item(**{**row, "kind": ItemKind(row["kind"])})
                self.items[item.id] = item
                self._places.setdefault(_place(item), item.id)

    def _add(self, item: Item) -> Item:
        with self._lock:
            place = _place(item)
            known = self._places.get(place)
            if known is not None:
                return self.items[known]
            number = len(self.items) + 1
            while f"E{number}" in self.items:
                number += 1
            numbered = Item(f"E{number}", *list(_values(item))[1:])
            self.items[numbered.id] = numbered
            self._places[place] = numbered.id
            return numbered


def open_book(diagnosis: Diagnosis | None) -> EvidenceBook:
    """Book that begins with the diagnosis' citations: [n] is En."""
    book = EvidenceBook()
    if diagnosis is None:
        return book
    for citation in diagnosis.citations:
        speaker = read_speaker(citation.quote)[0] if citation.kind is CitationKind.LOG else None
        item = Item(
            f"E{citation.n}",
            ItemKind(citation.kind.value),
            citation.quote,
            citation.file or "",
            citation.line or 0,
            citation.page or "",
            citation.heading or "",
            citation.url or "",
            speaker.rank if speaker is not None else None,
            speaker.host if speaker is not None else None,
        )
        book.items[item.id] = item
        book._places.setdefault(_place(item), item.id)
    return book


def to_citation(item: Item, number: int) -> Citation:
    """The item as a numbered citation of an answer."""
    kind = {ItemKind.LOG: CitationKind.LOG, ItemKind.PAGE: CitationKind.PAGE}.get(
        item.kind, CitationKind.TOOL
    )
    if kind is CitationKind.PAGE:
        return Citation(
            number, kind, item.text, page=item.page, heading=item.heading, url=item.url or None
        )
    return Citation(number, kind, item.text, file=item.file, line=item.line)


def to_rows(items: Iterable[Item]) -> list[dict[str, Any]]:
    """Items as plain data, for a tool's message."""
    return [{**asdict(i), "kind": i.kind.value} for i in items]


def _place(item: Item) -> tuple[str, str, int, str]:
    if item.kind is ItemKind.LOG and item.line:
        return (item.kind.value, item.file, item.line, "")
    return (
        item.kind.value,
        item.file or item.page,
        item.line,
        f"{item.heading}\x1f{item.text}\x1f{item.echo}",
    )


def _values(item: Item) -> Iterable[Any]:
    return (
        item.id, item.kind, item.text, item.file, item.line, item.page, item.heading, item.url,
        item.rank, item.host, item.echo,
    )  # fmt: skip
