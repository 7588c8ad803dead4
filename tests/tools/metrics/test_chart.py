"""Do thinned curves keep spikes and gaps, and do the calculators hold to their schemas?"""

import math

import jsonschema
import pytest

from firstfault_tools.errors import InvalidParameter
from firstfault_tools.metrics import checklist, correlation, verification
from firstfault_tools.metrics.chart import chart_columns, summarise_columns, thin_curve
from firstfault_tools.metrics.sources.steps import parse_steps


def test_a_spike_of_one_step_survives_thinning() -> None:
    y = [1.0] * 100_000
    y[54_321], y[77_777] = 9.0, math.nan
    kept = thin_curve(range(len(y)), y, 1000)
    assert len(kept) <= 1100
    assert {0, 54_321, 77_777, len(y) - 1} <= set(kept)


def test_chart_and_summary_are_valid_json_values() -> None:
    series = parse_steps(
        (s, f"step {s} loss {'nan' if s == 7 else 2.0} lr 1e-4") for s in range(20)
    )
    charts = chart_columns(series)
    loss = charts["loss"]
    assert isinstance(loss, dict)
    assert loss["y"][7] is None
    assert loss["x"][7] == 7
    assert loss["line"][7] == 7
    summary = summarise_columns(series)["loss"]
    assert isinstance(summary, dict)
    assert summary["not_finite"] == 1


def test_verify_calculator() -> None:
    question = {"before": [True, True, True], "after": [False, False, False]}
    jsonschema.validate(question, dict(verification.CALCULATOR.parameters))
    assert verification.CALCULATOR.run(**question)["verdict"] == "fixed"
    with pytest.raises(InvalidParameter, match="trials"):
        verification.CALCULATOR.run(before=["yes"], after=[False])


def test_correlation_calculator() -> None:
    events = [{"kind": "save", "time_s": 1000.0 * i} for i in range(50)]
    failures = [1000.0 * i + 20 for i in range(0, 50, 4)]
    question = {"events": events, "failures": failures, "window_s": 100.0}
    jsonschema.validate(question, dict(correlation.CALCULATOR.parameters))
    answer = correlation.CALCULATOR.run(**question)
    assert answer["precursors"][0]["risk_ratio"] > 1  # type: ignore[index, call-overload, operator]
    with pytest.raises(InvalidParameter, match="events"):
        correlation.CALCULATOR.run(events=[{"kind": 3}], failures=[1.0])


def test_checklist_calculator() -> None:
    for phase in checklist.CALCULATOR.parameters["properties"]["phase"]["enum"]:
        assert checklist.CALCULATOR.run(phase=phase)["items"]
