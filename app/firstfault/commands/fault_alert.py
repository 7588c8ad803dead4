"""Which line of growing logs is the first fault, and what is the verdict on what was written so far?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from pathlib import Path
from typing import Any

from firstfault.investigation.diagnosis import Diagnosis
from firstfault.ui.card import make_card
from firstfault.workspace import Workspace
from firstfault_tools.dataclass import dataclass
from firstfault_tools.findings import Level, Verdict
from firstfault_tools.log.secrets import redact

TELLING = frozenset({Level.CAUSE, Level.FAILURE, Level.SYMPTOM})
MOST_TRIES = 16
"""Diagnoses of one log: lines that look like a fault and are none must not cost one each."""
KEPT_LINES = 20_000
"""Last lines of a stream that are kept for its diagnosis."""


@dataclass
class FaultWatch:
    """Finds the first fault while lines come. paths: the logs; none for a stream, whose last lines are kept."""

    paths: tuple[Path, ...]
    workspace: Workspace = field(default_factory=Workspace)
    found: Diagnosis | None = None
    tries: int = 0
    kept: list[str] = field(default_factory=list)

    def feed(self, lines: Sequence[str]) -> Diagnosis | None:
        """The verdict at the first lines that tell a fault; None before and after."""
        if self.found is not None or self.tries >= MOST_TRIES:
            return None
        if not self.paths:
            self.kept = [*self.kept, *lines][-KEPT_LINES:]
        if not self._tells("\n".join(lines)):
            return None
        self.tries += 1
        if self.paths:
            diagnosis = self.workspace.diagnose_paths(list(self.paths))
        else:
            text = "\n".join(self.kept).encode(errors="replace")
            diagnosis = self.workspace.diagnose_text("stdin", text)
        if diagnosis.verdict is not Verdict.FAULT:
            return None
        self.found = diagnosis
        return diagnosis

    def _tells(self, text: str) -> bool:
        """A signature of more than a notice matches some line; whether it is the fault, the diagnosis says."""
        known = self.workspace.knowledge.signatures
        seen = known.match(text.encode(errors="replace"))
        return seen is not None and any(
            known.signatures[index].level in TELLING for index in seen.signatures
        )

    def describe(self, diagnosis: Diagnosis) -> dict[str, Any]:
        """The alert, schema firstfault.alert/1."""
        return describe_verdict(diagnosis, self.workspace)


def describe_verdict(diagnosis: Diagnosis, workspace: Workspace) -> dict[str, Any]:
    """A verdict as a JSON-able mapping, schema firstfault.alert/1: headline, place and what to do next."""
    card = make_card(diagnosis, workspace.knowledge.pages)
    first = diagnosis.first_line
    action = card.action
    return {
        "schema": "firstfault.alert/1",
        "kind": "fault",
        "title": redact(card.headline),
        "level": "cause",
        "category": diagnosis.category.value if diagnosis.category else None,
        "confidence": diagnosis.confidence.value,
        "rank": diagnosis.first_failing_rank,
        "host": diagnosis.host,
        "facts": dict(card.facts),
        "next": {
            "what": action.what,
            "where": action.where.said if action.where else "",
            "command": action.command,
            "reading": [f"{shown}: {follows}" for shown, follows in action.reading],
        } if action else None,
        "evidence": [{"file": first.file, "line": first.line, "text": redact(first.text)}] if first else [],
    }  # fmt: skip
