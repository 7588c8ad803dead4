"""The triage tree as a walk: one question at a time, and by itself where a log tells the answers."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.rows import each_row
from tests.seeds.run_logs import write_log

from firstfault.conversation.answerer import Exchange, Question
from firstfault.conversation.rules import RuleAnswerer
from firstfault.conversation.triage_tree import load_tree, walk_tree
from firstfault.workspace import Workspace

BEGIN = "Something is wrong with my training, where do I start?"


@pytest.fixture(scope="module")
def workspace() -> Workspace:
    return Workspace()


@each_row(
    ("messages", "at"),
    [
        ([BEGIN], "running"),
        ([BEGIN, "yes"], "loss"),
        ([BEGIN, "No, it died"], "started"),
        ([BEGIN, "no", "no"], "environment"),
        ([BEGIN, "no", "yes"], "crash"),
        ([BEGIN, "Yes", "No", "no"], "initialization"),
        ([BEGIN, "yes", "no", "it did at first, it fell until step 300"], "stalled"),
        ([BEGIN, "yes", "yes", "yes"], "watch"),
        ([BEGIN, "yes", "yes", "no"], "performance"),
        ([BEGIN, "it is still running, and the loss decreases"], "pace"),
        (["The loss decreases but the step time is not stable, what now?"], "performance"),
        (["It crashed, it never made a step, what now?"], "environment"),
    ],
)
def test_each_path_comes_to_its_leaf(messages: list[str], at: str) -> None:
    place = walk_tree(messages)
    assert place is not None
    assert place.at == at


@each_row(
    "messages",
    [["What does Xid 79 mean?"], ["My loss is nan"], [BEGIN, "What does Xid 79 mean?"], [BEGIN, "no", "no", "thanks"]],
)  # fmt: skip
def test_what_is_no_part_of_a_walk_is_left_alone(messages: list[str]) -> None:
    assert walk_tree(messages) is None


def test_every_answer_leads_somewhere() -> None:
    questions, leaves, _ = load_tree()
    led = {to for q in questions.values() for to in q.leads.values()}
    assert led <= questions.keys() | leaves.keys()
    assert leaves.keys() <= led


def ask(text: str, workspace: Workspace, path: Path | None = None, earlier: tuple[str, ...] = ()) -> str:  # fmt: skip
    found = workspace.diagnose_paths([path]) if path is not None else None
    files = {path.name: path} if path is not None else {}
    said = tuple(Exchange(q, "") for q in earlier)
    asked = Question("", 1, text, found, files, said, workspace.knowledge)
    return next(p for p in RuleAnswerer().answer(asked)).text  # type: ignore[union-attr]


def test_the_walk_in_the_conversation(workspace: Workspace) -> None:
    assert ask(BEGIN, workspace) == "Do steps still come?"
    assert ask("yes", workspace, earlier=(BEGIN,)) == "Do steps still come? Yes. Does the loss decrease?"  # fmt: skip
    said = ask("no", workspace, earlier=(BEGIN, "yes", "yes"))
    assert said.startswith("It is a performance regression")
    assert "firstfault experiment component" in said


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ({}, "Nothing is wrong by the tree"),
        ({"s": [[10, 0.5], [1990, 0.5], [2000, 1.1], [4000, 1.1]]}, "It is a performance regression"),
        ({"loss": [[10, 3.5], [400, 2.5], [4000, 2.5]]}, "The training has stalled"),
    ],
    ids=["well", "slower", "flat"],
)  # fmt: skip
def test_a_log_answers_for_itself(
    columns: dict[str, object], says: str, workspace: Workspace, tmp_path: Path
) -> None:
    path = tmp_path / "train.log"
    path.write_text(write_log({"form": "plain", "steps": [10, 4000, 10], "columns": columns}))
    said = ask("Walk me through the triage tree", workspace, path)
    assert said.startswith(says), said
    assert "- Do steps still come? Yes: steps stand up to the last line, train.log:400 [" in said
