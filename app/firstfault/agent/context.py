"""What does one turn with the model work on? The question, the evidence shown, the names hidden."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from firstfault.agent.endpoint import Endpoint
from firstfault.agent.evidence import EvidenceBook, open_book, to_rows
from firstfault.agent.pseudonymise import Veil
from firstfault.agent.untrusted import make_plain
from firstfault.grounding.items import Ground, Item, ItemKind
from firstfault_tools.findings import Confidence, Verdict

if TYPE_CHECKING:
    from firstfault.agent.probe import OnceOnly
    from firstfault.conversation.answerer import Question
    from firstfault.incidents.records import Related
    from firstfault.knowledge_base.search import Found

Search = Callable[[str, int], "Sequence[Found]"]
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

    @property
    def tool_chars(self) -> int:
        """Characters one tool result may take: an eighth of the context."""
        return min(12_000, self.endpoint.limits.context_tokens * CHARS_PER_TOKEN // 8)

    def alias(self, file: str) -> str:
        """Short name of a file, F1, F2, ..., as the model sees it."""
        names = list(self.question.artefacts)
        return f"F{names.index(file) + 1}" if file in names else make_plain(file, 120)

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
        if item.kind is ItemKind.LOG:
            place = f" {self.alias(item.file)}:{item.line}"
        elif item.kind is ItemKind.PAGE:
            place = f" page {item.page}, {item.heading or 'Summary'}"
        else:
            place = f" {item.file}"
        return f"{item.id}{place} | {self.veil.hide(make_plain(item.text))}"

    def result(self, text: str, items: Sequence[Item]) -> tuple[str, dict[str, Any]]:
        """A tool's answer and what is recorded beside it."""
        limit = self.tool_chars
        if len(text) > limit:
            text = text[:limit].rsplit("\n", 1)[0] + "\n(cut: ask for less at a time)"
        return f"<data>\n{text}\n</data>", {
            "items": to_rows(items),
            "names": dict(self.veil.names),
        }

    def ground(self) -> Ground:
        """What the model's claims are held against."""
        diagnosis = self.question.diagnosis
        if diagnosis is None:
            return Ground(
                dict(self.book.items), Verdict.UNKNOWN, Confidence.UNKNOWN,
                variables=self.question.knowledge.variables, private=self.private,
            )  # fmt: skip
        main = diagnosis.hypotheses[0].for_ if diagnosis.hypotheses else ()
        return Ground(
            items=dict(self.book.items),
            verdict=diagnosis.verdict,
            confidence=diagnosis.confidence,
            verdict_text=diagnosis.root_cause,
            verdict_ids=frozenset(f"E{n}" for n in main),
            verdict_rank=diagnosis.first_failing_rank,
            variables=self.question.knowledge.variables,
            private=self.private,
        )


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
        book=open_book(diagnosis),
        veil=Veil(endpoint.hidden, hosts),
        private=private,
        thread=thread,
    )
