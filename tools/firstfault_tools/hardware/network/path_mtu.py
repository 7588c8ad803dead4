"""Do packets of full size get through: `ping -M do -s`, `ping -s`, `tracepath`?

A large packet that may not be fragmented and never comes back, beside a small one that does, proves an
MTU that is smaller somewhere on the path than on the hosts.
"""

from __future__ import annotations

from collections.abc import Sequence

from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Category, Confidence, Finding, Level
from firstfault_tools.hardware.excerpt import NumberedLine, keep_marked, keep_near, quote_line

GATE = ("packets transmitted",)
MARKERS = ("bytes of data", "packets transmitted", "ping ")
HEADER_BYTES = 28
"""IPv4 and ICMP headers in front of the payload that `ping -s` names."""

SMALL_BYTES = 1500
LIVES_FOR_LINES = 40

_START = expression(
    r"PING (?P<name>\S+) \((?P<address>[^)]+)\)[^\d]*(?P<payload>\d{1,5})\((?P<total>\d{1,6})\) bytes of data"
)
_COMMAND = expression(
    r"\bping\d?\s+(?P<arguments>(?:-\S+\s+|\d+\s+|do\s+|dont\s+)*)(?P<target>[\w.:-]+)"
)
_SIZE = expression(r"-s\s*(?P<size>\d{1,6})")
_RESULT = expression(
    r"(?P<sent>\d+) packets? transmitted, (?P<back>\d+)(?: packets)? received,.*?(?P<loss>\d+(?:\.\d+)?)% packet loss"
)
_REPLY = expression(r"(?P<bytes>\d{2,6}) bytes from (?P<address>[\w.:-]+)")


@dataclass(slots=True)
class Probe:
    """One ping. size: whole packet in bytes; received None until a result is read."""

    target: str
    size: int
    place: NumberedLine
    whole: bool = False
    sent: int = 0
    received: int | None = None
    result: NumberedLine = (0, "")


def read_probes(lines: Sequence[NumberedLine]) -> list[Probe]:
    """Pings with their results, in printed order."""
    probes: list[Probe] = []
    for number, line in lines:
        if len(line) > 400:
            continue
        if started := _START.search(line):
            if probes and probes[-1].received is None and probes[-1].target in started.groups():
                probes[-1].size = int(started["total"])
            else:
                probes.append(Probe(started["address"], int(started["total"]), (number, line)))
        elif result := _RESULT.search(line):
            last = probes[-1] if probes else None
            if last is not None and number - last.place[0] <= LIVES_FOR_LINES:
                last.sent, last.received = int(result["sent"]), int(result["back"])
                last.result = (number, line)
        elif "ping" in line and "statistics" not in line and (command := _COMMAND.search(line)):
            size = _SIZE.search(command["arguments"])
            whole = "-M do" in command["arguments"] or "-M  do" in command["arguments"]
            total = int(size["size"]) + HEADER_BYTES if size else 84
            probes.append(Probe(command["target"], total, (number, line), whole))
        elif probes and probes[-1].received is None and (reply := _REPLY.search(line)):
            came = probes[-1].target == reply["address"].rstrip(":")
            probes[-1].received = 1 if came else None
            probes[-1].result = (number, line)
    return probes


def check_probes(probes: Sequence[Probe], file: str) -> list[Finding]:
    """One finding for each target that small packets reach and full-size ones do not."""
    found = []
    for target in dict.fromkeys(p.target for p in probes):
        own = [p for p in probes if p.target == target and p.received is not None]
        lost = [p for p in own if p.received == 0 and p.sent and p.size > SMALL_BYTES]
        through = [p for p in own if p.received]
        if not lost or not through:
            continue
        least, most = min(lost, key=lambda p: p.size), max(through, key=lambda p: p.size)
        if most.size >= least.size:
            continue
        found.append(
            Finding(
                kind="network.path_mtu",
                title=(
                    f"packets of {least.size} bytes to {target} are lost and those of {most.size} bytes arrive: the MTU "
                    f"on the path (a switch port, VLAN or tunnel) is smaller than that of the hosts, so large messages "
                    f"(jumbo frames) never arrive and collectives hang"
                ),
                level=Level.CAUSE,
                category=Category.COMMUNICATION,
                confidence=Confidence.CONFIRMED,
                evidence=tuple(
                    quote_line(file, *place)
                    for place in dict.fromkeys((least.place, least.result, most.result))
                ),
                facts={"target": target, "lost_bytes": least.size, "passed_bytes": most.size},
            )
        )
    return found


def find_in_lines(lines: Sequence[NumberedLine], file: str) -> tuple[Finding, ...]:
    """Findings of pings pasted into any text."""
    if not keep_marked(lines, GATE):
        return ()
    near = keep_near(lines, MARKERS, before=2, after=LIVES_FOR_LINES)
    return tuple(check_probes(read_probes(near), file))
