"""At which batch size, number of layers or world size does a user's own command begin to fail?

The command is an argument vector with `{value}` in it. Nothing goes through a shell; each run is shown
before it starts, has a time limit, and is ended with its children when the limit passes.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from firstfault_tools.errors import InvalidParameter
from firstfault_tools.findings import Json

PLACEHOLDER = "{value}"
TAIL_LINES = 20
TAIL_BYTES = 64 * 1024
MAX_TRIALS = 64


class BisectionVerdict(StrEnum):
    """found: the border is known. The others say which end did not behave as told."""

    FOUND = "found"
    GOOD_FAILS = "good_fails"
    BAD_WORKS = "bad_works"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class Trial:
    """One run of the command."""

    value: int
    works: bool
    exit_code: int | None
    elapsed_s: float
    reason: str
    tail: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Bisection:
    """Largest value known to work, smallest known to fail, and every trial in order."""

    verdict: BisectionVerdict
    works: int
    fails: int
    trials: tuple[Trial, ...]

    def as_json(self, what: str) -> Mapping[str, Json]:
        """Object of schema `firstfault.bisection/1`."""
        return {
            "schema": "firstfault.bisection/1",
            "what": what,
            "verdict": self.verdict.value,
            "largest_that_works": self.works,
            "smallest_that_fails": self.fails,
            "trials": [
                {
                    "value": trial.value,
                    "works": trial.works,
                    "exit_code": trial.exit_code,
                    "elapsed_s": round(trial.elapsed_s, 3),
                    "reason": trial.reason,
                    "tail": list(trial.tail),
                }
                for trial in self.trials
            ],
        }


def fill_command(command: Sequence[str], value: int) -> list[str]:
    """The argument vector for one value. Raises InvalidParameter where `{value}` is missing."""
    if not command:
        raise InvalidParameter("command", "is empty; give it behind --")
    if not any(PLACEHOLDER in part for part in command):
        raise InvalidParameter("command", f"holds no {PLACEHOLDER}, so no run would differ")
    return [part.replace(PLACEHOLDER, str(value)) for part in command]


def run_trial(argv: Sequence[str], value: int, limit_s: float) -> Trial:
    """Run once; works means exit code 0 within the limit. Output is kept as its last lines only."""
    begin = time.monotonic()
    with tempfile.TemporaryFile() as output:
        try:
            process = subprocess.Popen(
                list(argv),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            return Trial(value, False, None, 0.0, f"cannot start: {error.strerror}", ())
        code: int | None
        try:
            code = process.wait(timeout=limit_s)
            reason = "exit code 0" if code == 0 else _explain_code(code)
        except subprocess.TimeoutExpired:
            code, reason = None, f"did not end within {limit_s:g} s"
        finally:
            _end(process)
        size = output.seek(0, os.SEEK_END)
        output.seek(max(0, size - TAIL_BYTES))
        text = output.read(TAIL_BYTES).decode("utf-8", errors="replace")
    tail = tuple(line[:400] for line in text.splitlines()[-TAIL_LINES:])
    return Trial(value, code == 0, code, time.monotonic() - begin, reason, tail)


def _explain_code(code: int) -> str:
    if code < 0:
        with contextlib.suppress(ValueError):
            return f"ended by {signal.Signals(-code).name}"
    return f"exit code {code}"


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the run's own session, so that no child goes on holding a GPU."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=5)
        os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout=5)


def bisect_command(
    command: Sequence[str],
    good: int,
    bad: int,
    *,
    step: int = 1,
    limit_s: float = 600.0,
    show: Callable[[Sequence[str]], bool] = lambda _argv: True,
    run: Callable[[Sequence[str], int, float], Trial] = run_trial,
) -> Bisection:
    """Find the border between `good` (works) and `bad` (fails); both ends are tried first.

    `bad` may lie below `good`. step: values are good + k * step, such as the GPUs of one node.
    show: called with each argument vector before it runs; False stops the search.
    Raises InvalidParameter.
    """
    if good == bad:
        raise InvalidParameter("bad", "must differ from good")
    if step < 1 or abs(bad - good) % step:
        raise InvalidParameter("step", "must be positive and divide the distance of good and bad")
    if limit_s <= 0:
        raise InvalidParameter("limit_s", "must be positive")
    fill_command(command, good)
    trials: list[Trial] = []

    def attempt(value: int) -> Trial | None:
        argv = fill_command(command, value)
        if len(trials) >= MAX_TRIALS or not show(argv):
            return None
        trials.append(run(argv, value, limit_s))
        return trials[-1]

    def finish(verdict: BisectionVerdict, works: int, fails: int) -> Bisection:
        return Bisection(verdict, works, fails, tuple(trials))

    for value, wanted, otherwise in (
        (good, True, BisectionVerdict.GOOD_FAILS),
        (bad, False, BisectionVerdict.BAD_WORKS),
    ):
        trial = attempt(value)
        if trial is None:
            return finish(BisectionVerdict.STOPPED, good, bad)
        if trial.works is not wanted:
            return finish(otherwise, good, bad)
    works, fails = good, bad
    direction = step if bad > good else -step
    while abs(fails - works) > step:
        middle = works + direction * (abs(fails - works) // step // 2)
        trial = attempt(middle)
        if trial is None:
            return finish(BisectionVerdict.STOPPED, works, fails)
        if trial.works:
            works = middle
        else:
            fails = middle
    return finish(BisectionVerdict.FOUND, works, fails)
