"""Does NCCL run with other settings or over another network on one host than on the others?

All ranks of a communicator must use one transport and the same protocol settings. NCCL prints both at
its start; where a job failed in NCCL and the hosts' lists differ, the difference is the first suspect.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from firstfault_tools.collectives.environment import known_variables
from firstfault_tools.expressions import expression
from firstfault_tools.finding_roles import FindingRole
from firstfault_tools.findings import Category, Finding, Level
from firstfault_tools.log.digest import Line
from firstfault_tools.log.logs import Logs
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
    r"(?:^|\s)(?P<host>[\w][\w.-]{0,62}):\d+:\d+ \[\d+\] NCCL INFO Bootstrap ?: ?Using (?:\[0\])?(?P<nic>[\w.-]+):(?P<address>\d+\.\d+\.\d+\.\d+)<"
)
_CHANNEL = expression(
    r"(?:^|\s)(?P<host>[A-Za-z0-9][\w.-]{0,62}):\d+:\d+ \[\d+\] NCCL INFO Channel \d+.{0,120} via NET/IB/\d+(?P<rdma>(?:\(\d+\))?/GDRDMA)?"
)
_DIRECT = expression(
    r"(?:^|\s)(?P<host>[A-Za-z0-9][\w.-]{0,62}):\d+:\d+ \[\d+\] NCCL INFO NET/IB ?: ?GPU Direct RDMA (?P<state>Enabled|Disabled) for"
)
_UNREACHED = expression(
    r"[Cc]onnect(?:ion)? to (?P<address>\d+\.\d+\.\d+\.\d+)<\d+> (?:failed|returned)|"
    r"onnect.{0,200}remote=\[?(?:::ffff:)?(?P<remote>\d+\.\d+\.\d+\.\d+)\]?:\d"
)
_VERSION = expression(
    r"(?:NCCL version |nvidia-nccl-cu\d\d==)(?P<version>\d{1,2}\.\d{1,2}\.\d{1,2})(?!\d)"
)
_CONTAINER = expression(r"^[0-9a-f]{12}$")
DOCKER_BRIDGE, AWS_DEFAULT = 17, 31
"""Docker takes its networks from 172.17.0.0/16 on; 172.31.0.0/16 is the usual network of a cloud."""
MOST_NODES_LISTED = 512
_NETWORKS = {"IB": "InfiniBand/RoCE", "Socket": "TCP sockets", "OFI": "libfabric"}
_BY_NETWORK = frozenset({"NCCL_IB_DISABLE", "NCCL_NET", "NCCL_NET_PLUGIN"})
"""Variables that choose the network, told beside it where a host sets them."""


def find_in_incident(incident: Logs, findings: Sequence[Finding]) -> list[Finding]:
    """One finding where hosts that failed together started NCCL in different ways."""
    staged = _without_rdma(incident)
    live = [f for f in findings if not f.survived and f.level is not Level.CONTEXT]
    if not any(f.has(FindingRole.TRANSPORT) for f in live):
        return staged
    incident = incident.suspects
    wrong = _same_address(incident) or _bridge_address(incident) or _other_subnet(incident)
    if wrong is not None:
        return [wrong, *staged]
    other = _other_version(incident)
    return [*([other] if other is not None else _compare(incident)), *staged]


def _other_version(incident: Logs) -> Finding | None:
    """Hosts that name different versions of NCCL: by its banner, in an exception, as an installed package."""
    told: dict[str, dict[str, Line]] = defaultdict(dict)
    for count, (digest, number, text) in enumerate(
        incident.lines_with(("NCCL version ", "nvidia-nccl-cu"))
    ):
        if count >= MOST_LINES:
            break
        for match in _VERSION.finditer(text[:1000]):
            line = make_line(digest.file, number, text, digest.year)
            own = _HOST.search(text[:600])
            host = own["host"] if own is not None else line.place.host
            if host is not None:
                told[host].setdefault(match["version"], line)
    hosts: dict[str, list[str]] = defaultdict(list)
    for host, versions in told.items():
        if len(versions) == 1:  # a host that names several has them in several environments
            hosts[next(iter(versions))].append(host)
    if len(hosts) < 2:
        return None
    groups = sorted(hosts.items(), key=lambda row: len(row[1]))
    named = "; ".join(f"{version} on {', '.join(own[:4])}" for version, own in groups[:4])
    alone = groups[0][1][0] if len(groups[0][1]) == 1 < len(groups[-1][1]) else None
    return _describe(
        f"the hosts run different versions of NCCL: {named}; what two versions exchange when they connect does not fit "
        "together, so install the same build of PyTorch (or the same image) on all of them",
        [told[own[0]][version] for version, own in groups[:4]],
        alone,
        "mixed-software-versions",
    )


def _compare(incident: Logs) -> list[Finding]:
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


def _without_rdma(incident: Logs) -> list[Finding]:
    """Hosts none of whose InfiniBand channels use GPUDirect RDMA, beside hosts whose channels do."""
    channels: dict[str, dict[bool, list[Line]]] = defaultdict(lambda: {True: [], False: []})
    for count, (digest, number, text) in enumerate(
        incident.lines_with(("via NET/IB/", "GPU Direct RDMA "))
    ):
        if count >= MOST_LINES:
            break
        match = _CHANNEL.search(text[:600])
        if (told := _DIRECT.search(text[:600])) is not None:
            line = make_line(digest.file, number, text, digest.year)
            own = channels[told["host"]][told["state"] == "Enabled"]
            own += [line, line] if told["state"] != "Enabled" else [line]
        if match is not None:
            line = make_line(digest.file, number, text, digest.year)
            channels[match["host"]][match["rdma"] is not None].append(line)
    without = {
        h: own[False] for h, own in channels.items() if len(own[False]) > 1 and not own[True]
    }
    direct = {h: own[True] for h, own in channels.items() if own[True]}
    if not without or not direct:
        return []
    names, other = ", ".join(list(without)[:4]), next(iter(direct))
    missing, lines = _read_modules(incident, set(without))
    why = (
        "the peer-memory module (nvidia-peermem) is not loaded there, as lsmod shows"
        if missing
        else "the peer-memory module (nvidia-peermem) is not loaded there, or the PCIe topology forbids it"
    )
    return [
        Finding(
            kind="nccl.gdr_missing",
            title=(
                f"{names} does not use GPUDirect RDMA (NCCL says so at its start), {other} does: {why}, so "
                f"all traffic of {names} is staged through host memory and every job with it has slower collectives; "
                "modprobe nvidia-peermem there and load it at boot"
            ),
            level=Level.CAUSE,
            category=Category.PERFORMANCE,
            evidence=tuple(
                line.evidence()
                for line in (*next(iter(without.values()))[:2], direct[other][0], *lines[:1])
            ),
            host=next(iter(without)) if len(without) == 1 else None,
            facts={
                "explains": {"slow": 0.8},
                "survived": False,
                "hosts": list(without)[:64],
            },
        )
    ]


def _read_modules(incident: Logs, hosts: set[str]) -> tuple[bool, list[Line]]:
    """Whether a count of the peer-memory module is 0 on one of the hosts, with its line."""
    asked = 0
    for digest, number, text in incident.lines_with(("peer", ": 0")):
        if "lsmod" in text and "peer" in text:
            asked = number
        elif asked and number - asked <= MOST_NODES_LISTED:
            host, _, value = text.strip().partition(": ")
            if host in hosts and value.strip() == "0":
                return True, [make_line(digest.file, number, text, digest.year)]
    return False, []


def _announced(incident: Logs) -> dict[str, tuple[str, str, Line]]:
    """(host, interface, line) of each address that a host announces to NCCL, by address."""
    found: dict[str, tuple[str, str, Line]] = {}
    for count, (digest, number, text) in enumerate(incident.lines_with(("Bootstrap",))):
        if count >= MOST_LINES:
            break
        match = _ADDRESS.search(text[:600])
        if match is not None:
            line = make_line(digest.file, number, text, digest.year)
            found.setdefault(match["address"], (match["host"], match["nic"], line))
    return found


def _refused(incident: Logs) -> Iterator[tuple[str, Line]]:
    """Addresses that a peer could not be reached at."""
    for count, (digest, number, text) in enumerate(incident.lines_with(("onnect",))):
        if count >= MOST_LINES:
            return
        match = _UNREACHED.search(text[:600])
        if match is not None:
            address = match["address"] or match["remote"]
            yield address, make_line(digest.file, number, text, digest.year)


def _bridge_address(incident: Logs) -> Finding | None:
    """A peer that is looked for at the address it has on its own host's container network."""
    known = _announced(incident)
    boxed = any(_CONTAINER.match(h) for h, _, _ in known.values()) or any(
        "docker run" in t or "docker exec" in t for _, _, t in incident.lines_with(("docker ",))
    )
    for address, line in _refused(incident):
        second = int(address.split(".")[1]) if address.startswith("172.") else 0
        if not (second == DOCKER_BRIDGE or (boxed and DOCKER_BRIDGE < second < AWS_DEFAULT)):
            continue
        host, nic, place = known.get(address, ("", "", None))
        who = f"container {host}" if _CONTAINER.match(host) else host or "the peer"
        return _describe(
            f"{who} announces {address}{f' ({nic})' if nic else ''}, its address on Docker's bridge network: that is valid "
            "on its own host only (every host has such a private network of its own, so even a ping can answer at home), and "
            "the random ports of the collectives are not published",
            [line, *([place] if place is not None else [])],
            None,
            "socket-interface-selection",
        )
    return None


def _other_subnet(incident: Logs) -> Finding | None:
    """Hosts that announce addresses of different networks, where one cannot reach the other."""
    known = _announced(incident)
    for address, line in _refused(incident):
        host, nic, place = known.get(address, ("", "", None))
        if place is None:
            continue
        for other, (peer, own, row) in known.items():
            near = address.split(".")[:2] == other.split(".")[:2]
            if peer == host or near or own == nic or other.startswith("127."):
                continue
            return _describe(
                f"the hosts announce addresses of different networks: {host} {address} ({nic}), {peer} {other} ({own}), and "
                f"the connection to {address} fails: the interface of one is not reachable from the other; name the "
                "interface that all hosts share with NCCL_SOCKET_IFNAME on each of them",
                [line, place, row],
                None,
                "socket-interface-selection",
            )
    return None


def _same_address(incident: Logs) -> Finding | None:
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
            "valid on its own host only, so a connection to a peer ends at home",
            list(hosts.values())[:3],
            None,
            "socket-interface-selection",
        )
    return None


def _read(
    incident: Logs,
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
        host = own["host"] if own is not None else line.place.host
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
        evidence=tuple(line.evidence() for line in lines[:4]),
        host=host,
        page=page,
        facts={"survived": False},
    )
