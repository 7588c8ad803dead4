"""How did one trial end? One run of a user's own command: an argument list, never a shell."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any

from firstfault_tools.dataclass import dataclass
from firstfault_tools.errors import InvalidParameter
from firstfault_tools.log.secrets import redact

TAIL_LINES, TAIL_BYTES, LINE_CHARS = 20, 64 * 1024, 400
FIGURE_BYTES = 4 << 20
"""Bytes at the end of an output in which a figure is looked for."""
UNTESTABLE, NOT_EXECUTABLE, NOT_FOUND = 125, 126, 127
"""Exit codes as `git bisect run` reads them (https://git-scm.com/docs/git-bisect#_bisect_run)."""


class Outcome(StrEnum):
    """passed and failed tell of the fault; skipped: this could not be tried; unusable: nothing can."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"
    UNUSABLE = "unusable"


@dataclass(frozen=True, slots=True)
class Trial:
    """One run. subject: what was tried, as names. figure: what was measured, in the unit it was printed in."""

    subject: tuple[str, ...]
    outcome: Outcome
    exit_code: int | None = None
    elapsed_s: float = 0.0
    reason: str = ""
    tail: tuple[str, ...] = ()
    figure: float | None = None


@dataclass(frozen=True, slots=True)
class Criterion:
    """When a trial failed, besides by its exit code.

    figure: pattern with one group, a number in the output (the last one counts). fails_below, fails_above:
    its limits. fails_if: pattern of a line that shows the fault.
    """

    figure: str = ""
    fails_below: float | None = None
    fails_above: float | None = None
    fails_if: str = ""

    def __post_init__(self) -> None:
        limits = self.fails_below is not None or self.fails_above is not None
        if limits and not self.figure:
            raise InvalidParameter("figure", "is missing; say with --figure what the limit is for")
        for name in ("figure", "fails_if"):
            if text := getattr(self, name):
                groups = _compile(name, text).groups
                if name == "figure" and groups != 1:
                    raise InvalidParameter("figure", "needs one group: the number, as in 'busbw = ([0-9.]+)'")  # fmt: skip


def _compile(name: str, text: str) -> Any:
    import re2

    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(text, options)
    except re2.error as error:
        said = error.args[0] if error.args else error
        said = said.decode("utf-8", "replace") if isinstance(said, bytes) else said
        raise InvalidParameter(name, f"is no pattern: {said}") from error


def fill_command(command: Sequence[str], fields: Mapping[str, str]) -> list[str]:
    """The argument list with `{name}` filled in. Raises InvalidParameter where no field occurs in it."""
    if not command:
        raise InvalidParameter("command", "is empty; give it behind --")
    marks = {f"{{{name}}}": value for name, value in fields.items()}
    if marks and not any(mark in part for part in command for mark in marks):
        raise InvalidParameter(
            "command", f"holds no {' or '.join(marks)}, so no trial would differ"
        )
    filled = []
    for part in command:
        for mark, value in marks.items():
            part = part.replace(mark, value)
        filled.append(part)
    return filled


def run_trial(
    argv: Sequence[str],
    subject: tuple[str, ...],
    limit_s: float,
    criterion: Criterion = Criterion(),  # noqa: B008  (frozen)
    *,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> Trial:
    """Run once. Past the limit it failed, and what it started is ended; its output is kept as its last lines."""
    begun = time.monotonic()
    with tempfile.TemporaryFile() as output:
        try:
            process = subprocess.Popen(
                list(argv),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                cwd=folder,
                env={**os.environ, **environment} if environment else None,
            )
        except (OSError, ValueError) as error:
            said = (isinstance(error, OSError) and error.strerror) or error
            return Trial(subject, Outcome.UNUSABLE, reason=f"cannot start {argv[0]}: {said}")
        code: int | None
        try:
            code = process.wait(timeout=limit_s)
            reason = explain_code(code)
        except subprocess.TimeoutExpired:
            code, reason = None, f"did not end within {limit_s:g} s"
        finally:
            _end(process)
        elapsed = time.monotonic() - begun
        size = output.seek(0, os.SEEK_END)
        output.seek(max(0, size - FIGURE_BYTES))
        text = output.read(FIGURE_BYTES).decode("utf-8", errors="replace")
    return _judge(Trial(subject, _read_code(code), code, elapsed, reason), text, criterion)


def _read_code(code: int | None) -> Outcome:
    if code == 0:
        return Outcome.PASSED
    if code == UNTESTABLE:
        return Outcome.SKIPPED
    return Outcome.UNUSABLE if code in (NOT_EXECUTABLE, NOT_FOUND) else Outcome.FAILED


def _judge(trial: Trial, text: str, criterion: Criterion) -> Trial:
    """The trial with its last lines, and failed where its figure or a line says so."""
    tail = tuple(redact(line[:LINE_CHARS]) for line in text[-TAIL_BYTES:].splitlines()[-TAIL_LINES:])  # fmt: skip
    outcome, reason, figure = trial.outcome, trial.reason, None
    if criterion.figure:
        found = [m[1] for m in _compile("figure", criterion.figure).finditer(text)]
        with contextlib.suppress(ValueError, IndexError):
            figure = float(found[-1].replace(",", ""))
    if outcome is Outcome.PASSED and criterion.figure:
        if figure is None:
            outcome, reason = Outcome.SKIPPED, "ended well and printed no figure"
        elif criterion.fails_below is not None and figure < criterion.fails_below:
            outcome, reason = Outcome.FAILED, f"{figure:g} is below {criterion.fails_below:g}"
        elif criterion.fails_above is not None and figure > criterion.fails_above:
            outcome, reason = Outcome.FAILED, f"{figure:g} is above {criterion.fails_above:g}"
    shows = criterion.fails_if and _compile("fails_if", criterion.fails_if).search(text)
    if outcome is Outcome.PASSED and shows:
        outcome, reason = Outcome.FAILED, "its output shows the fault"
    return Trial(trial.subject, outcome, trial.exit_code, trial.elapsed_s, reason, tail, figure)


def explain_code(code: int) -> str:
    """`exit code 3`, `ended by SIGKILL`."""
    if code < 0:
        with contextlib.suppress(ValueError):
            return f"ended by {signal.Signals(-code).name}"
    return f"exit code {code}"


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the trial's own session, so that no child goes on holding a GPU."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=5)
        os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout=5)
