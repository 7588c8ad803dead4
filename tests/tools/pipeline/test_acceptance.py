"""Do the twelve acceptance values, the unequal stages and the wrong formula come out right?"""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.growth import grow_calls
from tests.rows import each_row

from firstfault_tools.errors import InvalidParameter
from firstfault_tools.pipeline.bubble import check_claim, plan_of, price_plan
from firstfault_tools.pipeline.closed_form import closed_form, name_formula, wrong_value
from firstfault_tools.pipeline.orders import operation_orders
from firstfault_tools.pipeline.simulation import _general_timeline, simulate
from firstfault_tools.pipeline.times import Schedule, stage_times

# schedule, p, m, v, fraction of total, ratio to ideal (F=1, B=2, W=1)
ACCEPTED = [
    ("gpipe", 2, 8, 1, 0.11111, 0.12500),
    ("1f1b", 2, 8, 1, 0.11111, 0.12500),
    ("1f1b", 4, 4, 1, 0.42857, 0.75000),
    ("1f1b", 4, 16, 1, 0.15789, 0.18750),
    ("1f1b", 8, 32, 1, 0.17949, 0.21875),
    ("1f1b", 8, 64, 1, 0.09859, 0.10938),
    ("1f1b", 64, 512, 1, 0.10957, 0.12305),
    ("interleaved", 4, 8, 2, 0.15789, 0.18750),
    ("interleaved", 8, 64, 3, 0.03518, 0.03646),
    ("interleaved", 35, 280, 3, 0.03890, 0.04048),
    ("zb-h1", 8, 32, 1, 0.06796, 0.07292),
    ("dualpipe", 8, 20, 1, 0.09091, 0.10000),
    ("zb-v", 8, 32, 2, 0.03518, 0.03646),
]

# p, m, slow rank, factor, makespan, mean idle
UNEQUAL = [
    (8, 64, 7, 1.3, 270.60, 0.2639),
    (8, 64, 0, 1.3, 264.30, 0.2463),
    (8, 64, 3, 1.3, 267.00, 0.2539),
    (4, 16, 3, 1.5, 81.00, 0.3333),
    (4, 16, 0, 1.5, 76.50, 0.2941),
    (8, 8, 7, 1.3, 52.20, 0.5230),
]


@each_row(("schedule", "p", "m", "v", "fraction", "ratio"), ACCEPTED)
def test_acceptance_values(
    schedule: str, p: int, m: int, v: int, fraction: float, ratio: float
) -> None:
    bubble = price_plan(plan_of(schedule, p, m, v, 1, 2, 1))
    assert bubble.fraction_of_total == pytest.approx(fraction, abs=1e-5)
    assert bubble.ratio_to_ideal == pytest.approx(ratio, abs=1e-5)
    assert abs(bubble.ratio_to_ideal - wrong_value(p, m)) > 1e-3


def test_zb_v_hides_its_stagger_without_a_barrier() -> None:
    bubble = price_plan(plan_of("zb-v", 8, 32))
    assert bubble.without_barrier == pytest.approx(bubble.ideal)


@each_row(("p", "m", "slow", "factor", "makespan", "idle"), UNEQUAL)
def test_unequal_stages(
    p: int, m: int, slow: int, factor: float, makespan: float, idle: float
) -> None:
    scale = [factor if r == slow else 1.0 for r in range(p)]
    bubble = price_plan(plan_of("1f1b", p, m, stage_scale=scale))
    assert bubble.makespan == pytest.approx(makespan, abs=0.01)
    assert bubble.fraction_of_total == pytest.approx(idle, abs=1e-4)


TIME = st.floats(0.05, 8, allow_nan=False)


@settings(max_examples=120, deadline=None)
@given(
    schedule=st.sampled_from(["gpipe", "1f1b", "interleaved"]),
    p=st.integers(1, 9),
    groups=st.integers(1, 5),
    v=st.integers(1, 4),
    f=TIME,
    b=TIME,
)
def test_equals_closed_form(schedule: str, p: int, groups: int, v: int, f: float, b: float) -> None:
    v = v if schedule == "interleaved" else 1
    plan = plan_of(schedule, p, p * groups, v, f, b, b / 2)
    form = closed_form(plan.schedule, plan.times, plan.microbatches, v)
    assert form is not None
    assert form.exact
    priced = price_plan(plan)
    assert priced.makespan - priced.ideal == pytest.approx(form.idle, abs=1e-8, rel=1e-8)


@settings(max_examples=60, deadline=None)
@given(
    p=st.integers(1, 8),
    groups=st.integers(1, 5),
    w=st.floats(0.1, 2),
    more_f=st.floats(0, 3),
    more_b=st.floats(0, 3),
)
def test_zb_h1_closed_form(p: int, groups: int, w: float, more_f: float, more_b: float) -> None:
    times = stage_times(p, w + more_f, 2 * w + more_b, w)
    form = closed_form(Schedule.ZB_H1, times, p * groups)
    made = simulate(Schedule.ZB_H1, times, p * groups)
    assert form is not None
    gap = made.makespan - made.busy[0] - form.idle
    assert gap == pytest.approx(0, abs=1e-8) if form.exact else gap >= -1e-8


