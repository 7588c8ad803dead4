"""The model within an incident on record: verdict first, consent, checked parts, outage, both databases."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from evals.fakes.liars import wrong_cause
from evals.fakes.scripted_model import Script, ScriptedModel, call, in_order, reply
from sqlalchemy import select
from tests.app.agent.conftest import LOG

from firstfault.agent.answerer import AgentAnswerer
from firstfault.agent.endpoint import Endpoint, Limits
from firstfault.agent.forgetting import forget_incident
from firstfault.agent.opening import open_answerer
from firstfault.agent.store import agent_file, metadata, open_checkpoints
from firstfault.incidents.events import AnswerPart, Event, EventKind, Progress
from firstfault.incidents.record import open_record
from firstfault.service import NewIncident, PastedText, Service
from firstfault.settings import Settings
from firstfault.workspace import Workspace

GOOD = reply(
    answer=[{"text": "Rank 1 ran out of memory.", "lines": ["F1:8"]}],
    question={
        "phase": "resolve",
        "text": "Which batch size is set?",
        "default": "The one of the last run.",
    },
)
LIMITS = Limits(silence_s=5, turn_s=20)
AWAY = Endpoint("scripted", "https://models.example.invalid/v1", limits=LIMITS)
HERE = Endpoint("scripted", "http://127.0.0.1:1/v1", limits=LIMITS)
OpenService = Callable[..., Service]


@pytest.fixture
def open_with(make_settings: Callable[..., Settings]) -> Iterator[OpenService]:
    """Service with a scripted model, on SQLite and on PostgreSQL."""
    opened: list[Service] = []

    def make(script: Script, endpoint: Endpoint = HERE) -> Service:
        record = open_record(make_settings(lease_seconds=5))
        answerer = open_answerer(record, ScriptedModel(script, endpoint))
        service = Service(record, Workspace(), answerer)
        service.start_workers()
        opened.append(service)
        return service

    yield make
    for service in opened:
        assert isinstance(service.answerer, AgentAnswerer)
        service.close()
        service.answerer.store.close()


def report(service: Service, planted: str = "[rank0]: waits") -> tuple[str, list[Event]]:
    text = LOG.replace("{planted}", planted)
    incident = service.start(NewIncident((PastedText(text),)))
    return incident, list(service.follow(incident, timeout=40))


def ask(service: Service, incident: str, text: str) -> list[Event]:
    turn = service.ask(incident, text)
    return [e for e in service.follow(incident, timeout=40) if e.turn == turn]


def said(events: list[Event], source: str = "model") -> str:
    return "\n".join(
        e.body.text for e in events if isinstance(e.body, AnswerPart) and e.body.source == source
    )


def steps(events: list[Event]) -> list[str]:
    return [e.body.step for e in events if isinstance(e.body, Progress)]


def test_the_verdict_comes_before_the_model_and_the_model_is_checked(
    open_with: OpenService,
) -> None:
    def slow(messages, tools):  # type: ignore[no-untyped-def]
        time.sleep(1.0)
        return GOOD

    service = open_with(slow)
    _, events = report(service)
    kinds = [e.kind for e in events]
    verdict = kinds.index(EventKind.VERDICT)
    answer = next(i for i, e in enumerate(events) if isinstance(e.body, AnswerPart))
    assert verdict < answer
    assert events[answer].time - events[verdict].time >= 0.9
    assert "ran out of memory [1]" in said(events)
    assert said(events, "evidence").startswith("Phase")  # likely only, so one thing is asked


def test_lies_are_not_shown_in_an_incident(open_with: OpenService) -> None:
    service = open_with(wrong_cause)
    incident, events = report(service)
    assert "InfiniBand" not in said(events)
    assert "grounding" in steps(events)
    diagnosis = service.diagnosis(incident)
    assert diagnosis is not None
    assert diagnosis.category is not None
    assert diagnosis.category.value == "oom"


def test_nothing_is_sent_before_a_person_let_it_go(open_with: OpenService) -> None:
    service = open_with(in_order(GOOD), AWAY)
    model = service.answerer.model  # type: ignore[attr-defined]
    incident, events = report(service)
    assert model.seen == []
    assert "/send" in said(events, "evidence")
    shown = said(ask(service, incident, "/preview"), "evidence")
    assert model.seen == []
    assert "OutOfMemoryError" in shown
    assert "alice" not in shown
    asked = ask(service, incident, "Which rank was it?")
    assert model.seen == []
    assert "rank 1" in said(asked, "evidence")
    sent = ask(service, incident, "/send")
    assert len(model.seen) == 1
    assert "ran out of memory [1]" in said(sent)
    ask(service, incident, "And why?")
    assert len(model.seen) == 2


def test_an_outage_is_said_and_the_rules_answer(open_with: OpenService) -> None:
    def broken(messages, tools):  # type: ignore[no-untyped-def]
        import httpx

        raise httpx.ConnectError("refused")

    service = open_with(broken, replace(HERE, limits=replace(LIMITS, attempts=1)))
    incident, events = report(service)
    assert events[-1].kind is EventKind.DONE
    details = [e.body.detail for e in events if isinstance(e.body, Progress)]
    assert any("deterministic answer only" in d for d in details)
    answer = ask(service, incident, "Which rank failed first?")
    assert "rank 1" in said(answer, "evidence")
    assert answer[-1].kind is EventKind.DONE


def test_a_probe_in_an_incident(open_with: OpenService) -> None:
    ran: list[str] = []
    service = open_with(in_order(call("run_probe", 0, component="memory", light=True), GOOD))
    answerer = service.answerer
    assert isinstance(answerer, AgentAnswerer)
    answerer.run_probe = lambda component, light: [ran.append(component.value) or "memory is fine"]  # type: ignore[func-returns-value]
    incident, events = report(service)
    assert "approval" in steps(events)
    pending = answerer.pending(incident)
    assert pending is not None
    assert pending.request["args"] == {"component": "memory", "light": True}
    assert ran == []
    done = ask(service, incident, "/approve")
    assert ran == ["memory"]
    assert "ran out of memory [1]" in said(done)
    assert answerer.pending(incident) is None


def test_earlier_incidents_are_evidence(open_with: OpenService) -> None:
    seen: list[str] = []

    def script(messages, tools):  # type: ignore[no-untyped-def]
        results = [str(m.content) for m in messages if m.type == "tool"]
        if not results:
            return call("incident_history", 0)
        seen.extend(results)
        return GOOD

    service = open_with(script)
    report(service)
    report(service, "[rank0]: waits again")
    assert "1 with the same fault" in seen[-1]


def test_checkpoints_open_where_the_incidents_are(make_settings: Callable[..., Settings]) -> None:
    settings = make_settings()
    with open_checkpoints(settings) as saver:
        kind = "Postgres" if settings.database_url else "Sqlite"
        assert type(saver).__name__ == f"{kind}Saver"
    assert agent_file(settings).name == "agent.sqlite"


def left_of(service: Service, incident: str) -> dict[str, int]:
    """Rows and threads of the agent that still name an incident."""
    assert isinstance(service.answerer, AgentAnswerer)
    with service.answerer.store.engine.connect() as connection:
        left = {
            table.name: sum(incident in str(row) for row in connection.execute(select(table)))
            for table in metadata.sorted_tables
            if table.name.startswith("agent_")
        }
    with open_checkpoints(service.settings) as saver:
        left["threads"] = len(
            {
                c.config["configurable"]["thread_id"]
                for c in saver.list(None)
                if c.config["configurable"]["thread_id"].startswith(incident)
            }
        )
    return left


def test_a_deleted_incident_leaves_nothing_of_the_model_behind(open_with: OpenService) -> None:
    service = open_with(lambda messages, tools: GOOD)
    kept, _ = report(service)
    gone, _ = report(service)
    ask(service, gone, "And why?")
    before, others = left_of(service, gone), left_of(service, kept)
    assert before["threads"] >= 2
    service.delete(gone)
    assert not any(left_of(service, gone).values())
    assert left_of(service, kept) == others
    assert forget_incident(service.settings, gone) == 0
