"""A probe asked for where no model is set: offered, approved by exact words, run once."""

from __future__ import annotations

import time

import pytest
from tests.rows import each_row

from firstfault.agent.probe_offer import ProbingRules
from firstfault.agent.reply import ProbeComponent
from firstfault.agent.store import open_store
from firstfault.conversation.answerer import Question
from firstfault.conversation.probe_request import read_probe_request
from firstfault.conversation.rules import RuleAnswerer
from firstfault.incidents.events import AnswerPart, Progress
from firstfault.settings import Settings
from firstfault.workspace import Workspace

ASK = "Please measure the memory of this node"


@pytest.fixture
def ran() -> list[str]:
    return []


@pytest.fixture
def rules(settings: Settings, ran: list[str]) -> ProbingRules:
    def probe(component: ProbeComponent, light: bool) -> list[str]:
        ran.append(f"{component.value} {light}")
        return ["memory of GPU 0 is fine"]

    return ProbingRules(open_store(settings), probe)


@pytest.fixture(scope="module")
def workspace() -> Workspace:
    return Workspace()


def say(rules: ProbingRules | RuleAnswerer, turn: int, text: str, workspace: Workspace) -> tuple[str, list[str]]:  # fmt: skip
    parts = list(rules.answer(Question("inc", turn, text, None, {}, (), workspace.knowledge, time=time.time())))  # fmt: skip
    told = [p.text for p in parts if isinstance(p, AnswerPart)]
    return told[-1], [p.step for p in parts if isinstance(p, Progress)]


def test_it_is_offered_approved_and_run_once(rules: ProbingRules, ran: list[str], workspace: Workspace) -> None:  # fmt: skip
    told, steps = say(rules, 1, ASK, workspace)
    assert "`firstfault probe --only memory --light`" in told
    assert (steps, ran) == (["approval"], [])
    told, steps = say(rules, 2, "/approve", workspace)
    assert "- memory of GPU 0 is fine" in told
    assert (steps, ran) == (["probe"], ["memory True"])
    assert say(rules, 2, "/approve", workspace)[0] == told, "a turn that is taken over"
    say(rules, 3, "/approve", workspace)
    assert ran == ["memory True"]


@pytest.mark.parametrize("text", ["do not approve", "Should I approve this?", "approve nothing", "yes"])  # fmt: skip
def test_only_exact_words_approve(text: str, rules: ProbingRules, ran: list[str], workspace: Workspace) -> None:  # fmt: skip
    say(rules, 1, ASK, workspace)
    say(rules, 2, text, workspace)
    assert ran == []


def test_it_is_rejected_with_a_reason(rules: ProbingRules, ran: list[str], workspace: Workspace) -> None:  # fmt: skip
    say(rules, 1, ASK, workspace)
    assert say(rules, 2, "/reject: the node is in use", workspace)[0] == "Nothing was run: the node is in use."  # fmt: skip
    say(rules, 3, "/approve", workspace)
    assert ran == []


@each_row(
    ("text", "request_"),
    [
        (ASK, ("memory", True)),
        ("Can you measure the GPUs of this node?", ("compute", True)),
        ("benchmark the nvlink here", ("communication", False)),
        ("run a probe of the storage", ("data", True)),
        ("test the links under load", ("communication", False)),
        ("How do I measure the memory of a GPU?", None),
        ("How much memory does a 7B model need?", None),
        ("What does Xid 79 mean?", None),
        ("we tested the network", None),
    ],
)
def test_who_asks_for_it(text: str, request_: tuple[str, bool] | None) -> None:
    found = read_probe_request(text)
    assert (None if found is None else (found.component, found.light)) == request_


def test_where_it_is_not_allowed_the_command_is_said(workspace: Workspace) -> None:
    told, _ = say(RuleAnswerer(), 1, ASK, workspace)
    assert "firstfault probe --only memory --light --out probe.jsonl" in told
