"""Do lines of one shape whose counter rises evenly count as steps, and waits that count seconds not?"""

from __future__ import annotations

from tests.rows import each_row

from firstfault.workspace import Workspace
from firstfault_tools.causality.progress import count_on


def log(texts: list[str]) -> list[tuple[int, str]]:
    return list(enumerate(texts, start=1))


OWN = [
    [f"[train: 1, {50 * n} / 468] FPS: 10{n}.2 (101.6) , Loss/total: {9 - n}.838" for n in range(1, 7)],
    [f"| Train: {n} [1251/1251 (100%)]  Loss: {6 - n}.797 ({6 - n}.910)  Time: 0.41s" for n in range(5)],
    [f"[ {100 * n}, 0.00001{n}] 0.3{n}50, 0.5{n}00, {8 - n}.08, (1px, 3px, epe) 1.42 it/s" for n in range(1, 9)],
]  # fmt: skip
OTHER = [
    [f"waiting for rank 3 to train: {10 * n} s of 600 s, attempt 1, port 29500" for n in range(1, 7)],
    [f"2026-01-01 10:00:{10 * n} loss server alive 1.0 2.0 3.0" for n in range(1, 6)],
    ["epoch 3 of 5: loss 1.25 1.26 1.27 1.28"] * 6,
    [f"[train: 1, {n}] FPS: 1{n}.2 Loss: {9 - n}.8" for n in (5, 1, 4, 2, 3)],
    OWN[0][:3],
]  # fmt: skip


@each_row("texts", OWN)
def test_own_forms_of_step_lines(texts: list[str]) -> None:
    lines, counters = count_on(log(texts))
    assert list(lines) == list(range(1, len(texts) + 1))
    assert list(counters) == sorted(set(counters))


@each_row("texts", OTHER)
def test_what_is_no_step(texts: list[str]) -> None:
    assert not count_on(log(texts))[0]


def test_a_warning_before_such_steps_is_outlived() -> None:
    text = "\n".join(["UserWarning: Grad strides do not match bucket view strides.", *OWN[0]])
    told = Workspace().diagnose_text("train.log", text.encode()).to_json()
    assert told["verdict"] == "healthy"
