"""Are losses and remedies those of hand arithmetic?"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.rows import each_row

from firstfault_tools.errors import InvalidParameter
from firstfault_tools.pipeline.times import Schedule, stage_times
from firstfault_tools.slowdown.losses import Worker, balance_step, find_losses, find_stage_losses
from firstfault_tools.slowdown.remedies import (
    Circumstances,
    Remedy,
    find_break_even,
    weigh_remedies,
)
from firstfault_tools.slowdown.slowdown_calculator import run_slowdown


def crew(*compute: float, host: str | None = None, step: float | None = None) -> list[Worker]:
    whole = step or max(compute) + 20
    return [Worker(f"rank {k}", host, c, whole - c) for k, c in enumerate(compute)]


def test_one_slow_rank() -> None:
    (loss,) = find_losses(crew(500, 500, 500, 640))
    assert (loss.suspect, loss.step_ms, loss.step_without_ms) == ("rank 3", 660, 520)
    assert loss.share == pytest.approx(140 / 660)


def test_two_slow_ranks_hide_each_other() -> None:
    losses = find_losses(crew(500, 500, 500, 500, 640, 640))
    assert losses[0].suspect == "all 2 slow ranks"
    assert losses[0].step_without_ms == 520


def test_a_slow_host() -> None:
    workers = [*crew(500, 500, 500, 500, step=660), *[Worker(f"rank {k}", "h9", 640, 20) for k in (4, 5)]]  # fmt: skip
    assert find_losses(workers)[0].suspect == "host h9"


def test_healthy_ranks_cost_nothing() -> None:
    assert find_losses(crew(500, 505, 498, 502)) == ()
    assert str(run_slowdown(times=[{"compute_ms": 5, "wait_ms": 1}] * 4)["sentence"]).startswith("No rank")  # fmt: skip


def test_a_slow_stage_is_simulated() -> None:
    times = stage_times(4, [10, 10, 13, 10], [20, 20, 26, 20])
    (loss,) = find_stage_losses(Schedule.ONE_F_ONE_B, times, 32)
    # equal stages: (m + p - 1)(F + B) = 35 x 30
    assert loss.step_without_ms == pytest.approx(1050)
    # the slow stage runs all 32 micro-batches, and the others fill and drain it
    assert loss.step_ms == pytest.approx(32 * 39 + 81)


def test_remedies_by_hand() -> None:
    (loss,) = find_losses(crew(500, 500, 500, 640))
    job = Circumstances(gpus=512, hours_left=72, restart_minutes=15, unsaved_minutes=30)
    options = {o.remedy: o for o in weigh_remedies(loss, crew(500, 500, 500, 640), job)}
    assert options[Remedy.BEAR].total == pytest.approx(512 * 72 * (660 / 520 - 1))
    assert options[Remedy.SWAP].total == pytest.approx(512 * 0.75)
    assert options[Remedy.RESTART].total > options[Remedy.BEAR].total
    assert find_break_even(loss, job) == pytest.approx(0.75 / (660 / 520 - 1))


def test_near_the_end_bearing_it_is_cheapest() -> None:
    row = run_slowdown(times=[{"compute_ms": c, "wait_ms": 660 - c} for c in (500, 500, 640)], hours_left=0.5)  # fmt: skip
    assert "bearing it is cheapest" in str(row["sentence"])


@given(st.lists(st.integers(50, 500), min_size=2, max_size=12), st.integers(1, 16))
def test_rebalancing_never_lengthens_the_step(compute: list[int], micro: int) -> None:
    workers = crew(*map(float, compute))
    balanced = balance_step(workers, micro)
    assert balanced <= max(compute) + 20 + 1e-6
    ideal = len(compute) / sum(1 / c for c in compute)
    assert balanced >= ideal - 1e-6


@each_row(
    "given",
    [{}, {"log": "nothing"}, {"times": [{}, {}]}, {"times": [{"compute_ms": 1}]}, {"stage_ms": [1.0]}],
)  # fmt: skip
def test_what_is_missing_is_named(given: dict[str, object]) -> None:
    with pytest.raises(InvalidParameter):
        run_slowdown(**given)  # type: ignore[arg-type]
