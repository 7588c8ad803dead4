"""Which link counts errors: `ethtool -S`, `perfquery`, and a switch's port diagnostics?

A cable or transceiver that is going bad shows as receive and CRC errors long before the link drops;
the packets are sent again, and the bandwidth through that port falls.
"""

from __future__ import annotations

from collections.abc import Sequence

from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Category, Confidence, Evidence, Finding, Level
from firstfault_tools.hardware.excerpt import NumberedLine, keep_marked, keep_near, quote_line
from firstfault_tools.hardware.excerpt import read_lines as read_artefact
from firstfault_tools.hardware.host_sections import attach_sections
from firstfault_tools.registry import Artefact, Reader, Reading

GATE = (
    "NIC statistics:",
    "ethtool -S",
    "CRC errors",
    "CRC error",
    "link flaps",
    "SymbolErrorCounter",
    "rx_crc_errors",
    "port_rcv_errors",
    "symbol_error",
    "link_downed",
)
MARKERS = GATE

_COMMAND = expression(
    r"ethtool\s+(?:-S|--statistics)\s+(?P<device>[\w.@-]{1,40})|perfquery\b.{0,40}?\s-C\s?(?P<adapter>[\w.-]{1,40})"
)
_COUNTER = expression(r"^\s*(?P<name>[A-Za-z][\w.\[\]-]{2,80}):\s?\.*\s*(?P<value>\d{1,19})\s*$")
# "switch-04 port 17: CRC errors 14,302 (rising)", "leaf3 Ethernet1/7: CRC errors: 12"
_SWITCH = expression(
    r"(?P<switch>[A-Za-z][\w.-]{0,60})[ ,:]+(?P<port>(?:port|Port|Ethernet|Eth|swp|xe-|et-|Gi|Te|Hu)\s?[\w/:.-]{0,20}?)\s*:\s*"
    r"(?P<what>CRC errors?|link flaps?|FEC uncorrectable|symbol errors?|input errors?)\s*:?\s*"
    r"(?P<value>[\d,]{1,20})(?P<rest>.{0,40})"
)
# Share of errors that points to the medium; drops and pauses are congestion, told apart on purpose.
_MEDIUM = expression(
    r"(?:^|_)(?:crc_errors?|rx_crc_errors(?:_phy)?|symbol_errors?|rx_symbol_err_phy|fcs_errors?|"
    r"rx_pcs_symbol_err_phy|link_down_events_phy|link_downed|port_rcv_errors|"
    r"local_link_integrity_errors|rx_fcs_errors|link_error_recovery|rx_icrc_encapsulated)$|"
    r"^(?:SymbolErrorCounter|LinkErrorRecoveryCounter|LinkDownedCounter|PortRcvErrors)$"
)
_CONGESTION = expression(
    r"(?:^|_)(?:rx_discards_phy|tx_discards_phy|out_of_buffer|rx_dropped|tx_dropped|rx_missed_errors|"
    r"port_xmit_discards|out_of_sequence|packet_seq_err|local_ack_timeout_err|roce_adp_retrans)$|"
    r"^PortXmitDiscards$"
)


@dataclass(frozen=True, slots=True)
class Counter:
    """One counter above zero on one link."""

    link: str
    name: str
    value: int
    place: NumberedLine
    rising: bool = False


def read_counters(lines: Sequence[NumberedLine]) -> list[Counter]:
    """Error counters above zero, in printed order."""
    found: list[Counter] = []
    device = "a link"
    for number, line in lines:
        if command := _COMMAND.search(line):
            device = command["device"] or command["adapter"]
            continue
        if switch := _SWITCH.search(line):
            value = switch["value"].replace(",", "")
            if value.isdecimal() and int(value):
                link = f"{switch['switch']} {switch['port'].strip()}"
                rising = "rising" in switch["rest"] or "increasing" in switch["rest"]
                name = switch["what"].lower().rstrip("s")
                found.append(Counter(link, name, int(value), (number, line), rising))
            continue
        counter = _COUNTER.match(line)
        if counter and int(counter["value"]):
            name = counter["name"]
            if _MEDIUM.search(name) or _CONGESTION.search(name):
                found.append(Counter(device, name, int(counter["value"]), (number, line)))
    return found


def check_counters(counters: Sequence[Counter], file: str) -> tuple[Finding, ...]:
    """One finding for each link with errors of the medium, one for each with congestion only."""
    by_link: dict[str, list[Counter]] = {}
    for counter in counters:
        by_link.setdefault(counter.link, []).append(counter)
    found = []
    for link, own in by_link.items():
        medium = [c for c in own if not _CONGESTION.search(c.name)]
        shown = ", ".join(
            f"{c.name} {c.value:,}{' and rising' if c.rising else ''}" for c in (medium or own)[:4]
        )
        evidence: tuple[Evidence, ...] = tuple(
            quote_line(file, *c.place) for c in (medium or own)[:4]
        )
        if medium:
            few = max(c.value for c in medium) < 10 and not any(c.rising for c in medium)
            found.append(
                Finding(
                    kind="network.link_errors",
                    title=f"{link}: link errors ({shown}): a bad cable or transceiver damages packets",
                    level=Level.CONTEXT if few else Level.CAUSE,
                    category=Category.HARDWARE,
                    confidence=Confidence.POSSIBLE if few else Confidence.LIKELY,
                    evidence=evidence,
                    facts={"link": link, "counters": {c.name: c.value for c in medium}},
                )
            )
        else:
            found.append(
                Finding(
                    kind="network.congestion",
                    title=f"{link}: {shown}: packets dropped or sent again, congestion or a bad path",
                    level=Level.CONTEXT,
                    category=Category.COMMUNICATION,
                    confidence=Confidence.POSSIBLE,
                    evidence=evidence,
                    facts={"link": link, "counters": {c.name: c.value for c in own}},
                )
            )
    return tuple(found)


def find_in_lines(lines: Sequence[NumberedLine], file: str) -> tuple[Finding, ...]:
    """Findings of link counters pasted into any text."""
    if not keep_marked(lines, MARKERS):
        return ()
    near = keep_near(lines, MARKERS, before=60, after=400)
    return tuple(attach_sections(check_counters(read_counters(near), file), lines))


def recognise_counters(_name: str, head: bytes) -> bool:
    """Saved `ethtool -S` or `perfquery` output."""
    first = head[:4096].lstrip()
    return first.startswith((b"NIC statistics:", b"# Port counters:", b"# Port extended counters:"))


def read_counters_of(artefacts: tuple[Artefact, ...]) -> Reading:
    """Findings of every saved output."""
    found: list[Finding] = []
    for artefact in artefacts:
        lines = read_artefact(artefact)
        found.extend(check_counters(read_counters(lines), artefact.name))
    return Reading(tuple(found))


SIGNS = ("NIC statistics:", "# Port counters:", "# Port extended counters:")

READER = Reader(
    name="link_counters",
    summary="ethtool -S, perfquery, switch diagnostics: links that damage or drop packets",
    recognise=recognise_counters,
    read=read_counters_of,
    # saved output often goes on with a log or another command
    owns=False,
)
