"""Does NCCL run with other settings or over another network on one host than on the others?

All ranks of a communicator must use one transport and the same protocol settings. NCCL prints both at
its start; where a job failed in NCCL and the hosts' lists differ, the difference is the first suspect.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from firstfault_tools.causality.incident import LogIncident
from firstfault_tools.collectives.environment import known_variables
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Category, Confidence, Finding, Level
from firstfault_tools.log.digest import Line
from firstfault_tools.log.scan import make_line

MOST_LINES = 20_000
_HOST = expression(r"(?:^|\s)(?P<host>[A-Za-z][\w.-]{0,62}):\d+:\d+ \[\d+\] NCCL INFO ")
_SET = expression(
    r"NCCL INFO (?P<name>NCCL_[A-Z0-9_]+) set by environment to (?P<value>\S+?)\.?\s*$"
)
_USES = expression(
    r"NCCL INFO (?:NET/(?P<net>IB|Socket|OFI) ?: ?Using |Using network (?P<named>\S+))"
)
_ADDRESS = expression(
    r"(?:^|\s)(?P<host>[\w][\w.-]{0,62}):\d+:\d+ \[\d+\] NCCL INFO Bootstrap ?: ?Using [\w.-]+:(?P<address>\d+\.\d+\.\d+\.\d+)<"
)
_FAILED = (
    "signature.nccl-",
    "signature.ib-",
    "collective.",
    "nccl.last_error",
    "signature.watchdog",
    "signature.store-",
)
_NETWORKS = {"IB": "InfiniBand/RoCE", "Socket": "TCP sockets", "OFI": "libfabric"}
_BY_NETWORK = frozenset({"NCCL_IB_DISABLE", "NCCL_NET", "NCCL_NET_PLUGIN"})
"""Variables that choose the network, told beside it where a host sets them."""


def find_in_incident(incident: LogIncident, findings: Sequence[Finding]) -> list[Finding]:
    """One finding where hosts that failed together started NCCL in different ways."""
    live = [f for f in findings if not f.facts.get("survived") and f.level is not Level.CONTEXT]
    if not any(f.kind.startswith(_FAILED) for f in live):
        return []
    twice = _same_address(incident)
    if twice is not None:
        return [twice]
    networks, settings, lines = _read(incident)
    if len(networks) < 2:
        return []
    if len({frozenset(kinds) for kinds in networks.values()}) > 1:
        return [_other_network(networks, settings, lines)]
    for name in sorted({n for own in settings.values() for n in own}):
        known = known_variables().get(name)
        values = {host: settings[host].get(name) for host in networks}
        if known is None or not known.must_match or len(set(values.values())) < 2:
            continue
        told = ", ".join(f"{v or 'not set'} on {h}" for h, v in list(values.items())[:4])
        first = next(h for h, v in values.items() if v is not None)
        return [
            _describe(
                f"the hosts run NCCL with different settings: {name} is {told}; all ranks must have the same, else "
                "sizes and protocols of a collective do not match",
                [lines[first, name]],
                first,
            )
        ]
    return []


def _same_address(incident: LogIncident) -> Finding | None:
    """Two hosts (or containers) that announce one address: behind a bridge each has the same."""
    users: dict[str, dict[str, Line]] = defaultdict(dict)
    for count, (digest, number, text) in enumerate(incident.lines_with(("Bootstrap",))):
        if count >= MOST_LINES:
            break
        match = _ADDRESS.search(text[:600])
        if match is not None and not match["address"].startswith("127."):
            line = make_line(digest.file, number, text, digest.year)
            users[match["address"]].setdefault(match["host"], line)
    for address, hosts in users.items():
        if len(hosts) < 2:
            continue
        names = ", ".join(list(hosts)[:4])
        return _describe(
            f"{names} all announce the same address {address} to NCCL: that of a container bridge network, which is "
            "valid on its own host only, so a connection to a peer ends at home; start the containers with the host "
            "network (--network host) or name another interface with NCCL_SOCKET_IFNAME",
            list(hosts.values())[:3],
            None,
            "socket-interface-selection",
        )
    return None


def _read(
    incident: LogIncident,
) -> tuple[dict[str, set[str]], dict[str, dict[str, str]], dict[tuple[str, str], Line]]:
    networks: dict[str, set[str]] = defaultdict(set)
    settings: dict[str, dict[str, str]] = defaultdict(dict)
    lines: dict[tuple[str, str], Line] = {}
    marks = ("set by environment to", "Using ")
    for count, (digest, number, text) in enumerate(incident.lines_with(marks)):
        if count >= MOST_LINES:
            break
        told, uses = _SET.search(text[:600]), _USES.search(text[:600])
        if told is None and uses is None:
            continue
        line = make_line(digest.file, number, text, digest.year)
        own = _HOST.search(text[:600])
        host = own["host"] if own is not None else line.speaker.host
        if host is None:
            continue
        if told is not None:
            settings[host].setdefault(told["name"], told["value"])
            lines.setdefault((host, told["name"]), line)
        elif uses is not None:
            network = uses["net"] or uses["named"]
            if network in _NETWORKS:
                networks[host].add(network)
                lines.setdefault((host, network), line)
    return networks, settings, lines


def _other_network(
    networks: dict[str, set[str]],
    settings: dict[str, dict[str, str]],
    lines: dict[tuple[str, str], Line],
) -> Finding:
    hosts: dict[frozenset[str], list[str]] = defaultdict(list)
    for host, kinds in networks.items():
        hosts[frozenset(kinds)].append(host)
    few, most = sorted(hosts.items(), key=lambda row: len(row[1]))[:: len(hosts) - 1][:2]
    odd, usual = few[1][0], most[1][0]
    own, rest = ({k: settings[h].get(k) for k in _BY_NETWORK} for h in (odd, usual))
    why = [
        f"{k}={own[k] or rest[k]} on {odd if own[k] else usual} only"
        for k in sorted(own)
        if own[k] != rest[k]
    ]
    reason = f" ({', '.join(why)})" if why else ""
    title = (
        f"the hosts use different networks for NCCL: {', '.join(few[1][:4])} {_name(few[0])}, "
        f"{', '.join(most[1][:4])} {_name(most[0])}{reason}: environment or devices differ between them, and one "
        "communicator cannot mix transports"
    )
    places = [lines[odd, kind] for kind in sorted(few[0])]
    places += [lines[usual, kind] for kind in sorted(most[0])]
    return _describe(title, places, odd if len(few[1]) == 1 and len(most[1]) > 1 else None)


def _name(kinds: frozenset[str]) -> str:
    return " and ".join(_NETWORKS[k] for k in sorted(kinds))


def _describe(
    title: str, lines: Sequence[Line], host: str | None, page: str = "nccl-settings-mismatch"
) -> Finding:
    return Finding(
        kind="nccl.host_differences",
        title=title,
        level=Level.CAUSE,
        category=Category.ENVIRONMENT,
        confidence=Confidence.LIKELY,
        evidence=tuple(line.evidence() for line in lines[:4]),
        host=host,
        page=page,
        facts={"survived": False},
    )
