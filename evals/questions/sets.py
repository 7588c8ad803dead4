"""What does a warm service answer to a set of questions? Answers beside their questions, for a reader to judge.

A set is a folder: questions.jsonl with a row {id, question, log, previous} each (log: a file of the folder or null;
previous: messages of the same person before it), and the logs.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from evals.relay.arms import LIMITS
from evals.relay.desk import Desk, serve

from firstfault.agent.answerer import AgentAnswerer
from firstfault.agent.endpoint import Endpoint
from firstfault.agent.model import EndpointModel
from firstfault.agent.store import open_store
from firstfault.conversation.answerer import Exchange, Question
from firstfault.conversation.pages import PassageSearch
from firstfault.conversation.rules import RuleAnswerer
from firstfault.errors import CannotAnalyse
from firstfault.incidents.events import AnswerPart
from firstfault.investigation.diagnosis import Diagnosis
from firstfault.knowledge_base.warm import WarmSearch
from firstfault.settings import Settings
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
    incident = _reader_of(folder, workspace)
    return [_answer(row, incident(row.get("log")), search, workspace) for row in _read_rows(folder)]


def _reader_of(
    folder: Path, workspace: Workspace
) -> Callable[[str | None], tuple[Diagnosis | None, dict[str, Path]]]:
    """The incident of a log of the set, read once for all of its questions."""

    @cache
    def read_incident(name: str | None) -> tuple[Diagnosis | None, dict[str, Path]]:
        if not name:
            return None, {}
        path = folder / name
        if not path.is_file():
            raise CannotAnalyse(f"{folder / QUESTIONS}: the log {name} is not in the folder")
        return workspace.diagnose_paths([path]), {name: path}

    return read_incident


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
    return _row(row, [part], started)


def _row(row: Mapping[str, Any], parts: Sequence[AnswerPart], started: float) -> Answered:
    cited = (
        f"[{c.n}] {c.file or c.page or c.url or ''}{f':{c.line}' if c.line else ''} {c.quote[:200]}"
        for part in parts
        for c in part.citations
    )
    return Answered(
        row["id"], row.get("kind", ""), row["question"], row.get("log"), tuple(row.get("previous", ())),
        "\n\n".join(p.text for p in parts), parts[0].kind, tuple(cited), row.get("good", ""),
        round(time.perf_counter() - started, 3),
    )  # fmt: skip


def answer_by_reader(folder: Path, desk: Desk) -> list[Answered]:
    """The same with a model that has passed, played by a reader; only the questions whose replies are there."""
    search = WarmSearch(at_once=True)
    search.load()
    workspace = Workspace()
    incident = _reader_of(folder, workspace)
    answered = []
    # a turn that stands in the record would be gone on with
    with serve(desk) as address, tempfile.TemporaryDirectory() as spool:
        settings = Settings(data=Path(spool))
        for number, row in enumerate(_read_rows(folder), 1):
            diagnosis, files = incident(row.get("log"))
            endpoint = Endpoint("reader", f"{address}/{number:02d}/v1", limits=LIMITS, ask_first=False)  # fmt: skip
            answerer = _Passed(settings, open_store(settings), EndpointModel(endpoint), search=search, rules=RuleAnswerer(search))  # fmt: skip
            earlier = tuple(Exchange(text, "") for text in row.get("previous", ()))
            asked = Question(f"q{number}", 2, row["question"], diagnosis, files, earlier, workspace.knowledge)  # fmt: skip
            waiting, started = len(desk.open), time.perf_counter()
            parts = [p for p in answerer.answer(asked) if isinstance(p, AnswerPart)]
            if len(desk.open) == waiting:
                answered.append(_row(row, parts, started))
    return answered


class _Passed(AgentAnswerer):
    """With a model that has passed its exam."""

    earned = True


def write_answers(answers: list[Answered], file: Path) -> None:
    """The answers as one JSON list."""
    rows = [asdict(a) for a in answers]
    file.write_text(json.dumps(rows, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
