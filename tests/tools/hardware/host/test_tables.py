"""Tables of everyday tools: headings, rulers, wrapped names, prefixes of hosts, units; and full file systems in them."""

from __future__ import annotations

from tests.rows import each_row

from firstfault_tools.hardware.excerpt import number_lines
from firstfault_tools.hardware.host import full_mounts
from firstfault_tools.hardware.host.tables import is_heading, read_tables

GIB = 1 << 30
WRAPPED = """Filesystem           1K-blocks      Used Available Use% Mounted on
very-long-server-name.example.com:/export/checkpoints
                     104857600  104857600         0 100% /ckpt
/dev/sda1            104857600   52428800  52428800  50% /"""
PDSH = """$ pdsh -w n[1-3] df -h /local
n1: Filesystem      Size  Used Avail Use% Mounted on
n1: /dev/md0        7.0T  1.9T  5.1T  28% /local
n2: /dev/md0        7.0T  7.0T   64K 100% /local
n3: /dev/md0        7.0T  2.0T  5.0T  29% /local"""
IMAGES = """Filesystem      Size  Used Avail Use% Mounted on
/dev/loop3       64M   64M     0 100% /snap/core20/2318
/dev/sda1       1.1G  1.1G     0 100% /boot/efi
/dev/md0         14T  8.1T  5.7T  59% /scratch"""
SACCT = """JobID           JobName     MaxRSS MaxRSSTask      State
------------ ---------- ---------- ---------- ----------
88              wrap                             FAILED
88.0             python 501219840K          3    FAILED"""
FREE = """$ free -g
               total        used        free      shared  buff/cache   available
Mem:            1007         996           4           2           6           3
Swap:              0           0           0"""
LIMIT = """n1$ cat /sys/fs/cgroup/memory.max
549755813888"""


def test_a_name_that_pushed_its_row_to_the_next_line() -> None:
    first, second = read_tables(number_lines(WRAPPED), "x.txt", "file_systems")
    assert (first["mount"], first.amount("share"), first.amount("size")) == (
        "/ckpt",
        100,
        100 * GIB,
    )
    assert second["mount"] == "/"


@each_row(
    ("text", "full"),
    [
        (WRAPPED, [(None, "/ckpt")]),
        (PDSH, [("n2", "/local")]),
        (IMAGES, []),
        (WRAPPED.replace("100%", "60%"), []),
    ],
)
def test_full_file_systems(text: str, full: list[tuple[str | None, str]]) -> None:
    found = full_mounts.find_in_lines(number_lines(text), "x.txt")
    assert [(f.host, f.facts["path"]) for f in found] == full


def test_empty_cells_are_told_by_the_ruler() -> None:
    (step,) = read_tables(number_lines(SACCT), "x.txt", "job_steps")
    assert (step["step"], step["task"], step.amount("resident")) == ("88.0", "3", 501219840 * 1024)


def test_units_come_from_an_option_and_the_limit_from_the_command() -> None:
    (memory,) = read_tables(number_lines(FREE), "x.txt", "host_memory")
    assert memory.amount("free") == 3 * GIB
    (limit,) = read_tables(number_lines(LIMIT), "x.txt", "cgroup_limit")
    assert (limit.host, limit.amount("limit")) == ("n1", 512 * GIB)


@each_row(
    ("text", "heading"),
    [
        ("Filesystem      Size  Used Avail Use% Mounted on", True),
        ("n1: Filesystem      Size  Used Avail Use% Mounted on", True),
        ("------------ ---------- ----------", True),
        ("|=========================+======================|", True),
        ("  PID USER      PR  NI    VIRT    RES    SHR S  %CPU  %MEM     TIME+ COMMAND", True),
        ("/dev/md0        7.0T  7.0T   64K 100% /local", False),
        ("Mem:            1007         996           4           2           6           3", False),
        ("RuntimeError: NCCL error in: ProcessGroupNCCL.cpp:1", False),
        ("", False),
    ],
)
def test_headings_and_rulers_are_no_rows(text: str, heading: bool) -> None:
    assert is_heading(text) is heading
