"""An endpoint that misbehaves costs its own part only, within its time, and says what to do."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest
from evals.fakes.fake_endpoint import REPLY, FakeEndpoint, serve_fake
from tests.app.agent.conftest import MakeQuestion

from firstfault.agent.endpoint import Endpoint, Limits, Structure
from firstfault.agent.enrich import enrich
from firstfault.agent.health import check_endpoint
from firstfault.agent.model import EndpointModel

LIMITS = Limits(silence_s=0.6, turn_s=8.0, attempts=2)
PATIENT = Limits(silence_s=20.0, turn_s=60.0, attempts=2)
WELL_BEHAVED = {"good", "tools", "lies", "429-once", "500-once"}


@pytest.fixture(scope="module")
def fake() -> Iterator[FakeEndpoint]:
    with serve_fake() as endpoint:
        yield endpoint


def model(fake: FakeEndpoint, kind: str, **more: object) -> EndpointModel:
    limits = PATIENT if kind in WELL_BEHAVED else LIMITS
    endpoint = Endpoint(kind, fake.url, "sk-test-key-0123456789abcdef", limits=limits)
    return EndpointModel(replace(endpoint, **more))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("stall", "silent"),
        ("drop", "cannot be reached|silent"),
        ("dribble", "took more than"),
        ("cut", "cut off"),
        ("garbage", "no answer"),
        ("html", "no answer"),
        ("empty", "did not answer in the schema"),
        ("429", "over its limit"),
        ("500", "failed \\(500\\)"),
        ("401", "refuses the key"),
        ("404", "does not exist"),
        ("400", "does not accept"),
    ],
)
def test_failure_is_said_and_the_diagnosis_stands(
    fake: FakeEndpoint, ask: MakeQuestion, kind: str, says: str
) -> None:
    import re

    question = ask()
    begin = time.monotonic()
    enriched = enrich(question, model(fake, kind))
    assert time.monotonic() - begin < 3 * LIMITS.turn_s  # what the endpoint takes has no end
    assert re.search(says, enriched.problem)
    assert "sk-test" not in enriched.problem
    assert question.diagnosis is not None
    assert replace(enriched.diagnosis, tools={}) == replace(question.diagnosis, tools={})
    assert enriched.diagnosis.tools["model"]["state"] == "deterministic answer only"


@pytest.mark.parametrize("kind", ["429-once", "500-once"])
def test_passing_failures_are_tried_again(fake: FakeEndpoint, ask: MakeQuestion, kind: str) -> None:
    assert enrich(ask(), model(fake, kind)).problem == ""


def test_lies_about_evidence_are_counted_and_not_shown(
    fake: FakeEndpoint, ask: MakeQuestion
) -> None:
    enriched = enrich(ask(), model(fake, "lies"))
    assert "badnode-99" not in enriched.text
    assert enriched.assessment is not None
    assert enriched.assessment.kept == 0
    assert enriched.assessment.removed["unknown_id"] == 2


def test_a_tool_is_called_and_its_result_can_be_cited(
    fake: FakeEndpoint, ask: MakeQuestion
) -> None:
    fake.tool_call = ("grep", {"pattern": "OutOfMemoryError"})
    fake.reply = {
        **REPLY,
        "answer": [{"text": "Rank 1 tried to allocate 14.00 GiB and ran out of memory.", "lines": ["F1:8"]}],
    }  # fmt: skip
    enriched = enrich(ask(long=True), model(fake, "tools"))
    assert enriched.outcome is not None
    assert enriched.outcome.tools == ["grep"]
    assert enriched.outcome.sent_tokens == 1800
    assert "ran out of memory [1]" in enriched.text
    assert enriched.citations[0].line == 8
    fake.reply = dict(REPLY)


def test_the_schema_may_be_kept_by_the_server_instead(
    fake: FakeEndpoint, ask: MakeQuestion
) -> None:
    enriched = enrich(ask(), model(fake, "good", structure=Structure.SCHEMA))
    assert enriched.problem == ""
    assert fake.requests[-1]["response_format"]["type"] == "json_schema"


def test_the_key_travels_in_the_header_only(fake: FakeEndpoint, ask: MakeQuestion) -> None:
    enrich(ask(), model(fake, "good"))
    assert fake.keys[-1] == "Bearer sk-test-key-0123456789abcdef"
    assert "sk-test" not in str(fake.requests)
    assert "sk-test" not in repr(model(fake, "good"))


def test_no_tracing_even_when_asked_for(
    fake: FakeEndpoint, ask: MakeQuestion, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LANGSMITH_TRACING", "true")
    monkeypatch.setenv("LANGSMITH_API_KEY", "x")
    looked_up: list[object] = []
    real = socket.getaddrinfo
    monkeypatch.setattr(
        socket, "getaddrinfo", lambda h, *a, **k: looked_up.append(h) or real(h, *a, **k)
    )
    assert enrich(ask(), model(fake, "good")).problem == ""
    assert set(looked_up) <= {"127.0.0.1"}


def test_health_of_a_good_and_of_bad_endpoints(fake: FakeEndpoint) -> None:
    checks = {c.name: c for c in check_endpoint(model(fake, "good").endpoint)}
    assert checks["key and address"].ok
    assert checks["model"].ok
    assert checks["context size"].ok is None
    assert checks["answer"].ok
    dead = list(check_endpoint(Endpoint("x", "http://127.0.0.1:9/v1", limits=LIMITS)))
    assert [c.ok for c in dead] == [False]
    unknown = {c.name: c for c in check_endpoint(model(fake, "401").endpoint)}
    assert unknown["model"].ok is False
    assert "refuses the key" in unknown["answer"].detail
