"""Weights that came back without their optimizer state, and resumes that went well."""

from __future__ import annotations

from tests.rows import each_row

from firstfault_tools.findings import Category, Level
from firstfault_tools.metrics.judgement import judge_steps
from firstfault_tools.metrics.sources.steps import parse_steps

KIND = "metrics.optimizer_not_restored"
THROWN_OFF = [2.11, 2.5, 3.2, 4.0, 4.7, 5.3, 5.7, 6.0, 5.8, 5.0, 4.1, 3.3, 2.9, 2.6, 2.5, 2.43]
LOAD = "  successfully loaded checkpoint from /ckpt [ t 1/2, p 1/1 ] at iteration 42000"
LEFT_OUT = "  no_load_optim ................................... True"
LOADED = "  no_load_optim ................................... None"


def judge(losses: list[float], *head: str, first: int = 42001) -> list[tuple[Level, str]]:
    lines = [*head, *(f" iteration {first + i} | lm loss: {v:.4E} | grad norm: 1.0" for i, v in enumerate(losses))]  # fmt: skip
    found = judge_steps(
        parse_steps(list(enumerate(lines, 1))), "a.log", lambda number: lines[number - 1]
    )
    assert all(f.category is Category.CHECKPOINT for f in found if f.kind == KIND)
    return [(f.level, f.title) for f in found if f.kind == KIND]


def test_a_loss_that_climbs_after_the_load_names_the_setting() -> None:
    ((level, title),) = judge(THROWN_OFF, LEFT_OUT, LOAD)
    assert level is Level.CAUSE
    assert "`no_load_optim` left the optimizer state out" in title
    assert "2.11 at iteration 42001" in title


def test_without_a_setting_it_is_a_failure() -> None:
    ((level, title),) = judge(THROWN_OFF, LOADED, LOAD)
    assert level is Level.FAILURE
    assert "no_load_optim" not in title


@each_row(
    ("losses", "head", "first"),
    [
        (THROWN_OFF, (LEFT_OUT,), 42001),  # nothing was loaded
        (THROWN_OFF, (LEFT_OUT, LOAD), 1),  # training that begins
        ([2.11, 2.12, 2.1, 2.09] * 5, (LEFT_OUT, LOAD), 42001),  # level
        ([*THROWN_OFF[:12], 2.3, 2.2, 2.1, 2.0], (LEFT_OUT, LOAD), 42001),  # a spike that is over
    ],
)
def test_other_resumes_are_left_alone(losses: list[float], head: tuple[str, ...], first: int) -> None:  # fmt: skip
    assert judge(losses, *head, first=first) == []
