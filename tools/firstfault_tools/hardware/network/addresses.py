"""Do the addresses and routes that hosts show explain why their ranks do not meet?

Two hosts with one address: the switch sends packets for it to whichever host spoke last, so groups that
run over that interface stall while all links are up. A loopback, a bridge or a link-local address may be
on every host. Two interfaces of one host in one network, containers on the private bridge of their host,
and a point-to-point interface that NCCL took for the network show in `ip addr`, `ifconfig` and `ip route`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from ipaddress import IPv4Address, IPv4Interface, IPv4Network

from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.findings import (
    Category,
    Confidence,
    Finding,
    Level,
    Strength,
    Together,
)
from firstfault_tools.hardware.excerpt import NumberedLine, keep_marked, keep_near, quote_line
from firstfault_tools.hardware.host_sections import looks_like_host, split_sections

GATE = (" UP ", " UNKNOWN ", "inet ", "inet addr:", " scope link ")
LEAST_HOSTS = 3
"""Hosts whose addresses must be known: two with one address may be one host listed twice."""

MOST = 8

_BRIEF = expression(
    r"^(?P<host>[A-Za-z][\w.-]{1,62}): +(?P<nic>[\w.@-]{1,31}) +(?:UP|UNKNOWN) +(?P<address>\d{1,3}(?:\.\d{1,3}){3})/\d{1,2}\b"
)
_ONE_LINE = expression(
    r"^(?P<host>[A-Za-z][\w.-]{1,62}): +(?:\d+: +(?P<nic>[\w.@-]{1,31}) +)?inet +(?P<address>\d{1,3}(?:\.\d{1,3}){3})/\d{1,2}\b"
)
_COMMON = expression(
    r"^(?:lo|docker|br-|virbr|cni|flannel|cali|veth|nerdctl|podman|tunl|kube|nodelocaldns)"
)


def find_in_lines(lines: Sequence[NumberedLine], file: str) -> tuple[Finding, ...]:
    """Addresses that more than one host has, and interfaces that lead nowhere."""
    if not keep_marked(lines, GATE):
        return ()
    return (*_find_twice(lines, file), *_find_dead_ends(lines, file))


def _find_twice(lines: Sequence[NumberedLine], file: str) -> list[Finding]:
    places: dict[str, dict[str, tuple[str, NumberedLine]]] = defaultdict(dict)
    hosts: set[str] = set()
    for host, nic, address, place in _read_addresses(lines):
        hosts.add(host)
        places[address].setdefault(host, (nic, place))
    if len(hosts) < LEAST_HOSTS:
        return []
    # an address on every host is a virtual one
    twice = {a: on for a, on in places.items() if 2 <= len(on) < max(3, len(hosts) // 2 + 1)}
    return [_describe(a, on, file) for a, on in list(twice.items())[:MOST]]


def _read_addresses(lines: Sequence[NumberedLine]) -> Iterator[tuple[str, str, str, NumberedLine]]:
    for number, line in lines:
        match = _BRIEF.match(line) or _ONE_LINE.match(line)
        if match is None or not looks_like_host(match["host"]):
            continue
        nic = match["nic"] or ""
        if _COMMON.match(nic) or not _is_own(match["address"]):
            continue
        yield match["host"], nic, match["address"], (number, line)


def _is_own(text: str) -> bool:
    """An address that only one host may have."""
    try:
        address = IPv4Address(text)
    except ValueError:
        return False
    return not (address.is_loopback or address.is_link_local or address.is_unspecified)


def _describe(address: str, on: dict[str, tuple[str, NumberedLine]], file: str) -> Finding:
    hosts = sorted(on)
    nics = sorted({nic for nic, _ in on.values() if nic})
    via = f" ({', '.join(nics)})" if nics else ""
    return Finding(
        kind="network.address_twice",
        title=(
            f"{' and '.join(hosts)} have the same address {address}{via}: a duplicate address, so packets for one "
            "host reach the other and the collectives over that interface stall although all links are up"
        ),
        level=Level.CAUSE,
        category=Category.COMMUNICATION,
        confidence=Confidence.CONFIRMED,
        evidence=tuple(quote_line(file, *place, host=host) for host, (_, place) in on.items())[:3],
        facts={"address": address, "hosts": hosts, "survived": False},
    )


_FAILED = expression(
    r"(?i)connect(?: to \S+|\(\)\S*)? (?:failed|returned)|failed to connect|timed out|No route to host|connection refused|"
    r"connectFullMesh failed|unhandled system error|clients joined|host-to-host interface checking"
)
_START = expression(
    r"^\s*(?:\d{1,3}: )?(?P<nic>[A-Za-z][\w.-]{0,30})(?:@\w+)?(?::\s+(?:flags=\d+)?<(?P<flags>[A-Z_,-]+)>|\s+Link encap:)"
)
_INET = expression(
    r"^\s*inet (?:addr:)?(?P<address>\d+\.\d+\.\d+\.\d+)(?:/(?P<prefix>\d{1,2})\b|.{0,60}?(?:netmask |Mask:)(?P<mask>\d+\.\d+\.\d+\.\d+))"
)
_SHORT = expression(
    r"^(?P<nic>[A-Za-z][\w.-]{0,30})(?:@\w+)?\s+(?:UP|UNKNOWN)\s+(?P<address>\d+\.\d+\.\d+\.\d+)/(?P<prefix>\d{1,2})\b"
)
_ROUTE = expression(
    r"^(?P<net>\d+\.\d+\.\d+\.\d+/\d{1,2}) dev (?P<nic>[\w.-]{1,31}) .*\bscope link\b.*\bsrc (?P<address>\d+\.\d+\.\d+\.\d+)"
)
_CHOSEN = expression(
    r"NCCL INFO Bootstrap ?: ?Using (?:\[0\])?(?P<nic>[\w.-]+):(?P<address>[\d.]+)<"
)
_BRIDGE = IPv4Network("172.17.0.0/16")
"""Docker's default bridge: private to each host."""

