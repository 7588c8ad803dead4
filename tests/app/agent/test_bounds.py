"""Steps, tokens, repeats, time, size: a turn is bounded whatever the model does."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import pytest
from evals.fakes.scripted_model import ScriptedModel, call, in_order, reply, text_of, turns_of
from langchain_core.messages import AIMessage
from tests.app.agent.conftest import MakeQuestion

from firstfault.agent.context import TurnContext, open_context
from firstfault.agent.endpoint import Endpoint, Limits
from firstfault.agent.enrich import enrich
from firstfault.agent.graph import make_tools
from firstfault.agent.guard import ALREADY, run_within
from firstfault.agent.tokens import count_text
from firstfault.agent.tools import lines
from firstfault.errors import ModelUnavailable
from firstfault_tools.errors import InvalidParameter
from firstfault_tools.registry import calculators


@pytest.fixture
def ask(ask_long: MakeQuestion) -> MakeQuestion:
    return ask_long


ENDPOINT = Endpoint("scripted", "http://127.0.0.1:1/v1", limits=Limits(steps=4, turn_s=20))
ANSWER = reply(answer=[{"text": "Rank 1 ran out of memory.", "lines": ["F1:8"]}])


def context_of(ask: MakeQuestion, **limits: int) -> TurnContext:
    endpoint = replace(ENDPOINT, limits=replace(ENDPOINT.limits, **limits))  # type: ignore[arg-type]
    return open_context(ask(), endpoint, lambda _q, _n: ())


def test_the_last_step_has_no_tools_left(ask: MakeQuestion) -> None:
    offered: list[tuple[str, ...]] = []

    def script(messages, tools):  # type: ignore[no-untyped-def]
        offered.append(tools)
        n = turns_of(messages)
        return call("window", n, file="F1", line=n + 1) if len(tools) > 1 else ANSWER

    enriched = enrich(ask(), ScriptedModel(script, ENDPOINT))
    assert enriched.text
    assert len(offered) == 4
    assert offered[-1] == ("Reply",)


def test_tokens_end_a_turn_too(ask: MakeQuestion) -> None:
    tight = replace(ENDPOINT, limits=replace(ENDPOINT.limits, turn_tokens=6_000, steps=50))
    model = ScriptedModel(
        lambda m, t: call("window", turns_of(m), file="F1", line=turns_of(m) + 1) if len(t) > 1 else ANSWER, tight
    )  # fmt: skip
    assert enrich(ask(), model).text
    assert len(model.seen) < 8


def test_a_model_that_never_answers_is_given_up(ask: MakeQuestion) -> None:
    model = ScriptedModel(
        lambda m, _t: call("window", turns_of(m), file="F1", line=turns_of(m) + 1), ENDPOINT
    )
    enriched = enrich(ask(), model)
    assert "no answer in" in enriched.problem
    assert len(model.seen) <= ENDPOINT.limits.steps + 2


def test_the_same_call_is_carried_out_once(ask: MakeQuestion) -> None:
    same = [call("grep", n, pattern="rank1") for n in range(2)]
    model = ScriptedModel(in_order(*same, ANSWER), ENDPOINT)
    enrich(ask(), model)
    results = [str(m.content) for m in model.seen[-1] if m.type == "tool"]
    assert "lines match" in results[0]
    assert results[1] == ALREADY


def test_too_many_calls_at_once(ask: MakeQuestion) -> None:
    many = [
        {"name": "window", "args": {"file": "F1", "line": n + 1}, "id": f"c{n}"} for n in range(9)
    ]
    model = ScriptedModel(in_order(AIMessage("", tool_calls=many), ANSWER), ENDPOINT)
    enrich(ask(), model)
    results = [str(m.content) for m in model.seen[-1] if m.type == "tool"]
    assert sum("More than 4" in r for r in results) == 5


def test_wrong_arguments_are_told_to_the_model(ask: MakeQuestion) -> None:
    bad = [
        call("grep", 0, pattern="(("), call("window", 1, file="F9", line=1), call("read_page", 2, page="none"),
    ]  # fmt: skip
    model = ScriptedModel(in_order(*bad, ANSWER), ENDPOINT)
    assert enrich(ask(), model).text
    results = [str(m.content) for m in model.seen[-1] if m.type == "tool"]
    assert "no RE2 expression" in results[0]
    assert "there are F1 to F1" in results[1]
    assert "no page" in results[2]


def test_a_slow_tool_is_left_behind() -> None:
    ended = threading.Event()
    release = threading.Event()

    def wait() -> None:
        release.wait(60)
        ended.set()

    with pytest.raises(TimeoutError):
        run_within(wait, 0.1)
    assert not ended.is_set()
    release.set()
    with pytest.raises(ZeroDivisionError):
        run_within(lambda: 1 / 0, 5)
    assert run_within(lambda: 7, 5) == 7


def test_stop_ends_the_turn(ask: MakeQuestion) -> None:
    stop = threading.Event()

    def script(messages, _tools):  # type: ignore[no-untyped-def]
        stop.set()
        return call("overview", 0)

    question = replace(ask(), is_stopped=stop.is_set)
    model = ScriptedModel(script, ENDPOINT)
    enriched = enrich(question, model)
    assert enriched.problem == "stopped"
    assert len(model.seen) == 1


def test_all_calculators_are_one_tool(ask: MakeQuestion) -> None:
    offered = {t.name: t for t in make_tools(context_of(ask))}
    assert {"overview", "grep", "window", "search", "read_page", "calculate"} <= set(offered)
    assert all(c.name in offered["calculate"].description for c in calculators())
    assert sum(n.startswith("calculate") for n in offered) == 1


def test_a_calculator_answers_with_evidence(ask: MakeQuestion) -> None:
    model = ScriptedModel(
        in_order(
            call(
                "calculate",
                0,
                name="bubble",
                inputs={"schedule": "1f1b", "stages": 4, "microbatches": 8},
            ),
            call(
                "calculate",
                1,
                name="bubble",
                inputs={"schedule": "1f1b", "stages": 0, "microbatches": 8},
            ),
            call("calculate", 2, name="bubble", inputs={}),
            ANSWER,
        ),
        ENDPOINT,
    )
    enrich(ask(), model)
    good, bad, told = [str(m.content) for m in model.seen[-1] if m.type == "tool"]
    assert "calculate" in good or "bubble" in good
    assert "stages" in bad
    assert "microbatches" in told


def test_grep_says_what_it_cut(ask: MakeQuestion, tmp_path: Path) -> None:
    context = context_of(ask)
    big = tmp_path / "big.log"
    big.write_text("\n".join(f"[rank0]: tick {n}" for n in range(5_000)))
    context = replace(context, question=replace(context.question, artefacts={"big.log": big}))
    text, artifact = lines.grep(context, "tick")
    assert "5000 lines match" in text
    assert "more matches not shown" in text
    assert len(text) <= context.tool_chars + 100
    assert len(artifact["items"]) == lines.MAX_SHOWN + 1
    with pytest.raises(InvalidParameter):
        lines.grep(context, "  ")
    assert "no line" in lines.show_window(context, "F1", 99_999, 2)[0]
    assert "5000 lines" in lines.show_overview(context)[0]


def test_the_view_fits_a_small_context(ask: MakeQuestion) -> None:
    small = replace(
        ENDPOINT, limits=replace(ENDPOINT.limits, context_tokens=2_048, answer_tokens=256)
    )
    model = ScriptedModel(in_order(ANSWER), small)
    enrich(ask(), model)
    assert count_text(text_of(model.seen[0][1:])) < 2_048


def test_tokens_need_no_vocabulary() -> None:
    assert count_text("") == 0
    assert 2 <= count_text("ncclAllReduce") <= 8
    assert ModelUnavailable("x").exit_code == 4
