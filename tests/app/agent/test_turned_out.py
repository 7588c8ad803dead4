"""What went wrong once with a strong model behind the product does not come back: rows by where it sat."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import httpx
import openai
import pytest
from evals.fakes.fake_endpoint import serve_fake
from evals.fakes.scripted_model import ScriptedModel, call, in_order, reply
from langchain_core.messages import AIMessage
from tests.app.agent.conftest import MakeQuestion
from tests.rows import each_row

from firstfault.agent import answerer as answering
from firstfault.agent.answerer import AgentAnswerer, walk_of, write_message
from firstfault.agent.context import open_context
from firstfault.agent.endpoint import Endpoint, Hidden, Limits, Structure, read_endpoint
from firstfault.agent.enrich import enrich, preview
from firstfault.agent.evidence import EvidenceBook
from firstfault.agent.exam.standing import Standing
from firstfault.agent.failures import explain_failure
from firstfault.agent.model import EndpointModel
from firstfault.agent.pseudonymise import Veil
from firstfault.agent.tokens import count_text
from firstfault.conversation.answerer import Exchange
from firstfault.conversation.rules import search_lexically
from firstfault.conversation.walk import begin
from firstfault.incidents.events import AnswerPart, Progress, VerdictReached
from firstfault.settings import Settings

HERE = Endpoint("scripted", "http://127.0.0.1:1/v1", limits=Limits(silence_s=10, turn_s=60))
GOOD = reply(answer=[{"text": "Rank 1 ran out of memory.", "lines": ["F1:8"]}])
OTHER = {
    "verdict": "fault", "category": "communication", "rank": 0, "lines": ["F1:10"],
    "cause": "Rank 0 caught a collective operation timeout.", "test": "Look at whether rank 1 came to the ALLREDUCE.",
}  # fmt: skip


@pytest.mark.parametrize(("kind", "answered"), [("prose", False), ("fenced", True), ("empty", False)])  # fmt: skip
@pytest.mark.parametrize("structure", list(Structure))
def test_an_answer_that_is_none_in_the_schema_costs_only_itself(
    ask: MakeQuestion, kind: str, answered: bool, structure: Structure
) -> None:
    question = ask()
    with serve_fake() as fake:
        endpoint = replace(HERE, name=kind, url=fake.url, structure=structure)
        enriched = enrich(question, EndpointModel(endpoint))
    if not answered or structure is Structure.SCHEMA:
        assert enriched.problem or enriched.outcome is not None
    else:
        assert enriched.problem == ""
    assert question.diagnosis is not None
    assert enriched.diagnosis.root_cause == question.diagnosis.root_cause


@pytest.mark.parametrize("task", ["explain", "answer"])
@pytest.mark.parametrize("text", ["Is it the network?", "only text, from step 56 on"])
def test_the_persons_words_are_sent_on_every_turn(ask: MakeQuestion, task: str, text: str) -> None:
    question = ask(text)
    context = open_context(question, HERE, search_lexically)
    message = write_message(context, begin(question.diagnosis), task)
    assert text in message
    assert context.book.find("Q") is not None


@pytest.mark.parametrize(
    ("earned", "verdicts"),
    [(False, 1), (True, 1)],
)
def test_in_an_incident_what_the_model_weighs_changes_the_verdict_on_record(
    ask: MakeQuestion, settings: Settings, monkeypatch: pytest.MonkeyPatch, earned: bool, verdicts: int
) -> None:  # fmt: skip
    monkeypatch.setattr(answering, "read_standing", lambda *_: Standing(earned, "by the test"))
    question = replace(ask("Why?"), incident="a", turn=2)
    parts = list(turn(settings, question, reply(explanations=[OTHER])))
    judged = [p.diagnosis for p in parts if isinstance(p, VerdictReached)]
    assert len(judged) == verdicts
    assert question.diagnosis is not None
    known = {h.root_cause for h in question.diagnosis.hypotheses}
    added = [h for h in judged[0].hypotheses if h.root_cause not in known]
    assert [h.test for h in added] == [OTHER["test"]]
    for hypothesis in judged[0].hypotheses:
        assert not set(hypothesis.for_) & set(hypothesis.against)
    assert "not supported" not in json.dumps(judged[0].to_json())
    said = "".join(p.text for p in parts if isinstance(p, AnswerPart) and p.source == "model")
    assert OTHER["test"].rstrip(".") in said
    assert "not supported" not in said


def turn(settings: Settings, question: Any, *messages: AIMessage) -> Sequence[Any]:
    from firstfault.agent.store import open_store

    model = ScriptedModel(in_order(*messages), HERE)
    store = open_store(settings)
    try:
        return list(AgentAnswerer(settings, store, model).answer(question))
    finally:
        store.close()


@each_row(
    "text",
    [
        "mount | grep /data", "env | grep NCCL", "dmesg | tail", "nvidia-smi | head", "compute_90", "gcc -gencode arch=compute_90",
        "waiting for mount /data", "server env dmesg", "host nvidia-smi",
    ],
)  # fmt: skip
def test_the_veil_takes_no_word_for_a_host(text: str) -> None:
    veil = Veil(frozenset(Hidden))
    veil.hide(text)
    assert not [n for n in veil.names if n in ("mount", "env", "dmesg", "nvidia-smi", "compute_90")]
    assert veil.hide("waiting for mount, env and dmesg") == "waiting for mount, env and dmesg"


@each_row(
    ("body", "says", "not_said"),
    [
        ({"message": "Unsupported value: 'temperature' does not support 0.0", "param": "temperature"}, "temperature", "too long"),
        ({"message": "Unsupported parameter: 'max_tokens' is not supported", "param": "max_tokens"}, "max_tokens", "too long"),
        ({"message": "Unrecognized request argument supplied: stream_options"}, "stream_options", "too long"),
        ({"message": "This model's maximum context length is 8192 tokens"}, "too long for its context", "setting"),
    ],
)  # fmt: skip
def test_a_refusal_names_what_was_refused(body: dict[str, str], says: str, not_said: str) -> None:
    response = httpx.Response(400, request=httpx.Request("POST", HERE.url))
    error = openai.BadRequestError(f"Error code: 400 - {body}", response=response, body=body)
    said = explain_failure(error, HERE)
    assert says in said
    assert not_said not in said


@pytest.mark.parametrize(
    ("given", "reasoning", "tokens"),
    [
        ({"model_name": "o3"}, True, 16_384),
        ({"model_name": "o4-mini"}, True, 16_384),
        ({"model_name": "gpt-4.1"}, False, 2_048),
        ({"model_name": "gpt-4.1", "model_reasoning": "yes"}, True, 16_384),
        ({"model_name": "o3", "model_reasoning": "no", "model_answer": 900}, False, 900),
    ],
)
def test_models_that_think_get_no_temperature_and_longer_answers(
    given: dict[str, Any], reasoning: bool, tokens: int, settings: Settings
) -> None:
    changed = settings.model_copy(update={"model_url": HERE.url, **given})
    endpoint = read_endpoint(changed)
    assert endpoint is not None
    assert (endpoint.reasoning, endpoint.limits.answer_tokens) == (reasoning, tokens)
    chat = EndpointModel(endpoint).open()
    assert (getattr(chat, "temperature", None) is None) is reasoning


def test_a_paragraph_is_shown_whole_or_not_at_all(ask: MakeQuestion) -> None:
    half = "Rank 1 ran out of memory. GPU 6 of badnode-99 fell off the bus."
    enriched = enrich(ask(), ScriptedModel(in_order(reply(answer=[{"text": half, "lines": ["F1:8"]}])), HERE))  # fmt: skip
    assert "ran out of memory" not in enriched.text
    assert "badnode" not in enriched.text


def test_a_later_turn_carries_the_models_own_answer(ask: MakeQuestion) -> None:
    rules, model = "Rules say this. " * 200, "The model's last words are of rank 1."
    question = replace(ask("And now?"), earlier=(Exchange("Why?", f"{rules}\n\n{model} [3]"),))
    context = open_context(question, HERE, search_lexically)
    message = write_message(context, begin(question.diagnosis), "answer")
    assert model in message
    assert f"{model} [3]" not in message


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("we already checked the network, what else?", True),
        ("we already checked the network", True),
        ("is the learning rate the problem?", False),
        ("it is not the network, is it?", False),
        ("the memory was ruled out; why did it die?", True),
    ],
)
def test_a_correction_may_end_in_a_question(ask: MakeQuestion, text: str, said: bool) -> None:
    walk = walk_of(replace(ask(), text=text))
    assert bool(walk.statements) is said
    assert any(s.checked for s in walk.statements) is said


def test_the_preview_counts_all_that_leaves(ask: MakeQuestion) -> None:
    question = ask("Why?", long=True)
    model = ScriptedModel(in_order(GOOD), HERE)
    shown = preview(question, model)
    assert shown.tools
    assert shown.tokens > count_text(shown.system) + count_text(shown.message) + 300


def test_ids_of_results_do_not_depend_on_their_order() -> None:
    rows = [("grep", "2 lines", "Xid"), ("calculate", "0.5", ""), ("grep", "0 lines", "nan")]
    one, two = EvidenceBook(("a",)), EvidenceBook(("a",))
    assert {one.add_result(*r).id for r in rows} == {two.add_result(*r).id for r in reversed(rows)}


def test_two_answers_in_one_message_are_no_end(ask: MakeQuestion) -> None:
    twice = AIMessage("", tool_calls=[*GOOD.tool_calls, *reply(98).tool_calls])
    enriched = enrich(ask(), ScriptedModel(in_order(twice, GOOD), HERE))
    assert enriched.problem == ""
    assert "ran out of memory" in enriched.text


ASKED_AGAIN = [
    # what differs the second time -> is the model asked again?
    ("nothing", False),
    ("evidence", True),
    ("model", True),
    ("endpoint", True),
    ("prompt", True),
    ("incident", True),
]


@pytest.mark.parametrize(("differs", "again"), ASKED_AGAIN)
def test_the_same_is_not_asked_twice(
    ask: MakeQuestion, settings: Settings, monkeypatch: pytest.MonkeyPatch, differs: str, again: bool
) -> None:  # fmt: skip
    from firstfault.agent import memo
    from firstfault.agent.store import open_store

    store = open_store(settings)
    script = in_order(call("search", 0, query="out of memory"), GOOD)
    first = ScriptedModel(script, HERE)
    question = replace(ask(), incident="a", turn=1)
    before = list(AgentAnswerer(settings, store, first).explain(question))
    assert first.seen
    endpoint = HERE
    changes: dict[str, Callable[[], Any]] = {"prompt": lambda: monkeypatch.setattr(memo, "prompt_version", lambda: "x")}  # fmt: skip
    changes.get(differs, lambda: None)()
    if differs == "evidence":
        question = replace(ask(planted="[rank0]: waits for rank 1"), incident="a", turn=1)
    if differs == "model":
        endpoint = replace(HERE, name="another")
    if differs == "endpoint":
        endpoint = replace(HERE, url="http://127.0.0.1:2/v1")
    if differs == "incident":
        question = replace(question, incident="b")
    second = ScriptedModel(script, endpoint)
    after = list(AgentAnswerer(settings, store, second).explain(replace(question, turn=2)))
    assert bool(second.seen) is again
    said = [p.text for p in before if isinstance(p, AnswerPart) and p.source == "model"]
    assert said == [p.text for p in after if isinstance(p, AnswerPart) and p.source == "model"]
    told = any("not asked again" in p.detail for p in after if isinstance(p, Progress))
    assert told is not again
    store.delete_incident("a")
    assert store.find_reply("", "a") is None
    store.close()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("we already checked the network", "does not rest on the network"),
        ("the memory was ruled out", "memory"),
    ],
)
def test_what_is_ruled_out_is_answered_by_rule_first(
    ask: MakeQuestion, settings: Settings, text: str, says: str
) -> None:
    question = replace(ask(text), incident="a", turn=2)
    parts = turn(settings, question, GOOD)
    first = next(p for p in parts if isinstance(p, AnswerPart))
    assert first.kind == "walk.ruled_out"
    assert says in first.text
