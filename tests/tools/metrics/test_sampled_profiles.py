"""Where the time goes by `py-spy top` and cProfile; rewards below zero; a scale that cannot fall further."""

from __future__ import annotations

from tests.rows import each_row

from firstfault_tools.findings import Level
from firstfault_tools.metrics import log_lines
from firstfault_tools.metrics.learning import policy_collapse
from firstfault_tools.metrics.pace import profile_table

SPY = """Total Samples 2200
GIL: 1.00%, Active: 102.00%, Threads: 3
  %Own   %Total  OwnTime  TotalTime  Function (filename)
 {own:5.2f}%  {own:5.2f}%   17.90s    17.90s   imdecode (dataset/loader.py)
 10.00%  10.00%    2.21s     2.21s   resize (albumentations/functional.py)"""
CALLS = """15180044 function calls (15164020 primitive calls) in 9.575 seconds
   ncalls  tottime  percall  cumtime  percall filename:lineno(function)
      289    {own}    0.015    4.347    0.015 {{method 'cuda' of 'torch._C._TensorBase' objects}}
  1265289    1.193    0.000    1.951    0.000 /usr/lib/python3.6/posixpath.py:75(join)"""
ACTIONS = """|  Action                          |  Mean duration (s)  |  Num calls  |  Total time (s)  |  Percentage %  |
|  Total                           |  -                  |  8112       |  1931.10         |  100.00        |
|  run_training_epoch              |  1921.3000          |  1          |  1921.30         |  99.49         |
|  [_TrainingEpochLoop].train_dataloader_next  |  1.5102 |  1001       |  1511.71         |  78.28         |
|  run_training_batch              |  0.3894             |  1000       |  389.40          |  20.16         |"""
OVERFLOW = "[2021-11-27 00:36:{s}] [INFO] [stage2.py:1628:step] [deepscale] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: {a}, reducing to {b}"


def number(text: str) -> list[tuple[int, str]]:
    return list(enumerate(text.split("\n"), start=1))


@each_row(
    ("text", "words"),
    [
        (SPY.format(own=81.0), "imdecode (dataset/loader.py): decoding"),
        (CALLS.format(own="4.347"), "copies between host and GPU"),
        (ACTIONS, "78 % of the time is train_dataloader_next (1.51 s a call): the input pipeline"),
    ],
)
def test_the_leading_function(text: str, words: str) -> None:
    (found,) = profile_table.find_in_lines(number(text), "a.log")
    assert words in found.title
    assert found.level is Level.CONTEXT


@each_row("text", [SPY.format(own=21.0), CALLS.format(own="1.347")])
def test_no_function_leads(text: str) -> None:
    assert profile_table.find_in_lines(number(text), "a.log") == ()


def rewards(values: list[float], kl: float) -> list[tuple[int, str]]:
    return [
        (
            n,
            f"step {n * 500} reward/mean: {v} policy/sqrt_kl: {0.1 + kl * n * n} losses/total_loss: 0.3",
        )
        for n, v in enumerate(values, start=1)
    ]


SINKS = [-0.02, -0.31, -0.82, -1.41, -1.9, -2.32, -2.88, -3.21, -3.48]


def test_rewards_below_zero_that_sink() -> None:
    (found,) = policy_collapse.find_in_lines(rewards(SINKS, kl=1.0), "a.log")
    assert "the reward fell from -0.02" in found.title
    assert list(policy_collapse.find_in_lines(rewards(SINKS[::-1], kl=1.0), "a.log")) == []
    assert list(policy_collapse.find_in_lines(rewards(SINKS, kl=0.0), "a.log")) == []


def test_a_scale_at_its_floor_is_no_search() -> None:
    def judged(scales: list[tuple[int, int]]) -> set[str]:
        text = "\n".join(
            OVERFLOW.format(s=10 + n, a=a, b=b) + f"\nstep {n} loss 3.1{n}"
            for n, (a, b) in enumerate(scales)
        )
        return {f.kind for f in log_lines.find_in_lines(number(text), "a.log")}

    assert "metrics.loss_scale_collapse" in judged([(1, 1), (1, 1), (1, 1)])
    assert "metrics.loss_scale_collapse" not in judged([(65536, 65536), (65536, 32768)])
