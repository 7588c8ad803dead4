"""`firstfault eval`: run the evals of a checkout and print their table."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import click

from firstfault.errors import UsageError


@click.command("eval", context_settings={"ignore_unknown_options": True})
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def COMMAND(arguments: tuple[str, ...]) -> None:
    """Score the diagnosis on every case; ARGUMENTS go to `python -m evals.run`."""
    root = Path(__file__).parents[3]
    if not (root / "evals" / "run.py").is_file():
        raise UsageError(
            "the evals are part of a checkout, not of the installed package; clone the repository and run `make eval`"
        )
    sys.exit(subprocess.run([sys.executable, "-m", "evals.run", *arguments], cwd=root).returncode)
