"""Do two hosts have the same network address: `ip -br addr` of several hosts, kernel and DHCP messages?

The switch sends packets for the address to whichever host spoke last, so groups that run over that
interface stall while all links are up. A loopback, a bridge or a link-local address may be on every host.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from ipaddress import IPv4Address

from firstfault_tools.expressions import expression
from firstfault_tools.findings import Category, Confidence, Finding, Level
from firstfault_tools.hardware.excerpt import NumberedLine, keep_marked, quote_line
from firstfault_tools.hardware.host_sections import looks_like_host
from firstfault_tools.hardware.pages import attach_pages

MARKERS = (" UP ", " UNKNOWN ", "inet ")
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
    """Addresses that more than one host has on an interface of its own."""
    if not keep_marked(lines, MARKERS):
        return ()
    places: dict[str, dict[str, tuple[str, NumberedLine]]] = defaultdict(dict)
    hosts: set[str] = set()
    for host, nic, address, place in _read_addresses(lines):
        hosts.add(host)
        places[address].setdefault(host, (nic, place))
    if len(hosts) < LEAST_HOSTS:
        return ()
    # an address on every host is a virtual one
    twice = {a: on for a, on in places.items() if 2 <= len(on) < max(3, len(hosts) // 2 + 1)}
    return attach_pages([_describe(a, on, file) for a, on in list(twice.items())[:MOST]])


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
