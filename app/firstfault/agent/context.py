"""What does one turn with the model work on? The question, the evidence shown, the names hidden."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from firstfault.agent.endpoint import Endpoint
from firstfault.agent.evidence import EvidenceBook, open_book, to_rows
from firstfault.agent.probe import OnceOnly
from firstfault.agent.pseudonymise import Veil
from firstfault.agent.untrusted import make_plain
from firstfault.grounding.items import Ground, Item, ItemKind
from firstfault.grounding.words import numbers
from firstfault_tools.dataclass import dataclass

if TYPE_CHECKING:
    from firstfault.conversation.answerer import Exchange, Question
    from firstfault.incidents.records import Related
    from firstfault.investigation.diagnosis import Diagnosis
    from firstfault.investigation.examination import Examination
    from firstfault.knowledge_base.search import Found

Search = Callable[[str, int], "Sequence[Found]"]
ToolAnswer = tuple[str, dict[str, Any]]
"""What a tool tells the model, and what is recorded beside it."""
CHARS_PER_TOKEN = 3


@dataclass
class TurnContext:
    """Everything that tools, view and grounding of one turn share."""

    question: Question
    endpoint: Endpoint
    search: Search
    related: tuple[Related, ...] = ()
    probe: OnceOnly | None = None
    book: EvidenceBook = field(default_factory=EvidenceBook)
    veil: Veil = field(default_factory=lambda: Veil(frozenset()))
    private: tuple[str, ...] = ()
    thread: str = ""

    @cached_property
    def examination(self) -> Examination:
        """The incident's own files as the tools read them, once for all that code asks of them."""
        from firstfault.investigation.examination import examine
        from firstfault_tools.registry import Artefact

        files = [Artefact(name, path) for name, path in self.question.artefacts.items()]
        return examine(files, self.question.knowledge.signatures)

    @property
    def tool_chars(self) -> int:
        """Characters one tool result may take: an eighth of the context."""
        return min(6_000, self.endpoint.limits.context_tokens * CHARS_PER_TOKEN // 8)

    def alias(self, file: str) -> str:
        """Short name of a file, F1, F2, ..., as the model sees it."""
        return make_plain(self.book.alias(file), 120)

    def file_of(self, alias: str) -> tuple[str, Path] | None:
        """Display name and path behind an alias or a name; None for anything else."""
        names = list(self.question.artefacts)
        wanted = self.veil.restore(alias.strip())
        if wanted[:1] in "Ff" and wanted[1:].isdecimal() and 0 < int(wanted[1:]) <= len(names):
            wanted = names[int(wanted[1:]) - 1]
        path = self.question.artefacts.get(wanted)
        return (wanted, path) if path is not None else None

    def show(self, item: Item) -> str:
        """One item as a line of the prompt: id, place, text; hidden names, no orders."""
        place = f" {make_plain(item.file, 120)}" if item.kind is ItemKind.TOOL else ""
        return f"{item.id}{place} | {self.veil.hide(make_plain(item.text))}"

    def result(self, text: str, items: Sequence[Item]) -> ToolAnswer:
        """A tool's answer and what is recorded beside it."""
        limit = self.tool_chars
        if len(text) > limit:
            text = text[:limit].rsplit("\n", 1)[0] + "\n(cut: ask for less at a time)"
        # what was cut off was not seen, so it cannot be cited
        items = [i for i in items if f"{i.id} " in text]
        self.book.show(items)
        return f"<data>\n{text}\n</data>", {
            "items": to_rows(items),
            "names": dict(self.veil.names),
        }

    def ground(self) -> Ground:
        """What the model's claims are held against: what it was shown, and what is written down."""
        shown = {i: item for i in sorted(self.book.shown) if (item := self.book.items.get(i))}
        diagnosis = self.question.diagnosis
        receipt = diagnosis.input if diagnosis is not None else None
        # where a fault is was read off the logs by the placement; why it is there only the lines can prove
        host = (diagnosis.host,) if diagnosis is not None and diagnosis.host else ()
        return Ground(
            items=shown,
            names=(*self.question.artefacts, *host),
            ranks=frozenset(receipt.ranks_seen) if receipt is not None else frozenset(),
            world_size=(receipt.world_size or 0) if receipt is not None else 0,
            computed=_numbers_of(diagnosis) | _numbers_asked(self.question.earlier),
            lore=self.question.knowledge.lore,
            general=diagnosis is None,
            variables=self.question.knowledge.variables,
            private=self.private,
        )


def _numbers_of(diagnosis: Diagnosis | None) -> frozenset[float]:
    """What the tools computed and say in their reading: a mean over rows stands in no line."""
    told = diagnosis.hypotheses if diagnosis is not None else ()
    return frozenset(n for h in told for n in numbers(h.root_cause))


def _numbers_asked(earlier: Sequence[Exchange]) -> frozenset[float]:
    """What the person gave in the messages before this one, of which the model sees the last."""
    return frozenset(n for e in earlier[-3:] for n in numbers(e.question))


def open_context(
    question: Question,
    endpoint: Endpoint,
    search: Search,
    related: tuple[Related, ...] = (),
    probe: OnceOnly | None = None,
    private: tuple[str, ...] = (),
    thread: str = "",
) -> TurnContext:
    """Context of a new turn."""
    diagnosis = question.diagnosis
    hosts = [diagnosis.host] if diagnosis is not None and diagnosis.host else []
    return TurnContext(
        question=question,
        endpoint=endpoint,
        search=search,
        related=related,
        probe=probe,
        book=open_book(diagnosis, tuple(question.artefacts)),
        veil=Veil(endpoint.hidden, hosts),
        private=private,
        thread=thread,
    )
