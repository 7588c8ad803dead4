"""Result codes of Ascend NPUs: whose they are, and which only tell of waiting."""

from __future__ import annotations

from firstfault_tools.findings import Level
from firstfault_tools.hardware.gpu.ascend import find_in_lines


def number(text: str) -> list[tuple[int, str]]:
    return list(enumerate(text.split("\n"), start=1))


FAULT = """node-1: RuntimeError: npuSynchronizeDevice:NPUStream.cpp:370 NPU function error: aclrtSynchronizeDevice, error code is {code}
node-1: [ERROR] 2024-09-03-16:50:00 (PID:3121, Device:3, RankID:11) ERR00100 PTA call acl api failed
node-0: [ERROR] 2024-09-03-17:20:03 (PID:3005, Device:0, RankID:0) ERR00100 PTA call acl api failed"""


def test_a_core_exception_belongs_to_the_rank_below_it() -> None:
    (found,) = find_in_lines(number(FAULT.format(code="507015")), "a.log")
    assert (found.level, found.rank) == (Level.CAUSE, 11)
    assert "NPU 3 (rank 11) had an exception in an AI Core operator" in found.title


def test_device_codes_blame_the_device() -> None:
    (found,) = find_in_lines(number(FAULT.format(code="507010")), "a.log")
    assert "the device or its firmware" in found.title


def test_waiting_and_unknown_codes_are_no_cause() -> None:
    for code in ("507048", "507046", "107020", "999999"):
        assert find_in_lines(number(FAULT.format(code=code)), "a.log") == ()


def test_unassigned_rank_is_none() -> None:
    text = FAULT.format(code="507014").replace("RankID:11", "RankID:-1")
    (found,) = find_in_lines(number(text), "a.log")
    assert found.rank is None
    assert "NPU 3 " in found.title
