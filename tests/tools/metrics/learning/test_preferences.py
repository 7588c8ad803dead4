"""Preference training: the margin counts, and rewards of zero mean that nothing moves."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.rows import each_row

from firstfault_tools.findings import Level
from firstfault_tools.metrics.learning.preferences import find_in_lines


def row(step: int, loss: float, chosen: float, rejected: float, accuracy: float) -> str:
    return (
        f"{{'loss': {loss:.4f}, 'grad_norm': 2.1, 'learning_rate': 5e-07, 'rewards/chosen': {chosen:.4f}, "
        f"'rewards/rejected': {rejected:.4f}, 'rewards/accuracies': {accuracy:.2f}, 'rewards/margins': "
        f"{chosen - rejected:.4f}, 'epoch': {step / 100}}}"
    )


def number(rows: list[str]) -> list[tuple[int, str]]:
    return list(enumerate(rows, start=1))


@each_row(
    ("rows", "kind", "level"),
    [
        ([row(n, 0.69 - n / 100, -n / 10, -n / 4, 0.5 + n / 100) for n in range(20)], "metrics.preference_margin", Level.BENIGN),
        ([row(n, 0.6931, 0.0, 0.0, 0.0) for n in range(30)], "metrics.preference_still", Level.CAUSE),
    ],
)  # fmt: skip
def test_verdicts(rows: list[str], kind: str, level: Level) -> None:
    (found,) = find_in_lines(number(rows), "t.log")
    assert (found.kind, found.level) == (kind, level)


@each_row(
    "rows",
    [
        [row(n, 0.6931, 0.0, 0.0, 0.0) for n in range(10)],
        [row(n, 0.69 + n / 50, -n / 10, n / 4, 0.2) for n in range(20)],
        [row(n, 0.69 - n / 100, n / 10, -n / 4, 0.8) for n in range(20)],
    ],
)
def test_lookalikes(rows: list[str]) -> None:
    assert find_in_lines(number(rows), "t.log") == ()


@settings(max_examples=60, deadline=None)
@given(st.lists(st.text(alphabet="'rewards/margins': -1.e5,chosen", max_size=80), max_size=30))
def test_damage_raises_nothing(rows: list[str]) -> None:
    find_in_lines(number(rows), "t.log")
