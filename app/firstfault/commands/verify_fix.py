"""`firstfault verify-fix`: did the fix work? Logs of trials before and after."""

from __future__ import annotations

import json
import os
import sys

import click

from firstfault.commands._following import open_log, read_lines
from firstfault.commands.metrics import read_run
from firstfault.plain_text import say_pattern_error
from firstfault_tools.errors import ToolError


@click.command("verify-fix")
@click.option(
    "--before",
    multiple=True,
    required=True,
    type=click.Path(exists=True, dir_okay=False),
    help="log of a trial without the fix; repeat for each",
)
@click.option(
    "--after",
    multiple=True,
    required=True,
    type=click.Path(exists=True, dir_okay=False),
    help="log of a trial with the fix; repeat for each",
)
@click.option(
    "--problem-if",
    help="pattern of a log line that shows the problem; without it any "
    "alarming metric finding does",
)
@click.option(
    "--tolerance",
    type=float,
    default=0.05,
    show_default=True,
    help="relative change of a metric that is still the same",
)
@click.option("--json", "as_json", is_flag=True, help="one JSON object on standard output")
def verify_fix(
    before: tuple[str, ...],
    after: tuple[str, ...],
    problem_if: str | None,
    tolerance: float,
    as_json: bool,
) -> None:
    """Compare trials before and after: fixed, not_fixed, regression or inconclusive.

    Exit code 0 only when the verdict is fixed.
    """
    from firstfault_tools.metrics.judgement import judge_steps
    from firstfault_tools.metrics.monitor import ALERTING
    from firstfault_tools.metrics.verification import FixVerdict, Trial, trial_of
    from firstfault_tools.metrics.verification import verify_fix as compare

    files = [os.path.realpath(path) for path in (*before, *after)]
    if (twin := next((f for f in files if files.count(f) > 1), None)) is not None:
        raise click.UsageError(f"{twin} is named twice; every trial is a run of its own")
    pattern = None
    if problem_if is not None:
        import re2

        options = re2.Options()
        options.log_errors = False
        try:
            pattern = re2.compile(problem_if, options)
        except re2.error as error:
            raise click.UsageError(f"--problem-if: {say_pattern_error(error)}") from error

    def read_trial(path: str) -> Trial:
        series = read_run(path)
        findings = judge_steps(series, path)
        kinds = [f.kind for f in findings if f.level in ALERTING]
        trial = trial_of(series, findings, kinds)
        if pattern is None:
            return trial
        with open_log(path) as stream:
            return Trial(any(pattern.search(line) for line in read_lines(stream)), trial.metrics)

    try:
        made = compare([read_trial(p) for p in before], [read_trial(p) for p in after], tolerance)
    except ToolError as error:
        raise click.UsageError(str(error)) from error
    if as_json:
        body = {
            "schema": "firstfault.verification/1",
            "verdict": made.verdict.value,
            "reason": made.reason,
            "p_value": made.p_value,
            "changes": [
                {"name": c.name, "before": c.before, "after": c.after, "change": c.change,
                 "worse": c.worse, "better": c.better}
                for c in made.changes
            ],
        }  # fmt: skip
        click.echo(json.dumps(body))
    else:
        click.echo(f"{made.verdict.value}: {made.reason}")
        for change in made.changes:
            mark = "worse" if change.worse else "better" if change.better else "same"
            click.echo(
                f"  {change.name:<16} {change.before:>12.5g} -> {change.after:>12.5g} "
                f"({change.change:+.1%}, {mark})"
            )
    sys.exit(0 if made.verdict is FixVerdict.FIXED else 1)


COMMAND = verify_fix
