"""The part that takes most of a step, and steps in which nothing stands out."""

from __future__ import annotations

from tests.rows import each_row

from firstfault_tools.findings import Level
from firstfault_tools.metrics.pace.step_parts import find_in_lines


def number(line: str, count: int = 6) -> list[tuple[int, str]]:
    return [(i, line.format(i=i)) for i in range(1, count + 1)]


@each_row(
    ("line", "words", "page"),
    [
        ("step {i} rollout 231.4 s train 9.8 s", "'rollout' takes 231.4", "rollout-long-tail"),
        ("step {i} | fwd 141 ms | bwd 296 ms | grad allreduce wait 933 ms | total 1402 ms", "67%", "communication-stall"),
        ("iter {i}: data_load 2.10 s forward 0.30 s backward 0.61 s", "data_load", "dataloader-stall"),
    ],
)  # fmt: skip
def test_the_largest_part_is_named(line: str, words: str, page: str) -> None:
    (found,) = find_in_lines(number(line), "a.log")
    assert found.level is Level.CONTEXT
    assert words in found.title
    assert found.page == page


@each_row(
    "line",
    [
        "step {i} loss 2.1 fwd 141 ms bwd 296 ms data 3 ms",
        "step {i} train 9.8 s data 1.2 s",
        "step {i} loss 2.1 time 0.41 s",
        "step {i} data 0.9 s",
    ],
)
def test_computation_and_even_parts_explain_nothing(line: str) -> None:
    assert find_in_lines(number(line), "a.log") == ()


BAR = "{name}: 100%|##########| {n}/{n} [{took}<00:00, 1.3it/s]"


def test_evaluation_that_outlasts_training() -> None:
    lines = [
        BAR.format(name="Epoch 3", n=812, took="10:11"),
        BAR.format(name="Validation", n=50, took="22:40"),
    ]
    (found,) = find_in_lines(list(enumerate(lines, start=1)), "a.log")
    assert found.kind == "metrics.evaluation_part"
    assert "1360 s after every 611 s" in found.title


@each_row(("train", "evaluate"), [("10:11", "01:40"), ("00:11", "00:40")])
def test_short_evaluation_is_no_matter(train: str, evaluate: str) -> None:
    lines = [
        BAR.format(name="Epoch 3", n=812, took=train),
        BAR.format(name="Validation", n=50, took=evaluate),
    ]
    assert find_in_lines(list(enumerate(lines, start=1)), "a.log") == ()


def test_saves_that_say_how_long_they_took() -> None:
    lines = [
        "2025-02-11 10:00:00 step 10 loss 3.10",
        "2025-02-11 10:31:44 Saved checkpoint step_300 in 1303.2 s",
        "2025-02-11 11:00:00 step 301 loss 2.60",
    ]
    (found,) = find_in_lines(list(enumerate(lines, start=1)), "a.log")
    assert found.kind == "metrics.save_part"
    assert "1303 s each time, 36% of the time" in found.title
    quick = [line.replace("1303.2", "3.2") for line in lines]
    assert find_in_lines(list(enumerate(quick, start=1)), "a.log") == ()


def test_data_beside_the_whole_batch_and_lines_that_name_an_epoch_only() -> None:
    (found,) = find_in_lines(
        number("Processing ({i}/90) Data: 2.9s | Batch: 3.2s | Loss: 9.1"), "a"
    )
    assert "'data' takes 2.9 of 3.2 s" in found.title
    (found,) = find_in_lines(number("epoch 1 it {i} wait_data 1.03 s forward+backward 0.01 s"), "a")
    assert found.page == "dataloader-stall"


def test_evaluation_that_says_its_time() -> None:
    log = [
        (1, "[07/21 10:00:00 trainer]: iter: 499 loss 1.2"),
        (2, "[07/21 10:29:00 evaluator]: Total inference time: 0:28:00.1 (0.6 s / iter)"),
        (3, "[07/21 10:31:00 trainer]: iter: 999 loss 1.1"),
        (4, "[07/21 11:00:00 evaluator]: Total inference time: 0:28:10.1 (0.6 s / iter)"),
    ]
    (found,) = find_in_lines(log, "a.log")
    assert "evaluation takes 28 min each time, 94%" in found.title
    short = [(n, t.replace("0:28:", "0:02:")) for n, t in log]
    assert find_in_lines(short, "a.log") == ()


def test_saves_that_say_their_duration() -> None:
    log = [
        (1, "2026-01-01 02:00:00 global_step: 199 loss 1.9"),
        (
            2,
            "2026-01-01 02:00:01 Global Checkpoint Save : Rank: 0 : Iteration: 200 : Save duration: 1561.201s",
        ),
        (3, "2026-01-01 02:26:40 global_step: 200 loss 1.9"),
    ]
    (found,) = find_in_lines(log, "a.log")
    assert "saving a checkpoint takes 1561 s" in found.title
    short = [(n, t.replace("1561.201s", "6.2s")) for n, t in log]
    assert find_in_lines(short, "a.log") == ()


@each_row(
    ("last", "words"), [("59", ", 5% of the time: training"), ("02", "90 s each time: training")]
)
def test_the_share_of_saves_is_of_the_time_that_clocks_tell(last: str, words: str) -> None:
    """Step lines at either end print no clock; saves that would fill more than all time have no share."""
    steps = [f"iteration {i} | loss 2.1" for i in range(60)]
    saves = [f"2026-05-26 19:{m}:10 Saved checkpoint of step 9 in 90 s" for m in ("01", last)]
    lines = ["2026-05-26 19:00:10 start", *steps, *saves, *steps]
    (found,) = find_in_lines(list(enumerate(lines, 1)), "a.log")
    assert words in found.title
