"""Who leads, what is disputed and when a fix holds: said on the page's card and in the terminal alike."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from evals.cases import find_case
from rich.console import Console

from firstfault.investigation.diagnosis import Diagnosis, Hypothesis, LedBy
from firstfault.ui.card import choose_action, make_card
from firstfault.ui.leading import say_condition
from firstfault.ui.terminal import render
from firstfault.ui.verdict_card import write_verdict
from firstfault.workspace import Workspace
from firstfault_tools.findings import Category, Confidence

OTHER = Hypothesis("Rank 0 read too slowly.", Category.DATA, Confidence.LIKELY, (), (), "")
CONDITION = "only if this holds: GPU out of memory"


@pytest.fixture(scope="module")
def plain() -> Diagnosis:
    return Workspace().diagnose_paths([find_case("lab-oom_one_rank") / "log.txt"])


def in_terminal(diagnosis: Diagnosis) -> str:
    out = io.StringIO()
    render(diagnosis, Console(file=out, width=400, highlight=False))
    return out.getvalue()


@pytest.mark.parametrize("led_by", list(LedBy))
@pytest.mark.parametrize("disputed", [True, False])
def test_card_and_terminal_say_the_same(plain: Diagnosis, led_by: LedBy, disputed: bool) -> None:
    first, *rest = plain.hypotheses
    diagnosis = replace(
        plain, led_by=led_by, disputed=disputed, hypotheses=(first, OTHER, *rest), disproof="Look at rank 0."
    )  # fmt: skip
    for shown in (in_terminal(diagnosis), write_verdict(diagnosis, make_card(diagnosis))):
        assert ("model's reasoning, not confirmed" in shown.replace("&#x27;", "'")) is (led_by is LedBy.MODEL)  # fmt: skip
        assert ("Disputed: Rank 0 read too slowly." in shown) is disputed
        assert ("What separates them: Look at rank 0." in shown) is disputed


def test_a_fix_says_when_it_holds(plain: Diagnosis) -> None:
    fixes = tuple(replace(f, condition=CONDITION) for f in plain.fixes)
    assert fixes
    diagnosis = replace(plain, fixes=fixes)
    assert in_terminal(diagnosis).count("Only if this holds: GPU out of memory") == len(fixes)
    assert CONDITION[1:] not in in_terminal(plain)
    assert say_condition(fixes[0]) == f"O{CONDITION[1:]}"
    assert say_condition(plain.fixes[0]) == ""


def test_a_conditional_fix_is_not_the_next_step_where_another_holds(plain: Diagnosis) -> None:
    one = replace(plain.fixes[0], kind="immediate", command="date", condition=CONDITION, changes_state=False)  # fmt: skip
    two = replace(one, command="uptime", condition="")
    step = choose_action(
        replace(plain, fixes=(one, two), next_artefacts=(), confidence=Confidence.CONFIRMED), {}
    )
    assert step is not None
    assert step.command == "uptime"
