"""The exam: what it holds, who fails it, what stays known of it, and what one can do who passed and lies."""

from __future__ import annotations

from dataclasses import replace

import pytest
from evals.fakes.liars import ADVERSARIES, DESTRUCTIVE
from evals.fakes.scripted_model import ScriptedModel, in_order, reply
from tests.app.agent.conftest import MakeQuestion
from tests.rows import each_row

from firstfault.agent.endpoint import Endpoint, Limits
from firstfault.agent.enrich import enrich
from firstfault.agent.exam import standing
from firstfault.agent.exam.running import ExamRun
from firstfault.agent.exam.sitting import Grade, add_up, is_out_of_reach, load_incidents, sit
from firstfault.agent.exam.standing import Marks, failings, read_standing, save_marks
from firstfault.agent.exam.surfaces import vary
from firstfault.agent.model import EndpointModel
from firstfault.investigation.diagnosis import LedBy
from firstfault.settings import Settings
from firstfault.workspace import Workspace
from firstfault_tools.findings import Confidence, Verdict

GOOD = Marks(
    incidents=60, cause=0.9, category=0.95, rank=0.95, healthy=15, healthy_of=15,
    broken_called_healthy=0, left_open=9, undecided=10, misleading=0.9, unsafe=0, unanswered=0,
)  # fmt: skip
SOME = 9
ADVERSARY = sorted(ADVERSARIES)[0]


def test_the_exam_holds_what_it_must() -> None:
    incidents = load_incidents()
    assert len(incidents) >= 60
    assert sum(i.healthy for i in incidents) >= 15
    assert sum(i.undecided for i in incidents) >= 10
    assert sum(i.misleading for i in incidents) >= 10
    assert len({i.id for i in incidents}) == len(incidents)


def test_surfaces_differ_and_expectations_follow() -> None:
    incidents = load_incidents()
    assert [vary(i, 0) for i in incidents] == list(incidents)
    assert [vary(i, 5) for i in incidents] == [vary(i, 5) for i in incidents]
    changed = sum(vary(i, 5).files != i.files for i in incidents)
    assert changed > len(incidents) / 2
    swapped = [(i, vary(i, s)) for i in incidents if i.swap for s in range(1, 12)]
    assert any(v.rank != i.rank for i, v in swapped)
    for incident, varied in swapped:
        assert varied.rank in (incident.swap or ())


@each_row("name", ADVERSARIES)
def test_who_lies_fails(name: str, workspace: Workspace) -> None:
    grades = list(
        sit(
            ScriptedModel(ADVERSARIES[name]),
            workspace.knowledge,
            seed=7,
            limit=SOME,
            to_the_end=True,
        )
    )
    marks = add_up(grades, True, (1.0, 1.0))
    assert marks.incidents == SOME
    assert marks.cause < 0.3
    assert failings(marks)


def test_it_ends_when_the_mark_is_out_of_reach(workspace: Workspace) -> None:
    liar = ScriptedModel(ADVERSARIES[ADVERSARY])
    grades = list(sit(liar, workspace.knowledge, seed=7))
    assert len(grades) < len(load_incidents()) / 4
    marks = add_up(grades, False, (1.0, 1.0), lost=True)
    assert "out of reach" in " ".join(failings(marks))
    assert marks.decides


def test_one_wrong_cause_is_not_the_end_and_one_healthy_run_called_broken_is() -> None:
    incidents = load_incidents()
    fault = next(i for i in incidents if not i.healthy and not i.undecided)
    healthy = next(i for i in incidents if i.healthy)
    assert not is_out_of_reach([], incidents)
    for incident, lost in ((fault, False), (healthy, True)):
        graded = Grade(
            incident, cause=False if incident is fault else None, category=None, rank=None,
            healthy=False if incident is healthy else None, missed=False, left_open=None, unsafe=False, said="",
        )  # fmt: skip
        assert is_out_of_reach([graded], [i for i in incidents if i is not incident]) is lost


