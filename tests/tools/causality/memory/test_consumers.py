"""Which process and what kind of memory took a host's or cgroup's memory, by listings beside the kill."""

from __future__ import annotations

from pathlib import Path

import pytest

from firstfault.workspace import Workspace

KILL = """step 1180 loss 1.771
E1102 06:40:53.001000 311 torch/distributed/elastic/multiprocessing/api.py:874] failed (exitcode: -9) local_rank: 2 (pid: 415) of binary: /usr/bin/python3
"""
EVENTS = "oom 4\noom_kill {kills}\n"
STAT = "anon {anon}\nfile {file}\nshmem {shmem}\nslab 2147483648\n"
STATUS = "Name:\tpython3\nPid:\t415\nVmRSS:\t 986709112 kB\nRssAnon:\t 985661440 kB\nRssFile:\t 982016 kB\nRssShmem:\t 65656 kB\n"
FREE = "$ free -g\n       total  used  free  shared  buff/cache  available\nMem:    1007   996     4       2          6          {left}\n"
PS = (
    "USER PID %CPU %MEM VSZ RSS TTY STAT START TIME COMMAND\n"
    + "".join(
        f"ml {900 + i} 70.0 5.5 81920000 59768832 ? Sl 01:10 229:40 pt_data_worker {i}\n"
        for i in range(8)
    )
    + "ml 415 99.1 1.1 98304000 11534336 ? Rl 01:05 330:10 python3 -u train.py\n"
)
TOP = (
    "    PID USER      PR  NI    VIRT    RES    SHR S  %CPU  %MEM     TIME+ COMMAND\n"
    "    415 ml        20   0   98.3g  911.0g   1.2g R  99.1  88.1 330:10.11 python3\n"
    "    416 root      20   0   98.3g  11.0g   1.2g R  99.1   1.1 330:10.11 dockerd\n"
)
G = 1 << 30


@pytest.mark.parametrize(
    ("beside", "category", "says"),
    [
        (EVENTS.format(kills=3) + STAT.format(anon=90 * G, file=420 * G, shmem=413 * G), "oom", "413 GiB of it are shared memory"),
        (EVENTS.format(kills=3) + STAT.format(anon=400 * G, file=20 * G, shmem=G), "oom", "400 GiB of it are anonymous memory"),
        (EVENTS.format(kills=0) + STAT.format(anon=40 * G, file=20 * G, shmem=G), None, ""),
        (FREE.format(left=3) + STATUS, "oom", "process 415 (python3) held 941 GiB, 940 GiB of it anonymous"),
        (PS + FREE.format(left=3), "oom", "8 processes pt_data_worker (DataLoader workers) held 456 GiB (57 GiB each)"),
        (PS + FREE.format(left=600), None, ""),
        (TOP, "oom", "process 415 (python3) held 911 GiB, 88% of the host's memory"),
    ],
)  # fmt: skip
def test_who_held_it(tmp_path: Path, beside: str, category: str | None, says: str) -> None:
    (tmp_path / "train.log").write_text(KILL)
    (tmp_path / "state.txt").write_text(beside)
    found = Workspace().diagnose_paths([tmp_path / "train.log", tmp_path / "state.txt"]).to_json()
    assert found["category"] == category, found["root_cause"]
    assert says in found["root_cause"]


@pytest.mark.parametrize(
    ("beside", "begins"),
    [
        (EVENTS.format(kills=3) + STAT.format(anon=90 * G, file=420 * G, shmem=413 * G), "Shared memory fills"),
        (FREE.format(left=3) + STATUS, "Host out of memory"),
        (PS + FREE.format(left=3), "Loader workers hold"),
    ],
)  # fmt: skip
def test_the_fix_is_that_of_the_consumer(tmp_path: Path, beside: str, begins: str) -> None:
    (tmp_path / "train.log").write_text(KILL)
    (tmp_path / "state.txt").write_text(beside)
    found = Workspace().diagnose_paths([tmp_path / "train.log", tmp_path / "state.txt"])
    assert found.fixes[0].text.startswith(begins)
    assert found.fixes[0].shown
