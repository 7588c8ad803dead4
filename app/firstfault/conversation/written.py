"""How does an answer leave the house? As the object `firstfault.answer/1`, or as text for a terminal."""

from __future__ import annotations

from typing import Any

from firstfault.conversation.what_if import link_what_if
from firstfault.incidents.events import AnswerPart
from firstfault.incidents.plain import to_plain

SCHEMA = "firstfault.answer/1"


def answer_to_json(part: AnswerPart, incident: str | None) -> dict[str, Any]:
    """The contract's object."""
    walk = part.walk
    return {
        "schema": SCHEMA,
        "answer": part.text,
        "kind": part.kind,
        "citations": [
            {k: v for k, v in to_plain(c).items() if v is not None} for c in part.citations
        ],
        "tool": to_plain(part.tool) if part.tool is not None else None,
        "suggestions": list(part.suggestions),
        "incident": incident,
        "phases": to_plain(walk.phases) if walk is not None else [],
        "hypotheses": to_plain(walk.board) if walk is not None else [],
    }


def write_answer(part: AnswerPart) -> str:
    """The answer for a terminal: text, sources, what to ask next."""
    rows = [part.text]
    if part.citations:
        rows.append("")
        rows += [
            f"[{c.n}] {c.file}:{c.line} {c.quote.strip()[:120]}" if c.file else f"[{c.n}] page {c.page}, {c.heading}"
            for c in part.citations
        ]  # fmt: skip
    if link := link_what_if(part.tool):
        rows += ["", f"To try other settings, in the page of `firstfault chat`: /{link}"]
    if part.suggestions:
        rows += ["", "Ask next: " + " | ".join(part.suggestions)]
    return "\n".join(rows)