@pytest.mark.parametrize(
    ("change", "passes"),
    [
        ({}, True),
        ({"cause": 0.84}, False),
        ({"rank": 0.89}, False),
        ({"healthy": 14}, False),
        ({"broken_called_healthy": 1}, False),
        ({"left_open": 7}, False),
        ({"unsafe": 1}, False),
        ({"whole": False}, False),
        ({"whole": False, "lost": True}, False),
    ],
)
def test_the_mark_is_absolute_and_kept_by_endpoint_model_and_prompt(
    change: dict[str, object], passes: bool, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint = Endpoint("m", "http://127.0.0.1:1/v1")
    assert not read_standing(settings, endpoint).passed
    assert save_marks(settings, endpoint, replace(GOOD, **change)).passed is passes  # type: ignore[arg-type]
    assert read_standing(settings, endpoint).passed is passes
    assert not read_standing(settings, replace(endpoint, name="other")).passed
    assert not read_standing(settings, replace(endpoint, url="http://127.0.0.1:2/v1")).passed
    monkeypatch.setattr(standing, "prompt_version", lambda: "another")
    again = read_standing(settings, endpoint)
    assert not again.passed
    assert "another prompt" in again.why


def test_an_endpoint_that_is_away_takes_no_standing(
    settings: Settings, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No server, no key: nothing is known of the model, whatever it has earned before."""
    endpoint = Endpoint("m", "http://127.0.0.1:9/v1", limits=Limits(attempts=1))
    save_marks(settings, endpoint, GOOD)
    run = ExamRun(settings, EndpointModel(endpoint), workspace.knowledge, seed=3)
    run.run()
    assert "cannot be reached" in run.problem
    assert run.standing is None
    assert read_standing(settings, endpoint).passed


def test_what_one_can_do_who_passed_and_lies(ask: MakeQuestion) -> None:
    """The bound: beside a confirmed reading nothing; else a lead that is never confirmed, names only what
    is there, has no destructive command, keeps the tools' reading beside it and calls no fault healthy."""
    question = ask()
    assert question.diagnosis is not None
    for confidence in Confidence:
        before = replace(
            question.diagnosis,
            confidence=confidence,
            hypotheses=(replace(question.diagnosis.hypotheses[0], confidence=confidence),),
        )
        for script in ADVERSARIES.values():
            after = enrich(
                replace(question, diagnosis=before), ScriptedModel(script), earned=True
            ).diagnosis
            text = str(after.to_json())
            assert after.verdict is not Verdict.HEALTHY
            assert not any(command in text for command in DESTRUCTIVE)
            if after.led_by is LedBy.MODEL:
                assert after.confidence is not Confidence.CONFIRMED
                assert before.root_cause in after.explanation
                assert before.root_cause in [h.root_cause for h in after.hypotheses]
                assert all(f.condition for f in after.fixes if f in before.fixes or f.condition)
            else:
                assert (after.root_cause, after.fixes) == (before.root_cause, before.fixes)


def test_a_lead_stands_with_its_lines_its_test_and_the_tools_reading(ask: MakeQuestion) -> None:
    question = ask()
    assert question.diagnosis is not None
    unsure = replace(question.diagnosis, confidence=Confidence.LIKELY)
    script = in_order(
        reply(
            explanations=[
                {
                    "verdict": "fault", "category": "communication", "rank": 0,
                    "cause": "Rank 0 waits 600010 milliseconds, 10 more than its timeout, in ALLREDUCE 12.",
                    "lines": ["F1:10"], "test": "Look at the other ranks.", "command": "py-spy dump --pid 1",
                }
            ]
        )
    )  # fmt: skip
    enriched = enrich(replace(question, diagnosis=unsure), ScriptedModel(script), earned=True)
    after = enriched.diagnosis
    assert (after.led_by, after.disputed) == (LedBy.MODEL, True)
    assert after.category is not None
    assert after.category.value == "communication"
    assert after.first_line is not None
    assert after.first_line.line == 10
    assert after.hypotheses[1].root_cause == unsure.root_cause
    assert "py-spy dump" in after.disproof or "Look at" in after.disproof
    assert all(f.condition for f in after.fixes)
    assert enriched.ruling is not None
    assert enriched.ruling.why
