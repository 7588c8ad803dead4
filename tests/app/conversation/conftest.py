"""A question about a log that a test writes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from firstfault.conversation.answerer import Question
from firstfault.conversation.rules import RuleAnswerer
from firstfault.workspace import Workspace

AskOfLog = Callable[[str, str], str]


@pytest.fixture(scope="session")
def known_workspace() -> Workspace:
    """One for all questions: the knowledge is read once."""
    return Workspace()


@pytest.fixture
def ask_of_log(tmp_path: Path, known_workspace: Workspace) -> AskOfLog:
    """The answer by rule to a question about a log of this text."""

    def ask(log: str, text: str) -> str:
        path = tmp_path / "run.log"
        path.write_text(log, encoding="utf-8")
        diagnosis = known_workspace.diagnose_paths([path])
        question = Question(
            "q", 2, text, diagnosis, {path.name: path}, (), known_workspace.knowledge
        )
        return next(iter(RuleAnswerer().answer(question))).text

    return ask
