"""Items of the seeds, each on a small artefact of the kind the seed speaks of: what is said about it?"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from tests.seeds.run_logs import write_log

from firstfault.conversation.answerer import Question
from firstfault.conversation.rules import RuleAnswerer
from firstfault.incidents.events import AnswerPart
from firstfault.investigation.diagnosis import Diagnosis
from firstfault.workspace import Workspace
from firstfault_tools.knowledge.pack import read_yaml

FOLDER = Path(__file__).parent / "items"
ROWS = [
    pytest.param(row, id=row["id"])
    for file in sorted(FOLDER.glob("*.yaml"))
    for row in read_yaml(file.read_text(encoding="utf-8"))
]


@pytest.fixture(scope="module")
def workspace() -> Workspace:
    return Workspace()


def all_words(found: Diagnosis) -> str:
    """What a person reads: cause, place, reasons, fixes and what to collect next."""
    fixes = [f"{fix.text} {fix.command or ''}" for fix in found.fixes]
    wanted = [f"{a.what} {a.why} {a.command or ''}" for a in found.next_artefacts]
    rivals = [h.root_cause for h in found.hypotheses]
    return "\n".join([found.root_cause, found.explanation, *fixes, *wanted, *rivals])


def answer(question: str, found: Diagnosis | None, paths: list[Path], workspace: Workspace) -> str:
    asked = Question("", 1, question, found, {p.name: p for p in paths}, (), workspace.knowledge)
    parts = [p for p in RuleAnswerer().answer(asked) if isinstance(p, AnswerPart)]
    return parts[-1].text


@pytest.mark.parametrize("row", ROWS)
def test_item(row: dict[str, Any], workspace: Workspace, tmp_path: Path) -> None:
    paths = []
    for name, content in row.get("logs", {}).items():
        text = content if isinstance(content, str) else write_log(content)
        (tmp_path / name).write_text(text, encoding="utf-8")
        paths.append(tmp_path / name)
    found = None
    for question in row.get("questions", [""]) if paths else []:
        found = workspace.diagnose_paths(paths, question)
        said = f"{question!r}: {found.verdict} {found.category} rank {found.first_failing_rank}: {found.root_cause}"
        words = all_words(found)
        if "verdict" in row:
            assert found.verdict.value == row["verdict"], said
        if "category" in row:
            assert found.category == row["category"], said
        if "rank" in row:
            assert found.first_failing_rank == row["rank"], said
        if "cause" in row:
            assert re.search(row["cause"], found.root_cause), said
        for pattern in row.get("says", []):
            assert re.search(pattern, words), f"{pattern} not in: {said}\n{words}"
        if "never" in row:
            assert not re.search(row["never"], words), said
    for question, pattern in row.get("asked", {}).items():
        text = answer(question, found, paths, workspace)
        assert re.search(pattern, text), f"{question}: {text}"
