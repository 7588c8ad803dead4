"""What did the management controller (BMC) of a host log: power, heat, memory, CPU or bus?

Reads `ipmitool sel list|elist`, FreeIPMI's `ipmi-sel` and `racadm getsel`. Only the last day before the newest entry counts: event logs are seldom
cleared, and what happened months ago explains nothing today.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Category, Confidence, Evidence, Finding, Level
from firstfault_tools.hardware.excerpt import (
    QUOTES_PER_FINDING,
    NumberedLine,
    keep_marked,
    keep_near,
    quote_line,
)
from firstfault_tools.hardware.host_sections import split_sections
from firstfault_tools.kind_pages import page_of_kind

GATE = (
    "| Asserted",
    "| Deasserted",
    "Description:",
    "| Power Supply ",
    "| Critical Interrupt ",
    "| Processor ",
    "| Memory ",
    "| Power Unit ",
)
MARKERS = GATE
RECENT_S = 86_400.0
MOST_WORDS = 5

_ROW = expression(
    r"^\s*[0-9a-fA-F]{1,6}\s*\|\s*(?P<date>[\d/-]{8,10}|[A-Za-z-]+)\s*\|\s*(?P<clock>[\d:]{5,8})(?: [A-Z]{2,5})?\s*\|\s*"
    r"(?P<sensor>[^|]{1,80}?)\s*\|\s*(?P<what>[^|]{1,120}?)\s*(?:\|\s*(?P<state>Asserted|Deasserted)\s*)?(?:\|.*)?$"
)
_FREE_ROW = expression(
    r"^\s*\d{1,6}\s*\|\s*(?P<date>[A-Z][a-z]{2}-\d{2}-\d{4})\s*\|\s*(?P<clock>\d\d:\d\d:\d\d)\s*\|\s*(?P<name>[^|]{1,60}?)\s*\|\s*"
    r"(?P<type>[^|]{1,60}?)\s*\|\s*(?:(?:Critical|Warning|Nominal|N/A)\s*\|\s*)?(?P<what>[^|]{1,160}?)\s*$"
)
"""FreeIPMI: name and type of the sensor, perhaps a state, then the event in words."""


@dataclass(frozen=True, slots=True)
class Event:
    """One row. kind: power, heat, memory, processor, bus; empty where it means nothing here."""

    sensor: str
    what: str
    time: float | None
    clock: str
    place: NumberedLine
    kind: str
    grave: bool


_KINDS: tuple[tuple[str, str, str, bool], ...] = (
    # (kind, sensor, event, stops the machine by itself)
    ("power", r"Power Unit|Pwr_?Unit|PwrUnit", r"Power off/down|Power Off/Power Down|AC lost|Soft-power control failure|Failure detected|240VA", True),
    ("power", r"System Power", r"Power Off", True),
    ("power", r"Power Supply|PSU?\d|PS_", r"Failure detected|AC lost|input lost|input out-of-range|Predictive failure|Config Error", False),
    ("power", r"Power Supply|Power Unit|Redundan", r"Redundancy Lost|Non-[Rr]edundant: ?(?:Insufficient|Sufficient)", False),
    ("power", r"(?i)PWR_?BRAKE|power.?brake", r"Asserted", False),
    ("power", r"Voltage|VRM|VDD|VCORE|12V|P12V|5V", r"(?:Lower|Upper) (?:Critical|Non-recoverable) going|State Asserted|Limit Exceeded", True),
    ("heat", r"Temperature|Temp", r"Upper (?:Critical|Non-recoverable) going high|Limit Exceeded|Thermal Trip", False),
    ("heat", r"Processor", r"Thermal Trip", True),
    ("heat", r"Fan|Cooling", r"Lower (?:Critical|Non-recoverable) going low|Failure|Redundancy Lost|Non-Redundant", False),
    ("memory", r"Memory|DIMM", r"Uncorrectable", True),
    ("processor", r"Processor|CPU|CATERR", r"IERR|CATERR|Machine Check|FRB\d|State Asserted|Uncorrectable", True),
    ("bus", r"Critical Interrupt|PCI|Slot", r"SERR|PERR|Bus Fatal|Bus Uncorrectable|Fatal Error|NMI|Fault Status", True),
)  # fmt: skip
_SUPPLIES = "power supplies failed or lost their input"
"""Of a machine that goes on with the others."""
_TITLES = {
    "power": "power failed",
    "heat": "it overheated or lost cooling",
    "memory": "host memory (RAM) had an uncorrectable ECC error",
    "processor": "a CPU reported an internal error",
    "bus": "a PCIe or system bus reported a fatal error",
}


def read_events(lines: Iterable[NumberedLine]) -> list[Event]:
    """Asserted events, in printed order."""
    events = []
    for number, line in lines:
        if (row := _FREE_ROW.match(line)) is not None:
            sensor, matched = row["name"], f"{row['type']} {row['name']}"
        elif (row := _ROW.match(line)) is not None and row["state"] != "Deasserted":
            sensor = matched = row["sensor"]
        else:
            continue
        kind, grave = _classify(matched, row["what"])
        time = _read_time(row["date"], row["clock"])
        events.append(Event(sensor, row["what"], time, row["clock"], (number, line), kind, grave))
    return events


def _classify(sensor: str, what: str) -> tuple[str, bool]:
    """Kind of trouble and whether it stops the machine by itself; empty where it means nothing here."""
    for name, of, event, stops in _KINDS:
        if re.search(of, sensor) and re.search(event, what):
            return name, stops
    return "", False


_RACADM_TIME = expression(r"^Date/Time:\s+(?P<date>[\d/]+) (?P<clock>[\d:]+)\s*$")
_RACADM_GRAVE = expression(r"^Severity:\s+(?:Critical|Non-Recoverable)\s*$")
_RACADM_WORDS = expression(r"^Description:\s+(?P<words>\S.{3,200})$")
_DESCRIBED: tuple[tuple[str, str, bool], ...] = (
    # (kind, words of the description, stops the machine by itself)
    ("power", r"(?i)power (?:input|supply|supplies).{0,40}(?:lost|failed|failure|absent)", False),
    ("power", r"(?i)redundancy (?:is )?(?:lost|degraded)", False),
    ("power", r"(?i)(?:system board|system) .{0,20}(?:pwr|power) .{0,10}(?:lost|fail|off)", True),
    ("heat", r"(?i)(?:fan|temperature|thermal).{0,60}(?:critical|fail|removed|exceed|shutdown|greater)", False),
    ("memory", r"(?i)(?:multi-bit|uncorrectable|uncorrected) .{0,20}memory|memory .{0,40}uncorrectable", True),
    ("processor", r"(?i)cpu .{0,40}(?:machine check|ierr|internal error)", True),
    ("bus", r"(?i)fatal error .{0,30}(?:bus|slot|pci|component)|bus fatal", True),
)  # fmt: skip


def read_described(lines: Iterable[NumberedLine]) -> list[Event]:
    """Critical records of `racadm getsel`: time, severity and a sentence."""
    events: list[Event] = []
    time, clock, grave_record = None, "", False
    for number, line in lines:
        if stamp := _RACADM_TIME.match(line):
            time, clock = _read_time(stamp["date"], stamp["clock"]), stamp["clock"]
            grave_record = False
        elif _RACADM_GRAVE.match(line):
            grave_record = True
        elif grave_record and (told := _RACADM_WORDS.match(line)):
            for kind, words, stops in _DESCRIBED:
                if re.search(words, told["words"]):
                    what = told["words"].strip().rstrip(".")
                    events.append(Event(what, "Critical", time, clock, (number, line), kind, stops))
                    break
    return events


def _read_time(date: str, clock: str) -> float | None:
    for form in ("%m/%d/%Y", "%m/%d/%y", "%Y-%m-%d", "%d-%m-%Y", "%b-%d-%Y"):
        try:
            day = datetime.strptime(date, form).replace(tzinfo=UTC)
            hour, minute, *second = (int(part) for part in clock.split(":"))
        except ValueError:
            continue
        return day.timestamp() + 3600 * hour + 60 * minute + (second[0] if second else 0)
    return None


def check_events(events: Sequence[Event], file: str, host: str | None) -> list[Finding]:
    """One finding for each kind of trouble, told in the order of its events."""
    newest = max((e.time for e in events if e.time is not None), default=None)
    recent = [
        e
        for e in events
        if e.kind and (newest is None or e.time is None or newest - e.time <= RECENT_S)
    ]
    found = []
    for kind in dict.fromkeys(e.kind for e in recent):
        own = [e for e in recent if e.kind == kind]
        parts = dict.fromkeys(f"{_short(e.sensor)}: {e.what} at {e.clock}" for e in own)
        words = ", ".join(list(parts)[:MOST_WORDS])
        # one supply of several may fail without harm; what stops the machine may not
        grave = any(e.grave for e in own) or len({e.sensor for e in own}) > 2
        evidence: tuple[Evidence, ...] = tuple(
            quote_line(file, *e.place, host=host, time=e.time) for e in own[:QUOTES_PER_FINDING]
        )
        place = f"host {host}: " if host else ""
        what = _TITLES[kind] if kind != "power" or any(e.grave for e in own) else _SUPPLIES
        found.append(
            Finding(
                kind=f"hardware.sel_{kind}",
                title=f"{place}{what}, by its BMC event log ({words})",
                level=Level.CAUSE if grave else Level.FAILURE,
                category=Category.HARDWARE,
                confidence=Confidence.CONFIRMED if grave else Confidence.LIKELY,
                evidence=evidence,
                host=host,
                time=own[0].time,
                page=page_of_kind(f"hardware.sel_{kind}"),
                facts={"events": len(own), "kind": kind},
            )
        )
    return found


def _short(sensor: str) -> str:
    """`PSU3_Status` of `Power Supply PSU3_Status`."""
    words = sensor.split()
    return words[-1] if 2 < len(words) < 5 else sensor


def find_in_lines(lines: Sequence[NumberedLine], file: str) -> tuple[Finding, ...]:
    """Findings of event logs pasted into any text."""
    if not keep_marked(lines, MARKERS):
        return ()
    found: list[Finding] = []
    for section in split_sections(keep_near(lines, MARKERS, before=20, after=2)):
        events = [*read_events(section.lines), *read_described(section.lines)]
        found += check_events(events, file, section.host)
    return tuple(found)
