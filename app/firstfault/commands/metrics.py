"""`firstfault metrics`: what do the step lines of a run say?"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import click

from firstfault.plain_text import show_line, show_text
from firstfault_tools.errors import ToolError
from firstfault_tools.log.secrets import redact

if TYPE_CHECKING:
    from firstfault_tools.metrics.series import StepSeries


def read_run(path: str) -> StepSeries:
    """Step rows of a log file, or of standard input for '-'. Raises InputUnreadable."""
    from firstfault.commands._following import open_log, read_lines
    from firstfault_tools.metrics.monitor import COLOUR
    from firstfault_tools.metrics.sources.steps import parse_steps

    with open_log(path) as stream:
        return parse_steps(
            (number, COLOUR.sub("", line) if "\x1b" in line else line)
            for number, line in enumerate(read_lines(stream), 1)
        )


def _table(columns: dict[str, Any]) -> list[str]:
    lines = [f"{'metric':<20}{'rows':>8}{'first':>14}{'median':>14}{'last':>14}{'not finite':>12}"]
    for name, values in columns.items():
        cells = "".join(
            f"{values[key]:>14.6g}" if key in values else f"{'-':>14}"
            for key in ("first", "median", "last")
        )
        lines.append(f"{name:<20}{values['count']:>8}{cells}{values['not_finite']:>12}")
    return lines


@click.command("metrics")
@click.argument("path", metavar="FILE|-")
@click.option(
    "--baseline", type=click.Path(exists=True, dir_okay=False), help="log of a healthy run"
)
@click.option(
    "--checklist", metavar="PHASE", help="first_steps, during, before_start or after_a_fix"
)
@click.option("--json", "as_json", is_flag=True, help="one JSON object on standard output")
def metrics(path: str, baseline: str | None, checklist: str | None, as_json: bool) -> None:
    """Read the step lines of a log and judge them.

    Exit codes: 0 nothing wrong, 1 something is wrong, 3 unreadable, 4 no step lines were found.
    """
    from firstfault.commands.watch import finding_object
    from firstfault_tools.metrics.baseline import compare_baseline
    from firstfault_tools.metrics.chart import chart_columns, summarise_columns
    from firstfault_tools.metrics.checklist import run_checklist
    from firstfault_tools.metrics.judgement import judge_steps
    from firstfault_tools.metrics.monitor import ALERTING

    series = read_run(path)
    name = "stdin" if path == "-" else path
    findings = list(judge_steps(series, name))
    if baseline is not None:
        findings += compare_baseline(series, read_run(baseline), name)
    try:
        items = run_checklist(checklist, series, findings) if checklist else []
    except ToolError as error:
        raise click.UsageError(str(error)) from error
    columns: dict[str, Any] = summarise_columns(series)
    if as_json:
        body = {
            "schema": "firstfault.metrics/1",
            "file": name,
            "rows": len(series),
            "columns": columns,
            "findings": [finding_object(finding) for finding in findings],
            "checklist": [
                {"id": c.item.id, "text": c.item.text, "state": c.state.value, "reason": c.reason}
                for c in items
            ],
            "charts": chart_columns(series, 400),
        }
        click.echo(json.dumps(body))
    else:
        if not len(series):
            click.echo(f"{name}: no step lines were found")
        else:
            click.echo(show_text("\n".join(_table(columns))))
        for finding in findings:
            lines = ", ".join(str(e.line) for e in finding.evidence if e.line)
            click.echo(
                show_line(f"{finding.level.value:>8}  {redact(finding.title)}  [line {lines}]")
            )
        for checked in items:
            reason = f" ({checked.reason})" if checked.reason else ""
            click.echo(f"{checked.state.value:>8}  {checked.item.text}{reason}")
    if any(f.level in ALERTING for f in findings):
        sys.exit(1)
    sys.exit(0 if len(series) else 4)


COMMAND = metrics
