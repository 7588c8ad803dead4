"""`firstfault diagnose`: logs and artefacts in, first fault out."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from firstfault.errors import InputUnreadable
from firstfault.workspace import Workspace
from firstfault_tools.findings import Verdict

EXIT_CODES = {Verdict.HEALTHY: 0, Verdict.FAULT: 1, Verdict.WARNING: 1, Verdict.UNKNOWN: 4}
MAX_STDIN = 4 * 1024**3


@click.command(
    "diagnose", epilog="Several files are one incident. '-' or no path reads standard input."
)
@click.argument("paths", nargs=-1, type=click.Path())
@click.option(
    "--question", default="", help="What you want to know; helps where the log is unclear."
)
@click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON object (firstfault.diagnosis/1)."
)
@click.option("--no-llm", is_flag=True, help="Never ask a model, even if one is configured.")
@click.option(
    "--report",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Also write a Markdown report.",
)
def COMMAND(
    paths: tuple[str, ...], question: str, as_json: bool, no_llm: bool, report: Path | None
) -> None:
    """Find the first fault in logs and artefacts of one incident."""
    workspace = Workspace()
    if not paths or paths == ("-",):
        if not paths and sys.stdin.isatty():
            raise click.UsageError("name a log file or folder, or pipe a log in with '-'")
        data = sys.stdin.buffer.read(MAX_STDIN)
        diagnosis = workspace.diagnose_text("stdin", data, question)
    elif "-" in paths:
        raise InputUnreadable(
            "'-' cannot be mixed with files; save the pasted part to a file first"
        )
    else:
        diagnosis = workspace.diagnose_paths([Path(p) for p in paths], question)
    if as_json:
        click.echo(json.dumps(diagnosis.to_json(), ensure_ascii=False, indent=1))
    else:
        from firstfault.ui.terminal import render

        render(diagnosis)
    if report is not None:
        from firstfault.postmortem.summary import write_summary

        write_summary(diagnosis, report)
    sys.exit(EXIT_CODES[diagnosis.verdict])
