"""Learning rates round a resume and in a warm-up without end; values that are no numbers before a step."""

from __future__ import annotations

from tests.rows import each_row

from firstfault_tools.findings import Level
from firstfault_tools.metrics.log_lines import find_in_lines


def kinds(lines: list[str]) -> dict[str, object]:
    return {f.kind: f for f in find_in_lines(list(enumerate(lines, 1)), "train.log")}


def steps(start: int, rates: list[float], loss: float = 2.0) -> list[str]:
    return [
        f"step {start + i} | loss {loss - 0.001 * i:.4f} | lr {r:.3e} | grad_norm 0.{30 + i % 7}"
        for i, r in enumerate(rates)
    ]


FALLING = [3e-4 - 1e-6 * i for i in range(8)]
WARMING = [1e-6 * (i + 1) for i in range(8)]
GOES_ON = [3e-4 - 1e-6 * i for i in range(8, 16)]
RESUMED = "Loaded checkpoint from /ckpt/step_507"


@each_row(
    ("after", "restarted"),
    [(WARMING, True), (GOES_ON, False), ([6e-4 - 1e-6 * i for i in range(8)], True)],
    ids=["warms up again", "goes on", "starts at the top"],
)
def test_rate_after_a_resume(after: list[float], restarted: bool) -> None:
    found = kinds([*steps(500, FALLING), RESUMED, *steps(508, after)])
    assert ("metrics.lr_restart" in found) is restarted


def test_rate_without_a_resume_is_no_restart() -> None:
    found = kinds([*steps(500, FALLING), *steps(508, WARMING)])
    assert "metrics.lr_restart" not in found


def test_repeated_steps_are_compared_at_the_same_step() -> None:
    whole = [1e-6 * 2.2**i for i in range(12)]
    found = kinds([*steps(500, whole), "Resuming from step_504", *steps(504, whole[4:])])
    assert "metrics.lr_restart" not in found


def hf(rate: float, loss: float) -> str:
    return f"{{'loss': {loss}, 'grad_norm': 1.1, 'learning_rate': {rate}, 'epoch': 0.1}}"


def test_warm_up_without_end() -> None:
    flat = [hf(2e-10 * (i + 1), 6.25 + 0.01 * (i % 3)) for i in range(20)]
    found = kinds(flat)
    assert found["metrics.warm_up_endless"].level is Level.CONTEXT  # type: ignore[attr-defined]
    assert "metrics.warm_up_endless" not in kinds(
        [hf(2e-10 * (i + 1), 6.25 - 0.05 * i) for i in range(20)]
    )
    assert "metrics.warm_up_endless" not in kinds(
        [hf(2e-6 * (i + 1), 6.25 + 0.01 * (i % 3)) for i in range(20)]
    )


OVERFLOWS = [
    f"[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: {2**k}, reducing to {2 ** (k - 1)}"
    for k in range(12, 0, -1)
]


def test_nan_before_the_first_step_is_behind_the_scale() -> None:
    found = kinds(["eval mean score : nan, acc : 0.0", *OVERFLOWS])
    assert "already before the first step" in found["metrics.loss_scale_collapse"].title  # type: ignore[attr-defined]
    plain = kinds([*steps(0, FALLING), *OVERFLOWS])
    assert "before the first step" not in plain["metrics.loss_scale_collapse"].title  # type: ignore[attr-defined]
