"""Hosts that swap and processes on one core; hosts with memory to spare and wide masks."""

from __future__ import annotations

from tests.rows import each_row

from firstfault_tools.findings import Complaint
from firstfault_tools.hardware.host.host_pressure import find_in_lines

FREE = """               total        used        free      shared  buff/cache   available
Mem:             503         {used}           1           2           3           {left}
Swap:             63          {swap}           2"""


def number(text: str) -> list[tuple[int, str]]:
    return list(enumerate(text.split("\n"), start=1))


def test_a_full_host_that_swaps() -> None:
    (found,) = find_in_lines(number(FREE.format(used=498, left=1, swap=61)), "a.log")
    assert found.explains(Complaint.SLOW)
    assert "97% of its swap" in found.title


@each_row(("left", "swap"), [(200, 61), (1, 0), (100, 2)])
def test_memory_to_spare_or_no_swap(left: int, swap: int) -> None:
    assert find_in_lines(number(FREE.format(used=300, left=left, swap=swap)), "a.log") == ()


def test_processes_on_one_core() -> None:
    line = "pid {}'s current affinity list: {}"
    (found,) = find_in_lines(number("\n".join(line.format(p, 0) for p in (11, 12, 13))), "a.log")
    assert "3 processes are bound to CPU core 0" in found.title
    wide = "\n".join(line.format(p, "0-31") for p in (11, 12, 13))
    apart = "\n".join(line.format(p, p) for p in (11, 12, 13))
    assert find_in_lines(number(wide), "a.log") == find_in_lines(number(apart), "a.log") == ()


TOP = "%Cpu(s): {us} us, {sy} sy,  0.0 ni, {idle} id, {wa} wa,  0.0 hi,  0.4 si"
NFS = """read:              ops/s            kB/s           kB/op         retrans    avg RTT (ms)    avg exe (ms)  avg queue (ms)
                 940.200       30112.010          32.027        0 (0.0%)         31.220          {exe}          10.701"""


def test_workers_that_each_open_a_pool() -> None:
    text = "num_workers 16\nSLURM_CPUS_ON_NODE=28 OMP_NUM_THREADS=<unset>\n" + "\n".join(
        f"loader worker {n} started, torch.get_num_threads()=28" for n in (0, 1)
    )
    (found,) = find_in_lines(number(text), "a.log")
    assert "each of 16 loader workers" in found.title
    assert "448 threads" in found.title
    one = text.replace("threads()=28", "threads()=1")
    assert find_in_lines(number(one), "a.log") == ()


def test_cpus_without_idle_time_and_cpus_that_wait() -> None:
    head = "top - 14:31:20 up 41 days,  load average: 211.60, 208.11, 190.45\n"
    (found,) = find_in_lines(number(head + TOP.format(us=22.1, sy=76.9, idle=0.6, wa=0.0)), "a.log")
    assert "no idle time left" in found.title
    (found,) = find_in_lines(number(TOP.format(us=3.1, sy=2.2, idle=55.1, wa=39.4)), "a.log")
    assert "wait 39.4%" in found.title
    assert find_in_lines(number(TOP.format(us=40.0, sy=2.2, idle=55.1, wa=2.4)), "a.log") == ()


def test_slow_reads_over_nfs() -> None:
    (found,) = find_in_lines(number(NFS.format(exe=42.118)), "a.log")
    assert "42 ms (nfsiostat)" in found.title
    assert find_in_lines(number(NFS.format(exe=0.9)), "a.log") == ()
