"""Which events of a management controller are read, in the forms that ipmitool and FreeIPMI print?"""

from __future__ import annotations

import pytest

from firstfault_tools.findings import Level
from firstfault_tools.hardware.host.event_log import find_in_lines

FREEIPMI = """ID   | Date        | Time     | Name             | Type                      | Event
14   | Jun-25-2026 | 13:01:14 | Fan 3            | Fan                       | Transition to OK
15   | Jul-03-2026 | 03:14:08 | PSU 4            | Power Supply              | Power Supply Failure detected
16   | Jul-03-2026 | 03:14:09 | PS Redundancy    | Power Supply              | Redundancy Degraded
17   | Jul-03-2026 | 03:15:09 | PSU 2            | Power Supply              | Power Supply input lost (AC/DC)
{last}
"""


@pytest.mark.parametrize(
    ("last", "level"),
    [
        pytest.param("19   | Jul-03-2026 | 03:15:10 | System Power     | Power Supply              | Power Off/Power Down", Level.CAUSE, id="the machine went off"),
        pytest.param("19   | Jul-03-2026 | 03:15:10 | Fan 3            | Fan                       | Transition to OK", Level.FAILURE, id="two supplies of several"),
    ],
)  # fmt: skip
def test_events_of_freeipmi(last: str, level: Level) -> None:
    lines = list(enumerate(FREEIPMI.format(last=last).splitlines(), 1))
    (found,) = find_in_lines(lines, "ipmi-sel.txt")
    assert found.kind == "hardware.sel_power"
    assert found.level is level
    assert "PSU 4: Power Supply Failure detected at 03:14:08" in found.title
    assert found.evidence[0].line == 3


def test_a_quiet_log_tells_nothing() -> None:
    lines = list(enumerate(FREEIPMI.format(last="").splitlines()[:2], 1))
    assert find_in_lines(lines, "ipmi-sel.txt") == ()