@pytest.mark.parametrize("p", [2, 4, 6, 8])
@pytest.mark.parametrize(("f", "b", "w"), [(1, 2, 1), (2, 3, 1), (1, 3, 2), (3, 7, 3), (2, 5, 2)])
@pytest.mark.parametrize("pair", [1.0, 0.8])
def test_dualpipe_formula_bounds_the_busiest_idle(
    p: int, f: int, b: int, w: int, pair: float
) -> None:
    for m in (2 * p, 4 * p):
        times = stage_times(p, f, b, w)
        made = simulate(Schedule.DUALPIPE, times, m, pair=pair)
        form = closed_form(Schedule.DUALPIPE, times, m, pair=pair)
        assert form is not None
        idle = max(made.makespan - busy for busy in made.busy)
        if w <= b - w == f:
            assert idle == pytest.approx(form.idle)
        elif b - w > f >= w:
            assert idle <= form.idle + 1e-9


STAGE = st.lists(st.floats(0.1, 4), min_size=2, max_size=6)


@settings(max_examples=80, deadline=None)
@given(scale=STAGE, groups=st.integers(1, 4), v=st.integers(1, 3), latency=st.floats(0, 1))
def test_fast_march_equals_general_engine(
    scale: list[float], groups: int, v: int, latency: float
) -> None:
    """The family engine and the dependency-graph engine share no code, so each checks the other."""
    from firstfault_tools.pipeline.orders import Kind

    p, m = len(scale), groups * len(scale)
    for schedule in (Schedule.GPIPE, Schedule.ONE_F_ONE_B, Schedule.INTERLEAVED):
        chunks = v if schedule is Schedule.INTERLEAVED else 1
        times = stage_times(p, 1.0, 2.0, 1.0, scale)
        orders = operation_orders(schedule, p, m, chunks)
        durations = {}
        for stage, rank in enumerate(orders.rank_of):
            durations[Kind.FORWARD, stage] = times.forward[rank] / chunks
            durations[Kind.BACKWARD, stage] = times.backward(rank) / chunks
        slow = _general_timeline(orders, durations, latency, 1.0, False)
        fast = simulate(schedule, times, m, chunks, latency)
        assert fast.makespan == pytest.approx(slow.makespan, rel=1e-9)


@settings(max_examples=60, deadline=None)
@given(scale=STAGE, m=st.integers(1, 20))
def test_gpipe_unequal_is_a_flow_shop(scale: list[float], m: int) -> None:
    """Sum of one forward pass, m-1 times the slowest, and the same for backwards."""
    made = price_plan(plan_of("gpipe", len(scale), m, stage_scale=scale)).makespan
    assert made == pytest.approx(3 * sum(scale) + (m - 1) * 3 * max(scale), rel=1e-9)


@settings(max_examples=60, deadline=None)
@given(scale=STAGE, m=st.integers(1, 20))
def test_1f1b_unequal_stays_below_its_bound(scale: list[float], m: int) -> None:
    made = price_plan(plan_of("1f1b", len(scale), m, stage_scale=scale)).makespan
    assert made <= (3 * sum(scale) + (m - 1) * 3 * max(scale)) * (1 + 1e-9)


@each_row(
    "text", ["(p-1)/(m*p)", "(PP-1)/(micro_batches*PP)", "(PP - 1) / (num_microbatches × PP)"]
)
def test_wrong_formula_is_refused_by_name(text: str) -> None:
    with pytest.raises(InvalidParameter, match=r"\(p-1\)/\(m\*p\) is wrong"):
        name_formula(text)


def test_right_formulas_are_told_apart() -> None:
    assert name_formula("(p-1)/m") == "ratio to ideal"
    assert name_formula("(PP-1)/(micro_batches+PP-1)") == "fraction of total"


def test_claims_are_named() -> None:
    bubble = price_plan(plan_of("1f1b", 8, 32))
    assert check_claim(bubble, 0.21875) == "ratio to ideal"
    assert check_claim(bubble, 0.1795) == "fraction of total"
    assert check_claim(bubble, 0.5) == "neither"
    with pytest.raises(InvalidParameter, match="too low by a factor"):
        check_claim(bubble, 0.02734)


def test_a_schedule_costs_linear_work() -> None:
    """A page that recomputes it asks for 1,024 micro-batches on 64 stages; its speed is a row of `evals.bench`."""
    assert grow_calls(lambda n: lambda: price_plan(plan_of("interleaved", 64, n, 4)), 256) < 6
