"""Are the inverse questions, the chart, the calculator and bad input answered rightly?"""

import itertools
from typing import Any

import pytest
from tests.rows import each_row

from firstfault_tools.errors import InvalidParameter
from firstfault_tools.pipeline.bubble import plan_of, price_plan
from firstfault_tools.pipeline.calculator import CALCULATOR, calculate_bubble
from firstfault_tools.pipeline.gantt import draw_gantt
from firstfault_tools.pipeline.questions import (
    compare_virtual,
    cost_of_slow_stage,
    explain_step,
    fewest_microbatches,
    in_flight_chunks,
)


@each_row(
    ("schedule", "v", "target"), [("1f1b", 1, 0.1), ("1f1b", 1, 0.05), ("interleaved", 2, 0.08)]
)
def test_fewest_microbatches_is_the_first_that_fits(schedule: str, v: int, target: float) -> None:
    p = 8
    answer = fewest_microbatches(plan_of(schedule, p, p, v), target)
    exact = (p - 1) * (1 / target - 1) / v
    step = p if schedule == "interleaved" else 1
    assert answer.microbatches == -(-round(exact, 9) // step) * step
    assert answer.fraction_of_total is not None
    assert answer.fraction_of_total <= target + 1e-12


def test_imbalance_sets_a_floor() -> None:
    answer = fewest_microbatches(plan_of("1f1b", 4, 8, stage_scale=[1, 1, 1, 1.5]), 0.1)
    assert answer.microbatches is None
    assert answer.floor == pytest.approx(1 - 1.125 / 1.5)


def test_virtual_stages_trade_bubble_for_memory() -> None:
    choices = compare_virtual(plan_of("1f1b", 8, 64), (1, 2, 4))
    assert [c.virtual for c in choices] == [4, 2, 1]
    assert {c.virtual: round(c.activation_factor, 4) for c in choices} == {
        1: 1.0,
        2: 1 + 7 / 16,
        4: round(1 + 7 / 32, 4),
    }
    costly = compare_virtual(plan_of("1f1b", 8, 64, latency=20), (1, 2, 4))
    assert costly[0].virtual == 1


def test_one_slow_stage() -> None:
    slow = cost_of_slow_stage(plan_of("1f1b", 8, 64, stage_scale=[1] * 7 + [1.3]))
    assert (slow.stage, round(slow.times_the_median, 3)) == (7, 1.3)
    assert slow.makespan == pytest.approx(270.6)
    assert slow.balanced == pytest.approx(71 * 3 * 8.3 / 8)


def test_in_flight_counts() -> None:
    assert in_flight_chunks(plan_of("1f1b", 8, 64), 0) == 8
    assert in_flight_chunks(plan_of("1f1b", 8, 64), 7) == 1
    assert in_flight_chunks(plan_of("gpipe", 8, 64), 7) == 64
    assert in_flight_chunks(plan_of("interleaved", 8, 64, 2), 0) == 23


def test_observed_step_is_split() -> None:
    seen = explain_step(price_plan(plan_of("1f1b", 8, 32)), 130.0)
    assert seen.compute_share + seen.bubble_share + seen.unexplained_share == pytest.approx(1)
    assert seen.unexplained == pytest.approx(13.0)


def test_recompute_adds_a_forward_to_the_backward() -> None:
    with_it = price_plan(plan_of("1f1b", 4, 16, recompute=True))
    without = price_plan(plan_of("1f1b", 4, 16))
    assert with_it.makespan == pytest.approx(without.makespan * 4 / 3)
    assert with_it.ratio_to_ideal == pytest.approx(without.ratio_to_ideal)


@each_row(
    ("schedule", "m", "v"),
    [("gpipe", 8, 1), ("1f1b", 8, 1), ("interleaved", 8, 2), ("zb-h1", 8, 1), ("zb-v", 8, 2),
     ("dualpipe", 8, 1)],
)  # fmt: skip
def test_gantt_is_a_valid_schedule(schedule: str, m: int, v: int) -> None:
    bubble = price_plan(plan_of(schedule, 4, m, v, stage_scale=[1, 1.2, 0.7, 1]), trace=True)
    tasks = bubble.timeline.tasks
    for stage in range(4):
        line = [t for t in tasks if t.stage == stage]
        assert sum(t.end - t.start for t in line if t.kind == "F") > 0
        starts = sorted({(t.start, t.end) for t in line})
        # a rank never runs two things at once, save for DualPipe's overlapped pairs
        assert all(a[1] <= b[0] + 1e-9 for a, b in itertools.pairwise(starts))
        assert len({t.microbatch for t in line}) == (m if schedule != "dualpipe" else m // 2)
    chart = draw_gantt(tasks, width=60).splitlines()
    assert len(chart) == 4
    assert {len(line) for line in chart} == {65}


@each_row(
    ("change", "field"),
    [
        ({"schedule": "2f2b"}, "schedule"),
        ({"stages": 0}, "stages"),
        ({"microbatches": -3}, "microbatches"),
        ({"forward": -1}, "forward"),
        ({"forward": float("nan")}, "forward"),
        ({"weight": 3}, "weight"),
        ({"stage_scale": [1, 2]}, "stage_scale"),
        ({"virtual": 3}, "virtual"),
        ({"schedule": "interleaved", "microbatches": 9, "virtual": 2}, "microbatches"),
        ({"schedule": "dualpipe", "microbatches": 6}, "microbatches"),
        ({"stages": 4096, "microbatches": 1_000_000}, "microbatches"),
        ({"at_most": 1.5}, "at_most"),
        ({"observed": 0}, "observed"),
        ({"tensor_parallel": 8}, "tensor_parallel"),
        ({"formula": "(p-1)/(m*p)"}, "formula"),
    ],
)
def test_bad_input_names_the_field(change: dict[str, Any], field: str) -> None:
    good: dict[str, Any] = {"schedule": "1f1b", "stages": 4, "microbatches": 8}
    with pytest.raises(InvalidParameter) as caught:
        calculate_bubble(**{**good, **change})
    assert caught.value.field == field


def test_calculator_declares_what_it_takes() -> None:
    import inspect

    known = set(inspect.signature(calculate_bubble).parameters) - {"unknown"}
    assert set(CALCULATOR.parameters["properties"]) == known
    result = calculate_bubble(schedule="1f1b", stages=8, microbatches=32, at_most=0.1, compare=True)
    assert result["schema"] == "firstfault.bubble/1"
    assert {"ratio_to_ideal", "fraction_of_total", "makespan", "ideal"} <= set(result)


def test_one_factor_a_model_stage() -> None:
    by_rank = price_plan(plan_of("interleaved", 4, 8, 2, stage_scale=[1, 1.2, 0.7, 1]))
    by_stage = price_plan(plan_of("interleaved", 4, 8, 2, stage_scale=[1, 1.2, 0.7, 1] * 2))
    assert by_stage.makespan == pytest.approx(by_rank.makespan)
    assert by_stage.ideal == pytest.approx(by_rank.ideal)
    # an expensive first model stage (embedding) costs its rank half as much as a slow rank would
    head = plan_of("interleaved", 4, 8, 2, stage_scale=[1.4, *[1] * 7])
    assert price_plan(head).ideal_slowest == pytest.approx(8 * 3 * 1.2)
    slow = cost_of_slow_stage(head)
    assert (slow.stage, round(slow.times_the_median, 3)) == (0, 1.2)
    vee = plan_of("zb-v", 4, 8, stage_scale=[1.4, *[1] * 7])
    assert price_plan(vee).ideal_slowest == pytest.approx(8 * 3 * 1.2)
    assert cost_of_slow_stage(vee).stage == 0
