"""Does the kernel's line of the same pid explain the death, and does a listing with room refute the guess of full memory?"""

from __future__ import annotations

from pathlib import Path

import pytest

from firstfault.workspace import Workspace

WORKER = (
    "[rank11]: RuntimeError: DataLoader worker (pid 7712) is killed by signal: Bus error. It is possible that dataloader's "
    "workers are out of shared memory. Please try to raise your shared memory limit.\n"
)
STEPS = "".join(f"2026-02-03 04:0{n}:00 [rank0] INFO step {n * 10} loss 2.{n}\n" for n in range(5))
FAULT = "Feb  3 04:05:01 w03 kernel: LustreError: {pid}:0:(llite_mmap.c:362:ll_fault0()) work: page fault read failed on [0x1:0x2:0x0]: rc = -108\n"
MEMORY = "Feb  3 04:05:01 w03 kernel: Memory failure: 0x5d1a2c: Sending SIGBUS to python:{pid} due to hardware memory corruption\n"
CRASH = "Feb  3 04:05:01 w03 kernel: traps: python[{pid}] trap invalid opcode ip:7f sp:7f error:0 in libdecode.so[7f000+2000]\n"
HEAD = "Filesystem      Size  Used Avail Use% Mounted on\n"


def _judge(tmp_path: Path, beside: str, name: str = "w03-kern.log") -> tuple[str, str, int | None]:
    (tmp_path / "train.log").write_text(STEPS + WORKER, encoding="utf-8")
    (tmp_path / name).write_text(beside, encoding="utf-8")
    found = Workspace().diagnose_paths([tmp_path / "train.log", tmp_path / name])
    return found.signature or "", found.root_cause, found.first_failing_rank


@pytest.mark.parametrize(
    ("line", "kind"),
    [(FAULT, "kernel.file_fault"), (MEMORY, "kernel.memory_failure")],
)
def test_the_kernel_names_the_pid_of_the_worker(tmp_path: Path, line: str, kind: str) -> None:
    told, cause, rank = _judge(tmp_path, line.format(pid=7712))
    assert (told, rank) == (kind, 11)
    assert "worker of the data loader of rank 11" in cause
    assert "too small" not in cause


def test_the_kernel_names_another_process(tmp_path: Path) -> None:
    assert _judge(tmp_path, FAULT.format(pid=991))[0] != "kernel.file_fault"


@pytest.mark.parametrize(
    ("row", "guessed"),
    [
        pytest.param("tmpfs  256G  1.1G  255G   1% /dev/shm\n", False, id="large and empty"),
        pytest.param("shm     64M  4.0K   64M   1% /dev/shm\n", True, id="the default of a container, freed since"),
        pytest.param("tmpfs  256G  240G   16G  94% /dev/shm\n", True, id="filled"),
        pytest.param("/dev/sda2  440G  2.1G  438G   1% /\n", True, id="another file system"),
    ],
)  # fmt: skip
def test_a_listing_with_room_refutes_the_guess(tmp_path: Path, row: str, guessed: bool) -> None:
    _, cause, rank = _judge(tmp_path, HEAD + row, "df.txt")
    assert ("is too small" in cause) is guessed, cause
    assert rank == 11


def test_the_launcher_and_the_kernel_name_one_pid(tmp_path: Path) -> None:
    ended = "E0203 04:05:02.931000 700 torch/distributed/elastic/multiprocessing/api.py:874] failed (exitcode: -4) local_rank: 3 (pid: 7712) of binary: /usr/bin/python\n"
    (tmp_path / "train.log").write_text(STEPS + ended, encoding="utf-8")
    (tmp_path / "dmesg.txt").write_text(CRASH.format(pid=7712), encoding="utf-8")
    found = Workspace().diagnose_paths([tmp_path / "train.log", tmp_path / "dmesg.txt"])
    assert found.signature == "kernel.invalid_opcode"
    assert "libdecode.so" in found.root_cause
