"""Which command does the user want? Commands are found by file name and imported only when called."""

from __future__ import annotations

import io
import logging
import os
import re
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import click

from firstfault import __version__
from firstfault.errors import FirstfaultError
from firstfault.plain_text import show_text
from firstfault_tools.expressions import expression

_DEFINES = expression(r"^(?:def )?COMMAND\b", re.M)
MAX_SAID = 300
HELP = """Find the first fault of a dead, hung, slow or diverging training run.

\b
Examples:
  firstfault diagnose train.log
  kubectl logs job/pretrain | firstfault diagnose -
  firstfault diagnose run/ dmesg.txt fr_rank_* --json
  firstfault chat

Exit codes: 0 nothing wrong, 1 a fault or warning was found, 2 usage,
3 input unreadable, 4 could not analyse.
"""


class CommandFolder(click.Group):
    """Commands are the modules of `firstfault.commands` that define COMMAND."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        folder = Path(__file__).parent / "commands"
        return sorted(
            file.stem.replace("_", "-")
            for file in folder.glob("*.py")
            if not file.stem.startswith("_") and _DEFINES.search(file.read_text(encoding="utf-8"))
        )

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        name = f"firstfault.commands.{cmd_name.replace('-', '_')}"
        if not cmd_name.replace("-", "").isidentifier() or find_spec(name) is None:
            return None
        command: click.Command | None = getattr(import_module(name), "COMMAND", None)
        return command


@click.group(cls=CommandFolder, help=HELP, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="firstfault")
@click.option("--verbose", "-v", is_flag=True, help="Log what happens to stderr.")
def root(verbose: bool) -> None:
    level = logging.INFO if verbose else logging.ERROR
    logging.basicConfig(
        level=level, stream=sys.stderr, format="%(levelname)s %(name)s: %(message)s"
    )


def main() -> None:
    """Entry of the `firstfault` command."""
    for stream in (sys.stdout, sys.stderr):
        # a terminal that cannot show a character gets `?`: the answer matters more than its quotes
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    try:
        root(standalone_mode=False)
    except click.exceptions.Exit as stop:
        sys.exit(stop.exit_code)
    except click.Abort:
        sys.exit(130)
    except click.ClickException as error:
        error.show()
        sys.exit(2)
    except FirstfaultError as error:
        click.echo(f"firstfault: {show_text(str(error))}", err=True)
        sys.exit(error.exit_code)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except (
        Exception
    ) as error:  # the command's border: never a bare traceback, never exit code 0 or 1
        logging.getLogger(__name__).info("command failed", exc_info=True)
        said = show_text(f"{type(error).__name__}: {error}"[:MAX_SAID])
        click.echo(f"firstfault: could not analyse: {said}", err=True)
        click.echo("Run again as `firstfault -v ...` for the details, and report it.", err=True)
        sys.exit(4)
