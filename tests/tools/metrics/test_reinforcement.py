"""Policies that collapse, groups that teach nothing, and curves that are as they should be."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firstfault_tools.findings import Level
from firstfault_tools.metrics.log_lines import find_in_lines as find_steps
from firstfault_tools.metrics.reinforcement import find_in_lines


def number(text: str) -> list[tuple[int, str]]:
    return list(enumerate(text.split("\n"), start=1))


def verl(reward: Callable[[int], float], kl: Callable[[int], float] = lambda s: 0.002) -> str:
    return "\n".join(
        f"(TaskRunner pid=4410) step:{s} - actor/entropy:0.4{s % 10} - actor/kl_loss:{kl(s):.5f} - "
        f"actor/grad_norm:0.11{s % 10} - critic/score/mean:{reward(s):.3f} - response_length/mean:60{s % 10}.0"
        for s in range(1, 45)
    )


def trl(loss: float, grad: float, spread: float) -> str:
    return "\n".join(
        f"{{'loss': {loss}, 'grad_norm': {grad}, 'learning_rate': 1e-06, 'reward': {0.1 + s / 100:.2f}, "
        f"'reward_std': {spread}, 'kl': 0.0004, 'epoch': {s / 100:.2f}}}"
        for s in range(1, 40)
    )


def test_a_reward_that_falls_after_kl_rose() -> None:
    text = verl(lambda s: 0.4 if s < 25 else 0.02, lambda s: 0.002 * 1.4 ** max(0, s - 18))
    (found,) = find_in_lines(number(text), "t.log")
    assert (found.kind, found.level) == ("metrics.rl_collapse", Level.CAUSE)
    assert "KL divergence" in found.title
    assert "step 25" in found.title


def test_a_fall_without_a_sign_is_no_cause() -> None:
    (found,) = find_in_lines(number(verl(lambda s: 0.4 if s < 25 else 0.02)), "t.log")
    assert found.level is Level.FAILURE


@pytest.mark.parametrize(
    "text",
    [
        verl(lambda s: min(0.6, 0.1 + 0.012 * s)),
        verl(lambda s: 0.4 if s % 9 else 0.05),
        verl(lambda s: 0.02),
        verl(lambda s: 0.4 if s < 43 else 0.1),
        trl(0.0, 0.2, 0.3),
        "\n".join(f"step {s} loss 2.{s}" for s in range(40)),
    ],
)
def test_curves_as_they_should_be(text: str) -> None:
    assert find_in_lines(number(text), "t.log") == ()


def test_equal_rewards_teach_nothing() -> None:
    (found,) = find_in_lines(number(trl(0.0, 0.0, 0.0)), "t.log")
    assert found.kind == "metrics.rl_no_signal"


def test_a_loss_of_zero_is_normal_where_groups_are_compared() -> None:
    kinds = {f.kind: f.level for f in find_steps(number(trl(0.0, 0.2, 0.3)), "t.log")}
    assert kinds == {"metrics.rl_loss_zero": Level.BENIGN}


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.builds(
            lambda a, b: f"step:{a} - reward:{b} - kl:{a}e{a} - entropy:{b}",
            st.integers(),
            st.floats(),
        ),
        max_size=30,
    )
)
def test_damage_raises_nothing(lines: list[str]) -> None:
    find_in_lines(number("\n".join(lines)), "x")
