"""An error that is logged and passed over explains a flat curve; other errors do not."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace

from tests.rows import each_row

from firstfault_tools.findings import Category, Confidence, Evidence, Finding, Level
from firstfault_tools.metrics.learning.passed_over import find_in_incident


def incident(lines: Sequence[str]) -> SimpleNamespace:
    kept = tuple(enumerate(lines, start=1))
    digest = SimpleNamespace(file="t.log", kept=kept, lines_total=len(kept))
    return SimpleNamespace(digests=(digest,))


def flat(kind: str = "metrics.grad_norm_zero") -> Finding:
    return Finding(
        kind=kind,
        title="The gradient norm is exactly 0 since step 1",
        level=Level.CAUSE,
        category=Category.NUMERICAL,
        confidence=Confidence.CONFIRMED,
        evidence=(Evidence("t.log", 2, "step:1 - actor/grad_norm:0.0"),),
        rank=None,
    )


def between(message: str, times: int = 5) -> list[str]:
    return [line for n in range(times) for line in (message, f"step:{n} - actor/grad_norm:0.0")]


@each_row(
    ("message", "category", "words"),
    [
        ("(RewardWorker pid=7) Error in reward_fn: 'NoneType' object is not iterable", Category.CODE_BUG, "reward or score function"),
        ("compute_score failed: KeyError: 'answer'", Category.CODE_BUG, "reward or score function"),
        ("[rank0] failed to decode sample 81: OSError: cannot identify image file", Category.DATA, "amples fail"),
    ],
)  # fmt: skip
def test_the_error_is_named(message: str, category: Category, words: str) -> None:
    (found,) = find_in_incident(incident(between(message)), [flat()])
    assert found.category is category
    assert words in found.title
    assert "gradient norm is exactly 0" in found.title


def test_ray_counts_what_it_does_not_print() -> None:
    lines = [
        "Error in reward_fn: bad key",
        "step:1 - actor/grad_norm:0.0",
        "Error in reward_fn: bad key [repeated 511x across cluster] (Ray deduplicates logs by default.)",
    ]
    (found,) = find_in_incident(incident(lines), [flat()])
    assert found.facts["times"] == 513


@each_row(
    "lines",
    [
        between("WARNING: 0 errors so far"),
        between("wandb: Network error (ConnectionError), entering retry loop."),
        ["Error in reward_fn: bad key", *(f"step:{n} - actor/grad_norm:0.0" for n in range(9))],
        ["error: bad key"] * 3 + [f"step:{n} - actor/grad_norm:0.0" for n in range(9)],
    ],
)
def test_lookalikes(lines: list[str]) -> None:
    assert find_in_incident(incident(lines), [flat()]) == []


def test_a_run_that_learns_is_left_alone() -> None:
    lines = between("Error in reward_fn: bad key")
    assert find_in_incident(incident(lines), [flat("metrics.epoch_stairs")]) == []
