"""Is it told whose the process is that holds memory of a card beside the job, and on which host?"""

from __future__ import annotations

from pathlib import Path

import pytest

from firstfault.workspace import Workspace

WORKSPACE = Workspace()
RAN_OUT = (
    "[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 512.00 MiB. GPU 3 has a total capacity of 79.15 GiB "
    "of which 120.00 MiB is free. Process 99120 has 60.25 GiB memory in use. Including non-PyTorch memory, this process has "
    "18.60 GiB memory in use.\n"
)
BOX = (
    "|    3   N/A  N/A     99120      C   /opt/tgi/bin/text-generation-server         61701MiB |\n"
)
ASKED = "ops@node-07:~$ nvidia-smi\n"
STARTED = (
    "ops@node-07:~$ ps -o user,pid,lstart,cmd -p 99120\nUSER         PID                  STARTED CMD\n"
    "mkoch      99120 Mon Mar  9 11:02:51 2026 text-generation-server\n"
)
LISTINGS = [
    ("box and ps", ASKED + BOX + STARTED,
        "(99120, /opt/tgi/bin/text-generation-server of mkoch)", "node-07"),
    ("ps aux", "USER         PID %CPU %MEM    VSZ   RSS TTY      STAT START   TIME COMMAND\nmkoch      99120  101  3.1 9912 8812 ?        Sl   Mar09 9:12 tgi\n",
        "(99120, mkoch)", None),
    ("query", "99120, python, 61701 MiB\n", "(99120, python)", None),
    ("the number of something else", "uid=99120(ops) gid=100(users)\nJOBID 99120 RUNNING\n", "(99120)", None),
]  # fmt: skip


@pytest.mark.parametrize(
    ("listing", "named", "host"), [x[1:] for x in LISTINGS], ids=[x[0] for x in LISTINGS]
)
def test_program_user_and_host_of_the_other_process(
    tmp_path: Path, listing: str, named: str, host: str | None
) -> None:
    (tmp_path / "train.log").write_text(RAN_OUT, encoding="utf-8")
    (tmp_path / "look.txt").write_text(listing, encoding="utf-8")
    diagnosis = WORKSPACE.diagnose_paths([tmp_path / "train.log", tmp_path / "look.txt"])
    assert f"another process {named} holds 60.25 GiB" in diagnosis.root_cause
    assert diagnosis.host == host
    assert "kill -TERM 99120" in (diagnosis.fixes[0].command or "")


UNTOLD = (
    "[rank6]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.00 GiB. GPU 6 has a total capacity of 79.15 GiB of "
    "which 600.00 MiB is free. Process 4410 has {one} GiB memory in use. Process 4477 has {two} GiB memory in use. Of the "
    "allocated memory 50.10 GiB is allocated by PyTorch, and 2.50 GiB is reserved by PyTorch but unallocated.\n"
)


@pytest.mark.parametrize(
    ("one", "two", "other"),
    [
        pytest.param("24.30", "54.20", "4410", id="only the second can hold what PyTorch does"),
        pytest.param("76.40", "2.10", "", id="the other one holds next to nothing"),
    ],
)
def test_the_own_process_is_the_one_as_large_as_pytorch(
    tmp_path: Path, one: str, two: str, other: str
) -> None:
    (tmp_path / "train.log").write_text(UNTOLD.format(one=one, two=two), encoding="utf-8")
    (tmp_path / "smi.txt").write_text("4410, vllm, 24883 MiB\n", encoding="utf-8")
    cause = WORKSPACE.diagnose_paths([tmp_path / "train.log", tmp_path / "smi.txt"]).root_cause
    assert ("another process" in cause) is bool(other)
    assert f"({other}, vllm)" in cause or not other
