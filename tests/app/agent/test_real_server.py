"""A real llama.cpp server: plain, streamed, in a schema, with tools, and past its context."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from evals.fakes.llama_server import CONTEXT_TOKENS, find_weights, serve_llama
from pydantic import BaseModel, Field
from tests.app.agent.conftest import MakeQuestion

from firstfault.agent.endpoint import Endpoint, Limits, Structure
from firstfault.agent.enrich import enrich
from firstfault.agent.exam.sitting import load_incidents
from firstfault.agent.failures import explain_failure, is_of_endpoint
from firstfault.agent.health import check_endpoint
from firstfault.agent.model import EndpointModel
from firstfault.agent.reply import Reply
from firstfault.commands.model import COMMAND
from firstfault_tools.findings import Confidence

pytestmark = [
    pytest.mark.model,
    pytest.mark.timeout(400),
    pytest.mark.skipif(find_weights() is None, reason="no llama.cpp server: make setup-model"),
]


@pytest.fixture(scope="module")
def endpoint() -> Iterator[Endpoint]:
    with serve_llama() as url:
        limits = Limits(
            context_tokens=CONTEXT_TOKENS, answer_tokens=48, silence_s=60, turn_s=90, attempts=1
        )
        yield Endpoint("smollm2", url, structure=Structure.SCHEMA, limits=limits)


def test_plain_and_streamed(endpoint: Endpoint) -> None:
    chat = EndpointModel(endpoint).open()
    assert str(chat.invoke("Say hello.").content).strip()
    pieces = [str(c.content) for c in chat.stream("Count to five.")]
    assert len([p for p in pieces if p]) > 1


def test_schema_is_kept_by_grammar(endpoint: Endpoint) -> None:
    class Opinion(BaseModel):
        """What you think."""

        sure: Confidence
        note: str = Field(max_length=12)

    chat = EndpointModel(endpoint).open().with_structured_output(Opinion, method="json_schema")
    answer = chat.invoke("The rank ran out of memory. Do you agree?")
    assert isinstance(answer, Opinion)


def test_being_cut_off_is_said(endpoint: Endpoint) -> None:
    short = replace(endpoint, limits=replace(endpoint.limits, answer_tokens=4))
    chat = EndpointModel(short).open().with_structured_output(Reply, method="json_schema")
    with pytest.raises(Exception) as raised:  # the client's own type
        chat.invoke("Rank 1 ran out of memory.")
    assert is_of_endpoint(raised.value)
    assert "cut off" in explain_failure(raised.value, short)


@pytest.mark.slow
def test_a_weak_model_costs_nothing_but_itself(endpoint: Endpoint, ask: MakeQuestion) -> None:
    """It cannot answer well; the diagnosis stands, and whatever it says is checked."""
    question = ask()
    enriched = enrich(question, EndpointModel(endpoint), with_tools=False)
    assert question.diagnosis is not None
    assert enriched.diagnosis.root_cause == question.diagnosis.root_cause
    assert enriched.problem or enriched.assessment is not None


def test_tools_are_accepted(endpoint: Endpoint, ask: MakeQuestion) -> None:
    limits = replace(endpoint.limits, steps=1)
    by_tool = replace(endpoint, structure=Structure.TOOL, limits=limits)
    enriched = enrich(ask(), EndpointModel(by_tool))
    assert enriched.problem or enriched.assessment is not None


@pytest.mark.slow
def test_its_exam_ends_by_itself_as_failed_and_is_kept_so(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The whole way of a person: the command against the server, its table, and the standing after it."""
    given = {
        "FIRSTFAULT_DATA": str(tmp_path), "FIRSTFAULT_MODEL": endpoint.name, "FIRSTFAULT_MODEL_URL": endpoint.url,
        "FIRSTFAULT_MODEL_STRUCTURE": "schema", "FIRSTFAULT_MODEL_CONTEXT": str(CONTEXT_TOKENS),
        "FIRSTFAULT_MODEL_ANSWER": "48", "FIRSTFAULT_MODEL_TURN_S": "90",
    }  # fmt: skip
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    told = CliRunner().invoke(COMMAND, ["exam", "--seed", "3"])
    assert told.exit_code == 1, told.output
    assert "out of reach" in told.output
    status = CliRunner().invoke(COMMAND, ["status", "--json"])
    row = json.loads(status.stdout)
    assert row["may_lead"] is False
    assert "did not pass" in row["why"]
    assert row["marks"]["lost"]
    # it ended early: most of the exam was not asked
    assert row["marks"]["incidents"] < len(load_incidents()) / 4


def test_doctor_reads_it(endpoint: Endpoint) -> None:
    checks = {c.name: c for c in check_endpoint(endpoint)}
    assert checks["key and address"].ok
    assert checks["answer"].ok
    assert checks["structured output"].ok
    assert (
        checks["tool calling"].ok is False
    )  # accepted, not enforced: the model is too weak to call
