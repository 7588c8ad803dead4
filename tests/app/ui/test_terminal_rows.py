"""Is a long command broken so that a shell reads the same?"""

from __future__ import annotations

import shlex

import pytest
from tests.rows import each_row

from firstfault.ui.terminal_rows import wrap_command

LONG = "ls -t /tmp/ray/session_latest/logs/worker-*.err; grep -n 4711 /tmp/ray/session_latest/logs/raylet.out; dmesg -T | tail"
QUOTED = "srun --overlap --ntasks-per-node=1 bash -c 'hostname; ulimit -l; grep -c \"a b\" /proc/meminfo' | sort | uniq -c"


@pytest.mark.parametrize("command", [LONG, QUOTED])
def test_broken_between_words(command: str) -> None:
    told = wrap_command(command, 76)
    assert told != command
    assert max(len(row) for row in told.split("\n")) <= 76
    assert shlex.split(told.replace("\\\n", "")) == shlex.split(command)
    assert " ".join(told.replace("\\\n", " ").split()) == " ".join(command.split())


@each_row(
    "command",
    ["short -x", f"{LONG}   # then look", f"cat <<EOF {LONG}", f"echo 'open {LONG}", f"{LONG} \\", f"run  {LONG}", "x" * 120],
)  # fmt: skip
def test_left_as_it_is(command: str) -> None:
    assert wrap_command(command, 76) == command
