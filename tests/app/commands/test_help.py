"""Does the command say what was meant, what cannot be read, and what its commands do, in lines that end?"""

from __future__ import annotations

from pathlib import Path

import click
from click.testing import CliRunner
from tests.rows import each_row

from firstfault.cli import GROUPS, MAX_SUMMARY, root, summarise
from firstfault.commands.diagnose import COMMAND as DIAGNOSE
from firstfault.errors import InputUnreadable


@each_row(("typed", "meant"), [("diagonse", "diagnose"), ("serach", "search"), ("memroy", "memory")])  # fmt: skip
def test_a_misspelt_command_is_guessed(typed: str, meant: str) -> None:
    done = CliRunner().invoke(root, [typed])
    assert done.exit_code == 2
    assert f"Did you mean {meant}" in done.output


def test_what_is_like_no_command_is_not_guessed() -> None:
    assert "Did you mean" not in CliRunner().invoke(root, ["xyzzyq"]).output


def test_every_command_stands_in_one_group_with_a_line_that_ends() -> None:
    context = click.Context(root)
    shown = CliRunner().invoke(root, ["--help"], terminal_width=80).output
    named = [name for _, group in GROUPS for name in group]
    assert len(named) == len(set(named))
    assert set(named) <= set(root.list_commands(context))
    assert "..." not in shown.split("Diagnose:")[1]
    for name in root.list_commands(context):
        command = root.get_command(context, name)
        assert command is not None
        said = summarise(command)
        assert 8 <= len(said) <= MAX_SUMMARY
        assert said in shown


def test_binary_input_is_named_and_ends_with_its_own_code(tmp_path: Path) -> None:
    (tmp_path / "bin.dat").write_bytes(bytes(range(256)) * 20)
    done = CliRunner().invoke(DIAGNOSE, [str(tmp_path / "bin.dat"), "--no-llm"])
    assert isinstance(done.exception, InputUnreadable)
    assert done.exception.exit_code == 3
    assert "bin.dat: not text" in str(done.exception)
