"""Which process ended how: lines of launchers, and whose rank they name."""

from __future__ import annotations

from pathlib import Path

import pytest

from firstfault_tools.log.exits import read_exits
from firstfault_tools.log.scan import build_set, scan_file
from firstfault_tools.log.traceback import read_tracebacks

LINES = [
    ("failed (exitcode: -9) local_rank: 1 (pid: 840) of binary: /usr/bin/python", -9, None, 1, 840),
    ("  traceback : Signal 11 (SIGSEGV) received by PID 840", -11, None, None, 840),
    ("mpirun noticed that process rank 3 with PID 12 on node n1 exited on signal 9 (Killed).", -9, 3, None, 12),
    ("subprocess.CalledProcessError: Command '['python']' died with <Signals.SIGKILL: 9>.", -9, None, None, None),
    ("n1 systemd[1]: train.service: Main process exited, code=killed, status=9/KILL", -9, None, None, None),
    ("-- Process 2 terminated with the following error:", 1, None, 2, None),
    ("torch.multiprocessing.spawn.ProcessExitedException: process 3 terminated with signal SIGSEGV", -11, None, 3, None),
    ("ERROR 2022-11-02 08:42:32 launch_utils.py:604] ABORT!!! Out of all 4 trainers, the trainer process with rank=[2] was aborted. Please check its log.", 1, 2, None, None),
    ("Container rank 5 status failed cmd ['/usr/bin/python', '-u', 'train.py'] code -9 log log/workerlog.5", -9, 5, None, None),
    ("ProcessExitedException: process 1 terminated with exit code 17", 17, None, 1, None),
]  # fmt: skip


@pytest.mark.parametrize(("text", "code", "rank", "local", "pid"), LINES)
def test_line(
    tmp_path: Path, text: str, code: int, rank: int | None, local: int | None, pid: int | None
) -> None:
    path = tmp_path / "log.txt"
    path.write_text(text + "\n", encoding="utf-8")
    (found,) = read_exits(scan_file(path, "log.txt", build_set(())))
    assert (found.code, found.rank, found.local_rank, found.pid) == (code, rank, local, pid)


@pytest.mark.parametrize(
    "text",
    [
        "n1 systemd[1]: train.service: Main process exited, code=exited, status=0/SUCCESS",
        "mpirun: job completed, exit status 0",
        "ABORT!!! Out of all 4 trainers, the trainer process with rank=[0, 1, 2, 3] was aborted. Please check its log.",
        "Container rank 0 status running cmd ['/usr/bin/python'] code None log log/workerlog.0",
    ],
)
def test_a_good_end_is_no_death(tmp_path: Path, text: str) -> None:
    path = tmp_path / "log.txt"
    path.write_text(text + "\n", encoding="utf-8")
    found = read_exits(scan_file(path, "log.txt", build_set(())))
    assert all(e.signal is None for e in found)


def test_an_exception_names_the_rank_that_raised_it(tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    path.write_text(
        "[rank12]: Traceback (most recent call last): (RANK 8)\n"
        '[rank12]:   File "/w/f.py", line 3, in read\n'
        "[rank12]: FileNotFoundError: [Errno 2] No such file or directory: '/a'\n",
        encoding="utf-8",
    )
    (found,) = read_tracebacks(scan_file(path, "log.txt", build_set(())))
    assert (found.told_rank, found.rank, found.ignored) == (8, 8, False)


def test_an_ignored_exception_is_known_as_such(tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    path.write_text(
        "Exception ignored in: <function A.__del__ at 0x7f>\n"
        "Traceback (most recent call last):\n"
        '  File "/w/f.py", line 3, in __del__\n'
        "AttributeError: gone\n",
        encoding="utf-8",
    )
    (found,) = read_tracebacks(scan_file(path, "log.txt", build_set(())))
    assert found.ignored
