"""What does a warm service answer to a set of questions? Answers beside their questions, for a reader to judge.

A set is a folder: questions.jsonl with a row {id, question, log, previous} each (log: a file of the folder or null;
previous: messages of the same person before it), and the logs.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from firstfault.conversation.answerer import Exchange, Question
from firstfault.conversation.pages import PassageSearch
from firstfault.conversation.rules import RuleAnswerer
from firstfault.errors import CannotAnalyse
from firstfault.investigation.diagnosis import Diagnosis
from firstfault.knowledge_base.warm import WarmSearch
from firstfault.workspace import Workspace

QUESTIONS = "questions.jsonl"


@dataclass(frozen=True, slots=True)
class Answered:
    """One question with its answer. good: what a useful answer holds, where the set says so."""

    id: str
    kind: str
    question: str
    log: str | None
    previous: tuple[str, ...]
    answer: str
    answered_as: str
    citations: tuple[str, ...]
    good: str
    seconds: float


def answer_set(folder: Path) -> list[Answered]:
    """Every question of a set, as a warm service answers it without a model."""
    search = WarmSearch(at_once=True)
    search.load()
    workspace = Workspace()

    @cache
    def read_log(name: str) -> tuple[Diagnosis, dict[str, Path]]:
        path = folder / name
        if not path.is_file():
            raise CannotAnalyse(f"{folder / QUESTIONS}: the log {name} is not in the folder")
        return workspace.diagnose_paths([path]), {name: path}

    return [_answer(row, read_log(row["log"]) if row.get("log") else (None, {}), search, workspace) for row in _read_rows(folder)]  # fmt: skip


def _read_rows(folder: Path) -> list[dict[str, Any]]:
    file = folder / QUESTIONS
    rows = []
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip():
            continue
        row = json.loads(line)
        if "question" not in row:
            raise CannotAnalyse(f"{file}:{number}: no question; wanted id, question, log, previous")
        rows.append({"id": str(number), **row})
    return rows


def _answer(
    row: Mapping[str, Any],
    incident: tuple[Diagnosis | None, dict[str, Path]],
    search: PassageSearch,
    workspace: Workspace,
) -> Answered:
    answerer = RuleAnswerer(search)
    earlier: list[Exchange] = []
    diagnosis, files = incident
    started, part = time.perf_counter(), None
    for turn, text in enumerate((*row.get("previous", ()), row["question"]), 2):
        started = time.perf_counter()
        asked = Question("q", turn, text, diagnosis, files, tuple(earlier), workspace.knowledge)
        part = next(answerer.answer(asked))
        earlier.append(Exchange(text, part.text))
    assert part is not None, "a row has a question"
    cited = (f"[{c.n}] {c.file or c.page or c.url or ''}{f':{c.line}' if c.line else ''} {c.quote[:200]}" for c in part.citations)  # fmt: skip
    return Answered(
        row["id"], row.get("kind", ""), row["question"], row.get("log"), tuple(row.get("previous", ())), part.text,
        part.kind, tuple(cited), row.get("good", ""), round(time.perf_counter() - started, 3),
    )  # fmt: skip


def write_answers(answers: list[Answered], file: Path) -> None:
    """The answers as one JSON list."""
    rows = [asdict(a) for a in answers]
    file.write_text(json.dumps(rows, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
