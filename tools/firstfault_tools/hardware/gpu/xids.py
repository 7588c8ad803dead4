"""Which GPU reported which Xid, which NVSwitch which SXid, and which of them is the root?"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.facts import known
from firstfault_tools.findings import Category, Confidence, Evidence, Finding, Level
from firstfault_tools.hardware.bus import name_gpu, normalise_address
from firstfault_tools.hardware.excerpt import QUOTES_PER_FINDING, NumberedLine, quote_line
from firstfault_tools.hardware.gpu.xid_catalogue import explain_xid
from firstfault_tools.hardware.host.stamps import read_stamp

MARKERS = ("Xid (", "SXid (", "fallen off the bus", "NVRM: GPU at PCI")

_XID = expression(
    r"NVRM: Xid \((?P<where>(?:PCI:)?[0-9a-fA-F:.]+)\): (?P<code>\d{1,4})\b(?:, )?(?P<detail>.*)"
)
_CAUSED = expression(r"caused by previous Xid (?P<code>\d{1,4})\b")
_PROCESS = expression(
    r"pid='?(?P<pid>\d+|<unknown>)'?(?:, name='?(?P<name>[^,']*)'?)?(?:, )?(?P<rest>.*)"
)
_SXID = expression(
    r"(?P<switch>nvidia-nvswitch\d+): SXid \((?:PCI:)?(?P<where>[0-9a-fA-F:.]+)\): (?P<code>\d{1,6}), "
    r"(?P<fatal>Fatal|Non-fatal), (?P<detail>.*)"
)
_UUID = expression(r"NVRM: GPU at (?P<where>PCI:[0-9a-fA-F:.]+): (?P<uuid>GPU-[0-9a-fA-F-]{8,40})")
_BUS_LOST = expression(
    r"NVRM: (?:GPU|The NVIDIA GPU) (?P<where>[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.\d).*?fallen off the bus"
)
_DEVICE = expression(r"\bGPU(?P<index>\d{1,2})\b")
"""Number of the card in the words of a driver that speaks to its firmware (`GPU3 GSP`)."""

_LINK = expression(r"\blink (?P<link>\d{1,3})\b", re.IGNORECASE)
_RECOVERY = expression(
    r"changed from 0x[0-9a-fA-F]+ \((?P<old>[^)]*)\) to 0x[0-9a-fA-F]+ \((?P<new>[^)]*)\)"
)
_MEMORY = frozenset({48, 63, 64, 94, 95, 140, 171, 172})


@dataclass(frozen=True, slots=True)
class XidLine:
    """One Xid as printed."""

    code: int
    address: str
    pid: int | None
    process: str | None
    detail: str
    evidence: Evidence
    boot_s: float | None

    @property
    def moment(self) -> float | None:
        """Seconds on the line's own clock, for distances within one log only."""
        return self.evidence.time if self.evidence.time is not None else self.boot_s


def read_xid(number: int, line: str, file: str) -> XidLine | None:
    """One Xid line, or None."""
    stamped = read_stamp(line)
    found = _XID.search(stamped.message)
    if found is None:
        return None
    address = normalise_address(found["where"])
    if address is None:
        return None
    pid = process = None
    detail = found["detail"].strip()
    if owner := _PROCESS.match(detail):
        pid = int(owner["pid"]) if owner["pid"].isdecimal() and len(owner["pid"]) < 12 else None
        name = (owner["name"] or "").strip()
        process = name if name and not name.startswith("<unknown") else None
        detail = owner["rest"].strip()
    evidence = quote_line(file, number, line, host=stamped.host, time=stamped.time)
    return XidLine(int(found["code"]), address, pid, process, detail, evidence, stamped.boot_s)


