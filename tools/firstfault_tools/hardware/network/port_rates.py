"""Which network port came up slower than its peers: fewer lanes, a lower rate?

Reads rates that `ibstat`, `ibstatus`, `ethtool`, `mlxlink` and sysfs print, pasted for several ports or
hosts, also squeezed into one line a port. A link is up and shows no error with one lane of four; only the
number beside the others tells it.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Category, Finding, Level
from firstfault_tools.hardware.excerpt import NumberedLine, keep_near, quote_line
from firstfault_tools.hardware.host_name import name_host
from firstfault_tools.hardware.host_sections import Section, split_sections

GATE = ("Rate:", "Gb/sec", "Speed:", "Speed  ", "Width  ", "Width:")
LEAST, SHARE = 3, 0.5
"""Ports to compare, and the share of them that must agree on the usual rate."""
MOST = 65_536

_DEVICE = (
    r"(?:mlx[45]_(?:bond_)?\d{1,2}|ib\d{1,2}|bnxt_re\d{1,2}|irdma\d{1,2}|rocep\w{1,16}|efa_?\d{1,2}|"
    r"rdmap\w{1,16}|hns_\d|(?:en[spox]|eth|bond)\w{1,16})"
)
_NAMED = expression(rf"(?<![\w/-])(?P<device>{_DEVICE})(?![\w-])")
_RATE = expression(
    r"(?i)(?<![\w-])(?:rate|speed)[ \t]{0,30}[:=]\s{0,4}(?P<value>\d{1,6}(?:\.\d)?)(?![\d.])\s?"
    r"(?P<unit>Mb/s|Gb/s(?:ec)?|Gbps|Mbps|G\b)?"
)
_SYSFS = expression(r"(?:^|[\s:])(?P<value>\d{1,4}(?:\.\d)?) Gb/sec \((?P<width>\d{1,2})X")
_WIDTH = expression(r"(?i)(?:\bwidth\s*:\s*|\()(?P<width>\d{1,2})x\b")
_DOWN = expression(r"(?i)\bstate\s*:\s*(?:\d:\s*)?(?:down|init\w*|disabled|polling|port_down)\b")
_LINK_SPEED = expression(r"^\s*Speed\s*:\s*(?P<speed>(?:IB|BaseR)?-?[A-Z]{2,4}\w*)")


@dataclass(frozen=True, slots=True)
class PortRate:
    """Rate of one port as printed, in Gb/s."""

    host: str | None
    device: str
    rate_gbits: float
    place: NumberedLine

    @property
    def label(self) -> str:
        return " ".join(name for name in (self.host, self.device) if name)


@dataclass(frozen=True, slots=True)
class Lanes:
    """Width of one link where it is printed on a line of its own."""

    host: str | None
    device: str
    width: int
    speed: str
    place: NumberedLine


def read_rates(sections: Iterable[Section], host: str | None) -> tuple[list[PortRate], list[Lanes]]:
    """(rates, widths) of all ports. host: that of the file, for lines that name none."""
    rates: list[PortRate] = []
    lanes: list[Lanes] = []
    for section in sections:
        named = _NAMED.search(section.command)
        device = named["device"] if named else ""
        where = section.host or host
        speed, down = "", False
        for number, line in section.lines:
            if len(line) > 500 or len(rates) >= MOST:
                continue
            own = _NAMED.search(line)
            if own:
                device, down = own["device"], False
            down = down or _DOWN.search(line) is not None
            if down:
                continue
            if kind := _LINK_SPEED.match(line):
                speed = kind["speed"]
            rate, unit = _read_rate(line)
            # ethtool's line alone names no interface, the host before it does
            if rate is not None and (device or (unit == "mb/s" and section.host)):
                rates.append(PortRate(where, device, rate, (number, line)))
            width = _read_width(line)
            if device and width is not None:
                lanes.append(Lanes(where, device, width, speed, (number, line)))
    return rates, lanes


def _read_rate(line: str) -> tuple[float | None, str]:
    """(Gb/s, unit as printed) of a line."""
    told = _SYSFS.search(line) or _RATE.search(line)
    if told is None:
        return None, ""
    unit = (told.groupdict().get("unit") or "").lower()
    value = float(told["value"])
    return (value / 1000 if unit.startswith("m") else value), unit


def _read_width(line: str) -> int | None:
    """Lanes of a link, in a line that is about its width or rate."""
    width = _WIDTH.search(line)
    told = line.lstrip()[:5].lower() == "width" or "Gb/sec" in line
    return int(width["width"]) if width is not None and told else None


def compare_rates(rates: Sequence[PortRate], lanes: Sequence[Lanes], file: str) -> list[Finding]:
    """Ports below the rate that most of their peers have; one finding for each host."""
    found = []
    for group in _group_ports(rates):
        usual, count = Counter(p.rate_gbits for p in group).most_common(1)[0]
        if len(group) < LEAST or count <= SHARE * len(group):
            continue
        slow = _list_slow(group, usual)
        if slow and len(slow) * 3 <= len(group):
            compared = len({p.host for p in group}) > 1
            found.append(_describe(slow, usual, count, lanes, file, compared))
    if found:
        return found
    return [_describe_lanes(one, file) for one in lanes if one.width == 1 and "IB" in one.speed][:1]


def _group_ports(rates: Sequence[PortRate]) -> Iterable[list[PortRate]]:
    """Ports that should be alike, each as it was first printed.

    One host's Ethernet ports serve different ends; its RDMA ports, and one port on many hosts, do not.
    """
    first: dict[tuple[str | None, str], PortRate] = {}
    for rate in rates:
        first.setdefault((rate.host, rate.device), rate)
    ports = [p for p in first.values() if p.rate_gbits >= 1]
    hosts = {p.host for p in ports}
    groups: dict[str, list[PortRate]] = defaultdict(list)
    for port in ports:
        if re.match(r"(?:mlx|ib|bnxt|irdma|roce|rdmap|efa)", port.device):
            groups["rdma"].append(port)
        elif len(hosts) >= LEAST:
            groups[port.device].append(port)
    return groups.values()


def _list_slow(group: Sequence[PortRate], usual: float) -> list[PortRate]:
    """Ports below the usual rate; those of one name that are so on every host are another network."""
    by_device: dict[str, list[float]] = defaultdict(list)
    for port in group:
        by_device[port.device].append(port.rate_gbits)
    apart = {name for name, own in by_device.items() if len(own) >= 2 and max(own) < usual}
    return [p for p in group if p.rate_gbits < usual and p.device not in apart]


def _describe(
    slow: Sequence[PortRate],
    usual: float,
    count: int,
    lanes: Sequence[Lanes],
    file: str,
    compared: bool,
) -> Finding:
    worst = min(slow, key=lambda p: p.rate_gbits)
    narrow = next((o for o in lanes if o.device == worst.device and o.host == worst.host), None)
    width = f" (link width {narrow.width}X)" if narrow is not None and narrow.width < 4 else ""
    which = ", ".join(dict.fromkeys(p.label for p in slow[:6]))
    hosts = {p.host for p in slow}
    title = (
        f"network port {which} is up at {worst.rate_gbits:g} Gb/s{width}, the other {count} ports at {usual:g} Gb/s: "
        "every collective over this port runs at its pace and all ranks wait for it; reseat or replace its "
        "cable or transceiver and let the link train again"
    )
    places = [p.place for p in slow[:3]] + ([narrow.place] if width and narrow else [])
    host = next(iter(hosts)) if len(hosts) == 1 else None
    return Finding(
        kind="network.port_rate",
        title=title,
        # the other ports of one host alone may serve another network, such as storage
        level=Level.CAUSE if compared or width else Level.CONTEXT,
        category=Category.PERFORMANCE,
        evidence=tuple(quote_line(file, *p, host=host) for p in places),
        host=host,
        facts={
            "explains": {"slow": 0.6},
            "device": worst.device,
            "rate_gbits": worst.rate_gbits,
            "usual_gbits": usual,
            "ports": [p.label for p in slow[:64]],
        },
    )


def _describe_lanes(one: Lanes, file: str) -> Finding:
    return Finding(
        kind="network.port_rate",
        title=f"network port {one.host + ' ' if one.host else ''}{one.device} is up with link width {one.width}X ({one.speed}): one lane of four, a quarter of its rate",
        level=Level.CAUSE,
        category=Category.PERFORMANCE,
        evidence=(quote_line(file, *one.place, host=one.host),),
        host=one.host,
        facts={"device": one.device, "width": one.width},
    )


def find_in_lines(lines: Sequence[NumberedLine], file: str) -> tuple[Finding, ...]:
    """Findings of port rates pasted into any text."""
    near = keep_near(lines, GATE, before=12, after=2)
    if not near:
        return ()
    rates, lanes = read_rates(split_sections(near), name_host(file))
    return tuple(compare_rates(rates, lanes, file))
