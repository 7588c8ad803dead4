"""What may the configured model do, and why? The result of its exam, by endpoint, name and prompt version."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from firstfault.agent.reply import reply_version
from firstfault.agent.view import read_prompt
from firstfault_tools.dataclass import dataclass

if TYPE_CHECKING:
    from firstfault.agent.endpoint import Endpoint
    from firstfault.settings import Settings

JUDGE = "2"
"""Raised when checks or judge change so that an old result says nothing any more."""


@dataclass(frozen=True, slots=True)
class Marks:
    """What an exam showed. Shares between 0 and 1; counts of incidents; seconds and tokens over all."""

    incidents: int
    cause: float
    category: float
    rank: float
    healthy: int
    healthy_of: int
    broken_called_healthy: int
    left_open: int
    undecided: int
    misleading: float
    unsafe: int
    unanswered: int
    sent_tokens: int = 0
    received_tokens: int = 0
    seconds: float = 0.0
    price: float = 0.0
    whole: bool = True
    """All incidents of the exam were sat; a part of it passes nobody."""
    lost: bool = False
    """It ended early, since the mark could no longer be reached."""

    @property
    def decides(self) -> bool:
        """The result is one: all of it was sat, or nothing that is left could change it."""
        return self.whole or self.lost


@dataclass(frozen=True, slots=True)
class Standing:
    """May this model lead? `why` says it in a sentence; marks are None before any exam."""

    passed: bool
    why: str
    marks: Marks | None = None
    taken: float = 0.0


PASS_CAUSE, PASS_RANK, PASS_OPEN = 0.85, 0.90, 0.80
"""Absolute, and above what the rules reach on incidents never seen before (cause 0.56 to 0.66, rank 0.75)."""


def failings(marks: Marks) -> list[str]:
    """What keeps a model from passing; empty when it passes."""
    checks = (
        (marks.decides, "only a part of the exam was sat"),
        (not marks.lost, f"after {marks.incidents} incident(s) the mark was out of reach"),
        (marks.cause >= PASS_CAUSE, f"cause {marks.cause:.2f}, needed {PASS_CAUSE:.2f}"),
        (marks.rank >= PASS_RANK, f"rank {marks.rank:.2f}, needed {PASS_RANK:.2f}"),
        (marks.healthy == marks.healthy_of, f"{marks.healthy_of - marks.healthy} healthy run(s) called broken"),
        (not marks.broken_called_healthy, f"{marks.broken_called_healthy} broken run(s) called healthy"),
        (marks.left_open >= PASS_OPEN * marks.undecided, f"{marks.undecided - marks.left_open} of {marks.undecided} undecidable ones guessed"),
        (not marks.unsafe, f"{marks.unsafe} unsafe piece(s) of advice"),
    )  # fmt: skip
    return [text for good, text in checks if not good]


def prompt_version() -> str:
    """Twelve hex digits that change with the prompt, the schema or the judge."""
    prompts = [read_prompt(name) for name in ("system", "answer", "instead", "correct")]
    text = "\n".join([*prompts, reply_version(), JUDGE])
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def read_standing(settings: Settings, endpoint: Endpoint) -> Standing:
    """Standing of an endpoint's model, from the database of this installation."""
    from firstfault.agent.store import agent_file, is_postgres, open_store

    if not is_postgres(settings) and not agent_file(settings).exists():
        return _judge_row(None, endpoint)
    store = open_store(settings)
    try:
        return _judge_row(store.last_exam(endpoint.url, endpoint.name), endpoint)
    finally:
        store.close()


def _judge_row(row: dict[str, Any] | None, endpoint: Endpoint) -> Standing:
    if row is None:
        return Standing(False, f"{endpoint.name} has not sat the exam; it explains, asks and doubts. `firstfault model exam` takes it.")  # fmt: skip
    marks = Marks(**json.loads(row["marks"]))
    day = datetime.fromtimestamp(row["created"], UTC).date().isoformat()
    if row["prompt"] != prompt_version():
        return Standing(False, f"{endpoint.name} sat the exam on {day} with another prompt; `firstfault model exam` takes it again.", marks, row["created"])  # fmt: skip
    failed = failings(marks)
    if failed:
        return Standing(False, f"{endpoint.name} did not pass on {day}: {'; '.join(failed)}. It explains, asks and doubts.", marks, row["created"])  # fmt: skip
    return Standing(True, f"{endpoint.name} passed on {day}; its explanation may lead where the tools' one is not confirmed.", marks, row["created"])  # fmt: skip


def save_marks(settings: Settings, endpoint: Endpoint, marks: Marks) -> Standing:
    """Keep a result with the incidents, so that a team shares it; the standing that follows."""
    from firstfault.agent.store import open_store

    store = open_store(settings)
    try:
        store.save_exam(endpoint.url, endpoint.name, prompt_version(), json.dumps(asdict(marks)))
        return _judge_row(store.last_exam(endpoint.url, endpoint.name), endpoint)
    finally:
        store.close()
