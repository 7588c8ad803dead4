"""A setting that a resumed run changed explains a loss that left its course after it."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace

from tests.rows import each_row

from firstfault_tools.findings import Category, Confidence, Evidence, Finding, Level
from firstfault_tools.metrics.learning.passed_over import find_in_incident


def incident(lines: Sequence[str]) -> SimpleNamespace:
    return SimpleNamespace(
        digests=(SimpleNamespace(file="t.log", kept=tuple(enumerate(lines, start=1))),)
    )


def diverged(line: int) -> Finding:
    return Finding(
        kind="metrics.divergence",
        title="The loss left 1.2 after step 40",
        level=Level.CAUSE,
        category=Category.NUMERICAL,
        confidence=Confidence.LIKELY,
        evidence=(Evidence("t.log", line, "step 40"),),
        rank=None,
    )


@each_row(
    ("line", "words"),
    [
        ("\tper_device_train_batch_size: 2 (from args) != 16 (from trainer_state.json)", "per_device_train_batch_size 2 instead of 16"),
        (" > overriding learning rate value to 0.0006", "learning rate now 0.0006"),
    ],
)  # fmt: skip
def test_the_setting_is_named(line: str, words: str) -> None:
    (found,) = find_in_incident(incident(["Resuming", line, *["step"] * 9]), [diverged(8)])
    assert words in found.title
    assert found.title.endswith("the loss left 1.2 after step 40")


@each_row(
    ("lines", "at"),
    [
        (["\tsave_steps: 10 (from args) != 20 (from trainer_state.json)", "step"], 2),
        (["step", "step", " > overriding learning rate value to 0.0006"], 2),
        ([" > using checkpoint value 0.0003 for learning rate", "step"], 2),
    ],
)
def test_settings_that_explain_nothing(lines: list[str], at: int) -> None:
    assert find_in_incident(incident(lines), [diverged(at)]) == []
    assert (
        find_in_incident(incident([" > overriding learning rate value to 0.0006", "step"]), [])
        == []
    )
