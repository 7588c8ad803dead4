"""Which command does the user want? Commands are found by file name and imported only when called."""

from __future__ import annotations

import gc
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
from firstfault_tools.kept_forms import keep_forms

_DEFINES = expression(r"^(?:def )?COMMAND\b", re.M)
_SENTENCE = expression(r".+?[.?](?=\s|$)")
_BRACKET = expression(r" \([^)]*\)")
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


GROUPS = (
    ("Diagnose", ("diagnose", "triage", "compare", "watch", "metrics", "probe", "preflight", "restart")),
    ("Ask and calculate", ("ask", "search", "memory", "bubble", "checkpoint", "slowdown", "experiment", "verify-fix")),
    ("Work with incidents", ("chat", "incidents", "postmortem")),
    ("Operate", ("doctor", "model", "worker", "mcp", "eval")),
)  # fmt: skip
MAX_SUMMARY = 62


class CommandFolder(click.Group):
    """Commands are the modules of `firstfault.commands` that define COMMAND."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Commands by what one wants, each with a summary that ends; new ones under `More`."""
        names = self.list_commands(ctx)
        grouped = {name for _, group in GROUPS for name in group}
        more = ("More", tuple(name for name in names if name not in grouped))
        for title, group in (*GROUPS, more):
            found = [(name, self.get_command(ctx, name)) for name in group if name in names]
            rows = [(name, summarise(command)) for name, command in found if command is not None]
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command; where there is none of this name, an error that says which was meant."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            from difflib import get_close_matches

            near = get_close_matches(args[0], self.list_commands(ctx), 3, 0.6)
            if not near:
                raise
            meant = f"{error.message} Did you mean {' or '.join(near)}?"
            raise click.UsageError(meant, ctx) from error

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


def summarise(command: click.Command) -> str:
    """The first sentence of a command's help, cut at a clause or word where it is long."""
    text = " ".join((command.help or "").split("\n\n")[0].replace("\b", " ").split())
    sentence = _SENTENCE.match(text)
    text = (sentence[0] if sentence is not None else text).rstrip(".")
    if len(text) <= MAX_SUMMARY:
        return text
    text = _BRACKET.sub("", text)
    if len(text) <= MAX_SUMMARY:
        return text
    for mark in (": ", "; ", ", ", " and ", " until ", " to "):
        at = text.rfind(mark, 20, MAX_SUMMARY)
        if at > 0:
            return text[:at]
    return text[: text.rfind(" ", 0, MAX_SUMMARY)]


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
    # what is imported stays: looking through it again and again takes a tenth of a short command
    gc.set_threshold(1_000_000)
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
    finally:
        keep_forms()
        # nor is it looked through at the end, twice, before the memory goes back as a whole
        gc.freeze()
