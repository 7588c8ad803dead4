"""A leading explanation that fell is asked for once more, and only then."""

from __future__ import annotations

from typing import Any

import pytest
from evals.fakes.scripted_model import ScriptedModel, in_order, reply
from tests.app.agent.conftest import MakeQuestion

from firstfault.agent.correction import lost_its_lead
from firstfault.agent.enrich import enrich
from firstfault.errors import ModelUnavailable
from firstfault.investigation.diagnosis import LedBy


def lead(cause: str, **more: Any) -> dict[str, Any]:
    account = {"verdict": "fault", "category": "communication", "rank": 0, "lines": ["F1:10"], "cause": cause}  # fmt: skip
    return {**account, **more}


HOLDS = lead("Rank 0 caught a collective operation timeout.")
INVENTED = lead("Rank 0 waited 4711.5 ms on node sirius-0815.")
ANSWER = [{"text": "Rank 0 caught a collective operation timeout.", "lines": ["F1:10"]}]
SAYS_IT, FALLS = (
    reply(answer=ANSWER, explanations=[HOLDS]),
    reply(answer=ANSWER, explanations=[INVENTED]),
)


def test_what_fell_is_said_once_more_from_the_lines(ask: MakeQuestion) -> None:
    model = ScriptedModel(in_order(FALLS, SAYS_IT))
    enriched = enrich(ask(), model, earned=True)
    told = str(model.seen[-1][-1].content)
    assert "explanations[0].cause" in told
    assert "4711.5" in told
    assert enriched.assessment is not None
    assert [e.cause for e in enriched.assessment.explanations] == [HOLDS["cause"]]
    assert enriched.outcome is not None
    assert enriched.outcome.calls == 2


@pytest.mark.parametrize(
    ("replies", "earned", "calls"),
    [
        pytest.param((SAYS_IT,), True, 1, id="what holds is not asked again"),
        pytest.param((FALLS, SAYS_IT), False, 1, id="who may not lead is not asked again"),
        pytest.param((FALLS, FALLS, SAYS_IT), True, 2, id="once and not twice"),
    ],
)
def test_it_is_asked_only_where_it_could_lead(
    ask: MakeQuestion, replies: tuple[Any, ...], earned: bool, calls: int
) -> None:
    enriched = enrich(ask(), ScriptedModel(in_order(*replies)), earned=earned)
    assert enriched.outcome is not None
    assert enriched.outcome.calls == calls
    assert enriched.assessment is not None
    if calls == 2:
        assert lost_its_lead(enriched.assessment)
        assert enriched.diagnosis.led_by is LedBy.RULE


def test_no_second_answer_leaves_the_first_as_it_was_checked(ask: MakeQuestion) -> None:
    def fails(*_: Any) -> Any:
        raise ModelUnavailable("the server went away")

    script = in_order(FALLS)
    enriched = enrich(
        ask(), ScriptedModel(lambda m, t: script(m, t) if len(m) < 4 else fails()), earned=True
    )
    assert enriched.problem == ""
    assert enriched.assessment is not None
    assert lost_its_lead(enriched.assessment)
    assert enriched.text, "its answer held and is shown"
