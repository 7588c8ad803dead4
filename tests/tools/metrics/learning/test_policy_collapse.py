"""Did the policy of a reinforcement-learning run collapse?"""

from __future__ import annotations

import pytest
from tests.rows import each_row

from firstfault_tools.metrics.learning.policy_collapse import find_in_lines

VERL = (
    "step:{s} - actor/entropy:{e} - actor/grad_norm:{g} - critic/score/mean:{r} - actor/kl_loss:{k}"
)
TRL = "{{'loss': 0.0, 'grad_norm': {g}, 'reward': {r}, 'kl': {k}, 'entropy': {e}, 'step': {s}}}"


def rows(template: str, falls: bool, explodes: bool) -> list[tuple[int, str]]:
    out = []
    for s in range(30):
        late = max(0, s - 17)
        reward = 0.4 + 0.004 * s if not (falls and late) else max(0.0, 0.45 - 0.1 * late)
        grow = 4.0**late if explodes else 1.0
        out.append(template.format(s=s, r=round(reward, 4), g=0.2 * grow, k=0.001 * grow, e=1.1))
    return list(enumerate(out, 1))


@pytest.mark.parametrize("template", [VERL, TRL])
@pytest.mark.parametrize(
    ("falls", "explodes", "collapsed"),
    [(True, True, True), (True, False, False), (False, True, False), (False, False, False)],
)
def test_collapse(template: str, falls: bool, explodes: bool, collapsed: bool) -> None:
    found = list(find_in_lines(rows(template, falls, explodes), "log.txt"))
    assert bool(found) is collapsed
    if collapsed:
        assert "step 18" in found[0].title
        assert "KL" in found[0].title


def test_lines_without_reward_are_passed_over() -> None:
    assert not list(find_in_lines([(n, f"step {n} loss 2.1") for n in range(50)], "log.txt"))


@each_row(("level", "collapsed"), [(0.3, True), (0.5, False)])
def test_an_entropy_that_vanished_explains_a_smaller_fall(level: float, collapsed: bool) -> None:
    text = [
        VERL.format(s=s, e=0.6 * 0.8**s, g=0.2, k=0.001, r=0.5 if s < 25 else level)
        for s in range(40)
    ]
    assert bool(list(find_in_lines(list(enumerate(text, 1)), "log.txt"))) is collapsed
