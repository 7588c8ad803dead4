"""Are step lines of all trainers read, and nothing else? Formats are data in step_lines.jsonl."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.growth import grow_calls, grow_cpu

from firstfault_tools.metrics.series import MISSING, NO_RANK, NO_STEP
from firstfault_tools.metrics.sources.steps import parse_steps, read_stamp

LINES = [
    json.loads(line)
    for line in (Path(__file__).parent / "step_lines.jsonl").read_text().splitlines()
]


@pytest.mark.parametrize("case", LINES, ids=[c["name"] for c in LINES])
@pytest.mark.parametrize("times", [1, 4, 700])
def test_formats(case: dict[str, Any], times: int) -> None:
    """Once is the token reader, four times the template, 700 times the block reader."""
    series = parse_steps((n + 1, case["line"]) for n in range(times))
    if case.get("none"):
        assert len(series) == 0
        return
    assert len(series) == times
    for row in (0, times - 1):
        assert series.step[row] == (NO_STEP if case["step"] is None else case["step"])
        assert series.rank[row] == case.get("rank", NO_RANK)
        assert series.line[row] == row + 1
        assert series.texts[row] == case["line"]
        for metric, value in case["values"].items():
            seen = series.columns[metric][row]
            if value == "nan":
                assert math.isnan(seen)
            elif value == "inf":
                assert seen == math.inf
            else:
                assert seen == pytest.approx(value)
    for metric in case.get("absent", ()):
        assert metric not in series.columns
    if "unit" in case:
        assert series.step_unit == case["unit"]
    if "total" in case:
        assert series.total_steps == case["total"]


def test_steps_of_a_progress_bar_go_to_the_dict_after_it() -> None:
    lines = []
    for step in range(10, 100, 10):
        lines.append(f" {step:2d}%|███▊      | {step}/100 [01:54<2:04,  4.54s/it]")
        lines.append(f"{{'loss': {1 / step:.4f}, 'learning_rate': 1e-05, 'epoch': {step / 50}}}")
    series = parse_steps(enumerate(lines, 1))
    with_loss = series.rows_with("loss").tolist()
    assert [series.step[row] for row in with_loss] == list(range(10, 100, 10))


def test_a_missing_column_is_not_a_nan() -> None:
    lines = [
        "step 1 loss 2.0 grad_norm 1.0",
        "step 2 loss nan grad_norm 1.0",
        "step 3 grad_norm 1.0",
    ]
    loss = parse_steps(enumerate(lines, 1)).values("loss")
    assert loss[0] == 2.0
    assert math.isnan(loss[1])
    assert loss[2] == MISSING


def test_ranks_come_from_the_caller_first() -> None:
    lines = ["a step 1 loss 2.0", "b step 1 loss 2.0", "[rank5] step 2 loss 2.0"]
    series = parse_steps(enumerate(lines, 1), lambda t: {"a": 3, "b": 4}.get(t[0]))
    assert list(series.rank) == [3, 4, 5]


def test_events_keep_their_place() -> None:
    lines = [
        "step 1 loss 2.0",
        "saving checkpoint at iteration 1000 to /ckpt",
        "step 2 loss 2.0",
        "could not find the metadata file /c/latest.txt, will not load any checkpoints",
    ]
    series = parse_steps(enumerate(lines, 1))
    assert [(e.kind, e.line, e.row) for e in series.events] == [
        ("checkpoint_saved", 2, 1),
        ("checkpoint_not_loaded", 4, 2),
    ]
    assert series.events[0].values["step"] == 1000


def test_stamps() -> None:
    assert read_stamp("2024-07-25 00:00:05") == 1721865605.0
    assert read_stamp("2024-07-25 00:00:05,250") == 1721865605.25
    assert read_stamp("2024-99-25 00:00:05") == MISSING


@settings(max_examples=200, deadline=None)
@given(st.lists(st.text(max_size=120), max_size=30))
def test_any_text_is_survived(lines: list[str]) -> None:
    series = parse_steps(enumerate(lines, 1))
    assert all(len(column) == len(series) for column in series.columns.values())


FRAGMENT = st.sampled_from(
    ["step ", "iteration ", "loss: ", "lr=", " | ", "nan", "1e9999", "-1", "0.5", "99999999999999999999",
     "{'", "': ", ", ", "[", "]", "GiB", "%", "1,234", "epoch ", "it/s", "\t", "12/34 [00:01<", "|█", "\x00"]
)  # fmt: skip


@settings(max_examples=200, deadline=None)
@given(st.lists(st.lists(FRAGMENT, max_size=16).map("".join), max_size=12), st.integers(1, 4))
def test_twisted_step_lines_are_survived(lines: list[str], times: int) -> None:
    series = parse_steps(enumerate(lines * times, 1))
    assert all(len(column) == len(series) for column in series.columns.values())
    assert len(series.step) == len(series.rank) == len(series.time)


def test_a_long_line_and_many_shapes_stay_cheap() -> None:
    def read(count: int) -> Callable[[], object]:
        lines = ["step 1 loss 2.0 " + "x" * 10 * count]
        lines += [f"worker{chr(97 + i % 26) * (i % 40)} step {i} ready" for i in range(count)]
        return lambda: parse_steps(enumerate(lines, 1))

    assert grow_calls(read, 5_000) < 6
    assert grow_cpu(read, 5_000) < 9


def test_table_of_a_notebook() -> None:
    lines = ["Step\tTraining Loss\tValidation Loss"]
    lines += [f"{s}\t{2 - s / 100:.6f}\t{2.1 - s / 200:.6f}" for s in range(10, 60, 10)]
    lines += ["", "TrainOutput(global_step=60)", "10 20 30"]
    series = parse_steps(enumerate(lines, 1))
    assert list(series.step) == [10, 20, 30, 40, 50]
    assert series.values("loss").tolist() == pytest.approx([1.9, 1.8, 1.7, 1.6, 1.5])
    assert series.values("eval_loss")[0] == pytest.approx(2.05)
