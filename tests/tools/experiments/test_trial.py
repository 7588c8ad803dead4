"""One trial: exit codes as git bisect reads them, figures, limits, nothing through a shell."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from tests.rows import each_row

from firstfault_tools.errors import InvalidParameter
from firstfault_tools.experiments.trial import Criterion, Outcome, fill_command, run_trial

PRINTS = "print('busbw = 17.1 GB/s'); print('done')"


def run(script: str, criterion: Criterion = Criterion(), limit_s: float = 30.0):  # type: ignore[no-untyped-def]  # noqa: B008
    return run_trial([sys.executable, "-c", script], ("x",), limit_s, criterion)


@each_row(
    ("script", "outcome", "reason"),
    [
        ("", Outcome.PASSED, "exit code 0"),
        ("raise SystemExit(3)", Outcome.FAILED, "exit code 3"),
        ("raise SystemExit(125)", Outcome.SKIPPED, "exit code 125"),
        ("raise SystemExit(127)", Outcome.UNUSABLE, "exit code 127"),
        ("import os; os.kill(os.getpid(), 9)", Outcome.FAILED, "ended by SIGKILL"),
    ],
)
def test_exit_codes(script: str, outcome: Outcome, reason: str) -> None:
    trial = run(script)
    assert (trial.outcome, trial.reason) == (outcome, reason)


@each_row(
    ("criterion", "outcome"),
    [
        (Criterion(r"busbw = ([0-9.]+)", fails_below=30), Outcome.FAILED),
        (Criterion(r"busbw = ([0-9.]+)", fails_below=10), Outcome.PASSED),
        (Criterion(r"busbw = ([0-9.]+)", fails_above=10), Outcome.FAILED),
        (Criterion(r"algbw = ([0-9.]+)", fails_below=30), Outcome.SKIPPED),
        (Criterion(fails_if="do.e"), Outcome.FAILED),
    ],
)
def test_figures_and_lines(criterion: Criterion, outcome: Outcome) -> None:
    assert run(PRINTS, criterion).outcome is outcome


def test_a_hanging_trial_ends_with_its_children() -> None:
    script = "import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(300)']); time.sleep(300)"
    trial = run(script, limit_s=1.5)
    assert (trial.outcome, trial.reason) == (Outcome.FAILED, "did not end within 1.5 s")


def test_last_words_are_kept_without_secrets() -> None:
    trial = run("raise SystemExit('password=hunter22 CUDA out of memory')")
    assert "CUDA out of memory" in trial.tail[-1]
    assert "hunter22" not in trial.tail[-1]


def test_a_command_that_cannot_start() -> None:
    trial = run_trial(["/no/such/thing"], ("x",), 1.0)
    assert trial.outcome is Outcome.UNUSABLE
    assert trial.reason.startswith("cannot start /no/such/thing")


def test_folder_and_environment(tmp_path: Path) -> None:
    script = "import os; print(os.getcwd(), os.environ['FIRSTFAULT_COMMIT'])"
    trial = run_trial([sys.executable, "-c", script], ("x",), 30.0, environment={"FIRSTFAULT_COMMIT": "abc"}, folder=tmp_path)  # fmt: skip
    assert trial.tail == (f"{tmp_path} abc",)


def test_nothing_goes_through_a_shell() -> None:
    assert fill_command(["echo", "$(touch x); {value}"], {"value": "3"}) == ["echo", "$(touch x); 3"]  # fmt: skip


@each_row(
    "make",
    [
        lambda: fill_command([], {"value": "1"}),
        lambda: fill_command(["train"], {"value": "1"}),
        lambda: Criterion("("),
        lambda: Criterion("no group"),
        lambda: Criterion(fails_below=1.0),
    ],
)
def test_rules(make: object) -> None:
    with pytest.raises(InvalidParameter):
        make()  # type: ignore[operator]