def find_xids(lines: Sequence[NumberedLine], file: str) -> tuple[Finding, ...]:
    """One finding for each GPU and code, in order of first appearance; SXids after their own switch."""
    xids: list[XidLine] = []
    uuids: dict[str, str] = {}
    lost: dict[str, Evidence] = {}
    for number, line in lines:
        if "Xid (" in line and (xid := read_xid(number, line, file)) is not None:
            xids.append(xid)
        elif "NVRM: GPU at PCI" in line and (named := _UUID.search(line)):
            address = normalise_address(named["where"])
            if address:
                uuids[address] = named["uuid"]
        elif "fallen off the bus" in line and (gone := _BUS_LOST.search(line)):
            address = normalise_address(gone["where"])
            if address:
                stamped = read_stamp(line)
                place = quote_line(file, number, line, host=stamped.host, time=stamped.time)
                lost.setdefault(address, place)
    printed = {(x.address, x.code) for x in xids}
    xids = [_name_earlier(x, printed) for x in xids]
    groups: dict[tuple[str | None, str, int], list[XidLine]] = {}
    for xid in xids:
        groups.setdefault((xid.evidence.host, xid.address, xid.code), []).append(xid)
    told = {x.address for x in xids if x.code == 79}
    return (
        *(_describe_group(group, xids, uuids) for group in groups.values()),
        *(_describe_lost(address, place) for address, place in lost.items() if address not in told),
        *_find_sxids(lines, file),
    )


def _name_earlier(xid: XidLine, printed: set[tuple[str, int]]) -> XidLine:
    """The Xid that a clean-up says it follows, where that one's own line was cut off."""
    told = _CAUSED.search(xid.detail)
    if told is None or (xid.address, int(told["code"])) in printed:
        return xid
    return replace(xid, code=int(told["code"]))


def _describe_group(
    group: list[XidLine], everything: list[XidLine], uuids: dict[str, str]
) -> Finding:
    first = group[0]
    meaning = explain_xid(first.code)
    beside = sorted({other.code for other in everything if _is_beside(other, first)})
    level, category = meaning.level, meaning.category
    if meaning.fatal_word:
        level = Level.CAUSE if re.search(r"\bFatal\b", first.detail) else Level.FAILURE
    # A recorded remap, a torn-down channel and a changed recovery action all follow the memory error.
    if first.code in (43, 45, 63, 154) and set(beside) & (_MEMORY - {63}):
        level, category = Level.SYMPTOM, Category.HARDWARE
    where = name_gpu(first.address) or first.address
    alone = len({x.pid for x in group}) if _is_only(group, everything) else 0
    times = f", {len(group)} times" if len(group) > 1 else ""
    title = f"Xid {first.code} ({meaning.name}) on {where}{_say_owner(first)}{times}: {_read(first, meaning.reading, beside, meaning.fatal_word, alone)}"
    facts: dict[str, object] = {
        "xid": first.code,
        "name": meaning.name,
        "pci_address": first.address,
        "count": len(group),
        "do_now": meaning.now,
        "do_then": meaning.then,
        "beside": beside,
        "detail": first.detail[:200],
    }
    named, link = _DEVICE.search(first.detail), _LINK.search(first.detail)
    facts |= known(
        pid=first.pid,
        process=first.process or None,
        since_boot_s=first.boot_s,
        gpu_uuid=uuids.get(first.address),
        gpu_index=int(named["index"]) if named else None,
        link=int(link["link"]) if link else None,
    )
    return Finding(
        kind="hardware.xid",
        title=title,
        level=level,
        category=category,
        confidence=Confidence.CONFIRMED if level is Level.CAUSE else Confidence.LIKELY,
        evidence=tuple(x.evidence for x in group[:QUOTES_PER_FINDING]),
        host=first.evidence.host,
        gpu=where,
        time=first.evidence.time,
        page=meaning.page,
        facts=facts,  # type: ignore[arg-type]
    )


def _is_beside(other: XidLine, first: XidLine) -> bool:
    """Another code of the same GPU at about the same time."""
    same = (other.address, other.evidence.host) == (first.address, first.evidence.host)
    return same and other.code != first.code and _near(other, first)


def _is_only(group: Sequence[XidLine], everything: Sequence[XidLine]) -> bool:
    """No other GPU reports this code."""
    return sum(x.code == group[0].code for x in everything) == len(group)


def _say_owner(xid: XidLine) -> str:
    process = f" in {xid.process}" if xid.process else ""
    return process + (f" (pid {xid.pid})" if xid.pid is not None else "")


