"""Groups of answers that teach nothing, and a loss of zero that is as it should be."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.rows import each_row

from firstfault_tools.findings import Level
from firstfault_tools.log.line import counts_preparation
from firstfault_tools.metrics.learning.equal_rewards import find_in_lines
from firstfault_tools.metrics.log_lines import find_in_lines as find_steps


def number(text: str) -> list[tuple[int, str]]:
    return list(enumerate(text.split("\n"), start=1))


def trl(loss: float, grad: float, spread: float) -> str:
    return "\n".join(
        f"{{'loss': {loss}, 'grad_norm': {grad}, 'learning_rate': 1e-06, 'reward': {0.1 + s / 100:.2f}, "
        f"'reward_std': {spread}, 'kl': 0.0004, 'epoch': {s / 100:.2f}}}"
        for s in range(1, 40)
    )


@each_row(
    "text",
    [
        trl(0.0, 0.2, 0.3),
        trl(0.0, 0.2, 0.0),
        "\n".join(f"step {s} loss 2.{s}" for s in range(40)),
    ],
)
def test_runs_that_have_something_to_learn_from(text: str) -> None:
    assert all(f.level is Level.BENIGN for f in find_in_lines(number(text), "t.log"))


def test_a_reward_that_grows_is_well_whatever_the_loss_does() -> None:
    (found,) = find_in_lines(number(trl(0.4, 0.2, 0.3)), "t.log")
    assert found.kind == "metrics.rl_reward_grows"
    wild = trl(0.4, 0.2, 0.3).replace("'kl': 0.0004", "'kl': 9.1")
    assert find_in_lines(number(wild), "t.log") == ()


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


@each_row("prefix", ["", "train/", "rollout/"])
def test_a_few_rows_with_a_spread_do_not_hide_that_the_others_have_none(prefix: str) -> None:
    rows = "\n".join(
        f"{{'{prefix}grad_norm': {0.05 if s % 13 == 0 else 0.0}, '{prefix}reward': 3.0, "
        f"'{prefix}reward_std': {0.7 if s % 13 == 0 else 0.0}, 'epoch': {s / 100:.2f}}}"
        for s in range(1, 31)
    )
    (found,) = find_in_lines(number(rows), "t.log")
    assert found.kind == "metrics.rl_no_signal"
    assert " of " in found.title


def test_a_reward_of_exactly_zero_with_gradients_of_zero_teaches_nothing() -> None:
    rows = "\n".join(
        f"step:{s} - actor/grad_norm:{0.3 if s < 9 else 0.0} - critic/score/mean:{0.4 if s < 9 else 0.0} - actor/lr:1e-6"
        for s in range(40)
    )
    (found,) = find_in_lines(number(rows), "t.log")
    assert found.kind == "metrics.rl_no_signal"


def test_steps_between_the_bars_of_an_inference_engine() -> None:
    """A bar of prompts is no step; OpenRLHF prints a signed ppo_kl and a loss about zero."""
    assert counts_preparation("Processed prompts: 100%|####| 256/256 [02:17<00:00,  1.78it/s]")
    lines = [
        f"Global step {i}: {{'policy_loss': -0.00183, 'ppo_kl': -0.000126, 'reward': {-0.3 + i / 40:.4f}, 'response_length': 640.1}}"
        for i in range(1, 31)
    ]
    found = find_in_lines(list(enumerate(lines, 1)), "a.log")
    assert "metrics.rl_reward_grows" in {f.kind for f in found}
