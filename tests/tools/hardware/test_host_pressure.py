"""Hosts that swap and processes on one core; hosts with memory to spare and wide masks."""

from __future__ import annotations

import pytest

from firstfault_tools.hardware.host_pressure import find_in_lines

FREE = """               total        used        free      shared  buff/cache   available
Mem:             503         {used}           1           2           3           {left}
Swap:             63          {swap}           2"""


def number(text: str) -> list[tuple[int, str]]:
    return list(enumerate(text.split("\n"), start=1))


def test_a_full_host_that_swaps() -> None:
    (found,) = find_in_lines(number(FREE.format(used=498, left=1, swap=61)), "a.log")
    assert found.facts["explains"] == "slow"
    assert "97% of its swap" in found.title


@pytest.mark.parametrize(("left", "swap"), [(200, 61), (1, 0), (100, 2)])
def test_memory_to_spare_or_no_swap(left: int, swap: int) -> None:
    assert find_in_lines(number(FREE.format(used=300, left=left, swap=swap)), "a.log") == ()


def test_processes_on_one_core() -> None:
    line = "pid {}'s current affinity list: {}"
    (found,) = find_in_lines(number("\n".join(line.format(p, 0) for p in (11, 12, 13))), "a.log")
    assert "3 processes are bound to CPU core 0" in found.title
    wide = "\n".join(line.format(p, "0-31") for p in (11, 12, 13))
    apart = "\n".join(line.format(p, p) for p in (11, 12, 13))
    assert find_in_lines(number(wide), "a.log") == find_in_lines(number(apart), "a.log") == ()
