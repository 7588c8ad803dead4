"""Which pieces of evidence has the model been shown, and under which ids?

An id names its place: `F1:34` is line 34 of the first file, `page#section` a section of a page, `T` and
five hex digits a tool's result, `Q` what the person said, `R` what rules answered. So the same id means the same thing whatever
order tools answer in, in a later turn, and in a process that takes the turn over.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, field, replace
from typing import Any

from firstfault.grounding.items import Item, ItemKind
from firstfault.investigation.diagnosis import Citation, CitationKind, Diagnosis
from firstfault_tools.dataclass import dataclass
from firstfault_tools.log.prefix import read_prefix

SAID, RULES = "Q", "R"


@dataclass
class EvidenceBook:
    """Items by id; safe to use from several threads. `shown`: ids that stand in a message to the model."""

    files: tuple[str, ...] = ()
    items: dict[str, Item] = field(default_factory=dict)
    shown: set[str] = field(default_factory=set)
    by_citation: dict[int, str] = field(default_factory=dict)
    """Number of a citation of the diagnosis -> id."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def alias(self, file: str) -> str:
        """F1, F2, ... in the order of the incident's files; other names stay."""
        return f"F{self.files.index(file) + 1}" if file in self.files else file

    def add_line(self, file: str, line: int, text: str) -> Item:
        """A log line."""
        speaker = read_prefix(text)[0]
        return self._add(
            Item(
                f"{self.alias(file)}:{line}", ItemKind.LOG, text, file, line,
                rank=speaker.rank, host=speaker.host,
            )
        )  # fmt: skip

    def add_passage(self, page: str, heading: str, text: str, url: str | None) -> Item:
        """A passage of the knowledge base."""
        section = "-".join((heading or "summary").lower().split())
        item = Item(
            f"{page}#{section}", ItemKind.PAGE, text, page=page, heading=heading, url=url or ""
        )
        known = self.items.get(item.id)
        if known is not None and known.text != text:
            item = replace(item, id=f"{item.id}.{_digest(text)}")
        return self._add(item)

    def add_result(self, tool: str, text: str, echo: str = "", line: int = 0) -> Item:
        """What a tool computed or counted; echo: the part that the model chose."""
        identity = f"T{_digest(f'{tool} {line} {text} {echo}')}"
        return self._add(Item(identity, ItemKind.TOOL, text, file=tool, line=line, echo=echo))

    def add_said(self, text: str) -> Item:
        """What the person said: evidence of what they saw and want, none about machines."""
        return self._add(Item(SAID, ItemKind.USER, text))

    def add_rules(self, text: str) -> Item:
        """What rules answered: its numbers and names are real, and it proves nothing by itself."""
        return self._add(Item(RULES, ItemKind.USER, text))

    def show(self, items: Iterable[Item]) -> None:
        """Note that these stand in a message to the model."""
        with self._lock:
            self.shown.update(i.id for i in items)

    def find(self, identity: str) -> Item | None:
        """The item that was shown under an id; None for what was not."""
        return self.items.get(identity) if identity in self.shown else None

    def adopt(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Take over items recorded with a tool's message."""
        with self._lock:
            for row in rows:
                item = Item(**{**row, "kind": ItemKind(row["kind"])})
                self.items[item.id] = item
                self.shown.add(item.id)

    def _add(self, item: Item) -> Item:
        with self._lock:
            known = self.items.get(item.id)
            # a citation may quote a part of its line; whoever reads the log sees all of it
            if known is None or (item.kind is ItemKind.LOG and len(item.text) > len(known.text)):
                self.items[item.id] = item
            return self.items[item.id]


def open_book(diagnosis: Diagnosis | None, files: Sequence[str] = ()) -> EvidenceBook:
    """Book that begins with the diagnosis' citations."""
    book = EvidenceBook(tuple(files))
    for citation in diagnosis.citations if diagnosis is not None else ():
        if citation.kind is CitationKind.LOG and citation.line:
            item = book.add_line(citation.file or "", citation.line, citation.quote)
        elif citation.kind is CitationKind.PAGE:
            item = book.add_passage(
                citation.page or "", citation.heading or "", citation.quote, citation.url
            )
        else:
            item = book.add_result(citation.file or "", citation.quote, line=citation.line or 0)
        book.by_citation[citation.n] = item.id
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


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:5]