NEAR_LINES = 40


@dataclass(frozen=True, slots=True)
class Interface:
    """An interface with its address as one host shows it. host: its name, or empty."""

    host: str
    nic: str
    address: IPv4Interface
    place: NumberedLine
    point_to_point: bool = False


def read_interfaces(lines: Sequence[NumberedLine]) -> list[list[Interface]]:
    """Interfaces by pasted listing, in order; an interface that comes again begins a new listing."""
    blocks: list[list[Interface]] = []
    for section in split_sections(lines):
        blocks.append([])
        nic, flags = "", ""
        for number, line in section.lines:
            if len(line) > 300:
                continue
            if started := _START.match(line):
                nic, flags = started["nic"], started["flags"] or ""
                if nic == "lo" and blocks[-1]:
                    blocks.append([])
                continue
            told = _read_address(line, nic)
            if told is None:
                continue
            name, address, routed = told
            if any(i.nic == name for i in blocks[-1]):
                blocks.append([])
            if _COMMON.match(name) or not _is_own(str(address.ip)):
                continue
            single = "POINTOPOINT" in flags and not routed
            blocks[-1].append(Interface(section.host or "", name, address, (number, line), single))
    return [b for b in blocks if b]


def _read_address(line: str, nic: str) -> tuple[str, IPv4Interface, bool] | None:
    """(interface, address with its network, whether a route says so) of a line below the heading of `nic`."""
    found = _ROUTE.match(line) or _SHORT.match(line) or _INET.match(line)
    if found is None:
        return None
    parts = {"nic": None, "net": None, "prefix": None, "mask": None} | found.groupdict()
    net = (parts["net"] or "").partition("/")[2]
    length = net or parts["prefix"] or parts["mask"] or 32
    try:
        address = IPv4Interface(f"{found['address']}/{length}")
    except ValueError:
        return None
    return parts["nic"] or nic, address, bool(parts["net"])


def _find_dead_ends(lines: Sequence[NumberedLine], file: str) -> list[Finding]:
    if not any(_FAILED.search(text[:600]) for _, text in keep_marked(lines, _FAILURES)):
        return []
    blocks = read_interfaces(keep_near(lines, GATE, before=NEAR_LINES, after=8))
    found = _on_bridges(blocks) or _one_network(blocks) or _single_link(blocks, lines)
    if found is None:
        return []
    title, shown = found
    return [
        Finding(
            kind="network.dead_end",
            title=title,
            level=Level.CAUSE,
            category=Category.COMMUNICATION,
            evidence=tuple(quote_line(file, *i.place, host=i.host or None) for i in shown[:4]),
            host=shown[0].host if len(shown) == 1 and shown[0].host else None,
            facts={"survived": False},
            strength=Strength(Together.SETTING),
        )
    ]


_FAILURES = (
    "onnect",
    "timed out",
    "No route",
    "unhandled system error",
    "clients joined",
    "interface checking",
)


def _on_bridges(blocks: Sequence[Sequence[Interface]]) -> tuple[str, list[Interface]] | None:
    """Two machines that show nothing but the private bridge network of their containers."""
    only = [b[0] for b in blocks if len(b) == 1 and b[0].address.ip in _BRIDGE]
    if len(only) < 2 or len(only) != len(blocks):
        return None
    told = " and ".join(str(i.address.ip) for i in only[:3])
    return (
        f"the processes run in containers on Docker's bridge network ({told}), which is private to each host: neither can "
        "reach the address of the other, so no connection between the machines comes about",
        only,
    )


def _one_network(blocks: Sequence[Sequence[Interface]]) -> tuple[str, list[Interface]] | None:
    """Two interfaces of one host in the same network."""
    for block in blocks:
        nets: dict[IPv4Network, Interface] = {}
        for own in block:
            other = nets.setdefault(own.address.network, own)
            if other.nic == own.nic or own.address.network.prefixlen > 30:
                continue
            where = own.host or "a host"
            return (
                f"{where} has two interfaces in one network: {other.nic} ({other.address.ip}) and {own.nic} "
                f"({own.address.ip}) are both in {own.address.network}: the routing table, not NCCL_SOCKET_IFNAME, decides "
                "by which of them a connection leaves, so it may take the other interface than the peers expect",
                [other, own],
            )
    return None


def _single_link(
    blocks: Sequence[Sequence[Interface]], lines: Sequence[NumberedLine]
) -> tuple[str, list[Interface]] | None:
    """NCCL took a point-to-point interface although the host has one in a network."""
    chosen = {
        m["address"]
        for _, t in keep_marked(lines, ("Bootstrap",))
        if (m := _CHOSEN.search(t[:400]))
    }
    for block in blocks:
        for own in block:
            rest = [i for i in block if i is not own and i.address.network.prefixlen < 32]
            single = own.point_to_point or own.address.network.prefixlen == 32
            if str(own.address.ip) in chosen and single and rest:
                return (
                    f"NCCL chose the interface {own.nic} ({own.address.ip}), a point-to-point interface with no network "
                    f"behind it (netmask /{own.address.network.prefixlen}), so the peers cannot be reached over it; "
                    f"{rest[0].nic} ({rest[0].address}) is the interface of the cluster",
                    [own, rest[0]],
                )
    return None