def _read(xid: XidLine, reading: str, beside: list[int], fatal: bool, processes: int) -> str:
    if xid.code == 154 and (change := _RECOVERY.search(xid.detail)):
        return f"the driver now asks for {change['new']} (was {change['old']})"
    if (fatal or xid.code == 74) and (link := _LINK.search(xid.detail)):
        said = re.search(r"(?i)\b(?:non-?)?fatal\b", xid.detail)
        state = f"{said[0].lower()} " if said is not None else ""
        return (
            f"{state}error of NVLink link {int(link['link'])} of this GPU (bridge, link or fabric)"
        )
    if xid.code in (48, 94, 95, 171) and set(beside) & {63, 64}:
        remap = (
            "row remapping failed, no spare row was left"
            if 64 in beside
            else "a row waits to be remapped"
        )
        return f"uncorrectable error in the GPU's memory (HBM); {remap} (Xid {64 if 64 in beside else 63} beside it)"
    if xid.code in (13, 31) and {13, 31} & set(beside):
        return "an illegal address in a kernel (13 and 31 together), an application bug first"
    if xid.code in (43, 45) and set(beside) & _MEMORY:
        names = ", ".join(str(code) for code in beside if code in _MEMORY)
        return f"the consequence of Xid {names} on the same GPU"
    if xid.code == 31 and processes > 2:
        return f"in {processes} processes and on no other card: an illegal address in the application, or this card"
    if xid.code == 43:
        return f"{reading}, such as a device-side assert in the program's log"
    return reading


def _near(one: XidLine, other: XidLine, window_s: float = 300.0) -> bool:
    if one.pid is not None and one.pid == other.pid:
        return True
    if one.moment is None or other.moment is None:
        return True
    # Two known processes are two stories, unless they fall at the same moment.
    if one.pid is not None and other.pid is not None:
        window_s = 5.0
    return abs(one.moment - other.moment) <= window_s


def _describe_lost(address: str, place: Evidence) -> Finding:
    meaning = explain_xid(79)
    return Finding(
        kind="hardware.xid",
        title=f"{meaning.name}: {name_gpu(address)} ({meaning.reading})",
        level=meaning.level,
        category=meaning.category,
        confidence=Confidence.CONFIRMED,
        evidence=(place,),
        host=place.host,
        gpu=name_gpu(address),
        time=place.time,
        page=meaning.page,
        facts={"xid": 79, "pci_address": address, "do_now": meaning.now, "do_then": meaning.then},
    )


def _find_sxids(lines: Sequence[NumberedLine], file: str) -> list[Finding]:
    found: dict[tuple[str | None, str, str], Finding] = {}
    counts: dict[tuple[str | None, str, str], int] = {}
    for number, line in lines:
        if "SXid (" not in line:
            continue
        stamped = read_stamp(line)
        event = _SXID.search(stamped.message)
        if event is None:
            continue
        key = (stamped.host, event["switch"], event["code"])
        counts[key] = counts.get(key, 0) + 1
        if key in found:
            continue
        fatal = event["fatal"] == "Fatal"
        link = _LINK.search(event["detail"])
        address = normalise_address(event["where"])
        facts: dict[str, object] = {
            "sxid": int(event["code"]),
            "fatal": fatal,
            "pci_address": address,
            "switch": event["switch"],
            "detail": event["detail"][:200],
        }
        facts |= known(link=int(link["link"]) if link else None)
        found[key] = Finding(
            kind="hardware.sxid",
            title=(
                f"NVSwitch {event['switch'].removeprefix('nvidia-nvswitch')} SXid {event['code']} "
                f"({event['fatal'].lower()}): {event['detail'][:120]}"
            ),
            level=Level.CAUSE if fatal else Level.CONTEXT,
            category=Category.HARDWARE,
            confidence=Confidence.CONFIRMED if fatal else Confidence.POSSIBLE,
            evidence=(quote_line(file, number, line, host=stamped.host, time=stamped.time),),
            host=stamped.host,
            time=stamped.time,
            facts=facts,  # type: ignore[arg-type]
        )
    return [
        replace(finding, facts={**finding.facts, "count": counts[key]})
        for key, finding in found.items()
    ]
