"""Does any node take itself for the host of the rendezvous store, or do all connect as clients?"""

from __future__ import annotations

import re
from collections.abc import Sequence

from firstfault_tools.causality.incident import LogIncident
from firstfault_tools.causality.launch.unmet import describe_launch, find_homes
from firstfault_tools.expressions import expression
from firstfault_tools.finding_roles import FindingRole
from firstfault_tools.findings import Category, Finding
from firstfault_tools.log.digest import FileDigest, Line
from firstfault_tools.log.scan import make_line

_ENDPOINT = expression(
    r"rdzv[-_]endpoint['\"]?\s*[=: ]\s*['\"]?(?P<host>\d{1,3}(?:\.\d{1,3}){3})(?::(?P<port>\d+))?"
)

_NAMED = expression(
    r"rdzv[-_]endpoint['\"]?\s*[=: ]\s*['\"]?(?P<host>[A-Za-z][\w-]*(?:\.[\w-]+)+)(?::(?P<port>\d+))?"
)

_OWN = expression(
    r"(?:^|\s)(?P<nic>[a-z][\w.@-]{0,30})\s+(?:UP|UNKNOWN)\s+(?P<address>\d{1,3}(?:\.\d{1,3}){3})/\d{1,2}\b|"
    r"\binet (?:addr:)?(?P<inet>\d{1,3}(?:\.\d{1,3}){3})\b"
)

_RESOLVED = expression(
    r"^\s*(?P<address>\d{1,3}(?:\.\d{1,3}){3})(?:\s+(?P<name>[A-Za-z][\w.-]*))?\s*"
)

_ASKS_NAME = expression(
    r"hostname -[iI]\b|getent (?:a?hosts\w*) \"?(?:\$\(|`)hostname|getent a?hosts\w* (?P<name>[\w.-]+)"
)

_LISTENING = expression(r"hosts the TCP store|server socket has started to listen|LISTEN\s+\d")

_REFUSED = expression(
    r"failed to connect to \[?(?P<host>[A-Za-z][\w.-]+)\]?:(?P<port>\d+) \(errno: 111"
)
_HOSTNAME = expression(r"[$#] hostname(?: -[fs])?\s*(?:;|&&|$)")
LOOKED_ROUND = 6


def find_unhosted(incident: LogIncident) -> Finding | None:
    """c10d: the node that owns the endpoint's address does not find it under its own host name."""
    for digest, number, text in incident.lines_with(("rdzv",)):
        match = _ENDPOINT.search(text)
        if match is None or match["host"].startswith("127."):
            continue
        endpoint = match["host"]
        owner = _find_owner(incident, endpoint)
        if owner is None or any(
            _LISTENING.search(t)
            for _, _, t in incident.lines_with(("hosts the TCP store", "to listen"))
        ):
            continue
        own, nic, line = owner
        resolved = _find_resolved(incident, own, endpoint)
        if resolved is None:
            continue
        address, name, place = resolved
        via = f" (interface {nic})" if nic else ""
        port = match["port"] or "29400"
        return describe_launch(
            "meeting",
            f"no node hosts the store of the rendezvous: {name or own} has the endpoint's address {endpoint}{via}, but its "
            f"host name resolves to {address}, another interface, so torchrun does not recognise the endpoint as this "
            f"machine (is_host is false), all nodes connect as clients and nobody listens on port {port}",
            [place, line, make_line(digest.file, number, text, digest.year)],
            Category.ENVIRONMENT,
        )
    return None


def find_unrecognised(incident: LogIncident, failed: Sequence[Finding]) -> Finding | None:
    """c10d: the endpoint's name is another form of this host's own name, which is not taken for the same."""
    if not any(f.has(FindingRole.NO_STORE) for f in failed):
        return None
    for digest, number, text in incident.lines_with(("rdzv",)):
        match = _NAMED.search(text)
        if match is None:
            continue
        own = find_homes(incident).get(digest.file, "")
        short = match["host"].split(".")[0]
        if own not in (short, match["host"]):
            continue
        for place, at, listed in incident.lines_with((short,)):
            names = listed.split("#")[0].split()
            full = next((n for n in names[1:] if n.startswith(f"{match['host']}.")), None)
            if full is None or names[0].count(".") != 3 or short not in names:
                continue
            return describe_launch(
                "meeting",
                f"no node hosts the store of the rendezvous: the endpoint {match['host']} is this node {own} itself, but "
                f"torchrun compares it with the host name ({short}) and the full name ({full}) and recognises neither "
                "(is_host is false), so all nodes connect as clients and nobody listens",
                [
                    make_line(digest.file, number, text, digest.year),
                    make_line(place.file, at, listed, place.year),
                ],
                Category.ENVIRONMENT,
            )
    return _find_refused_self(incident)


def _find_refused_self(incident: LogIncident) -> Finding | None:
    """The host itself is refused by the endpoint that bears another form of its name: it never listened."""
    for digest, number, text in incident.lines_with(("errno: 111",)):
        match = _REFUSED.search(text)
        if match is None:
            continue
        name = match["host"]
        own = _own_name(incident, digest) or find_homes(incident).get(digest.file, "")
        if not own or own == name or not re.match(rf"{re.escape(own.split('.')[0])}[-.]", name):
            continue
        if any(True for _ in incident.lines_with(("hosts the TCP store", "to listen"))):
            return None
        return describe_launch(
            "meeting",
            f"no node hosts the store of the rendezvous: {own} is the host that the endpoint {name} means, and is itself refused "
            f"on port {match['port']}, where nobody listens: torchrun compares the endpoint with the host name ({own}) and its "
            "addresses and does not recognise this other form (is_host is false), so all nodes connect as clients",
            [make_line(digest.file, number, text, digest.year)],
            Category.ENVIRONMENT,
        )
    return None


def _own_name(incident: LogIncident, digest: FileDigest) -> str:
    """What `hostname` printed at a prompt in this log."""
    for file, number, text in incident.lines_with(("hostname",)):
        if file is not digest or _HOSTNAME.search(text) is None:
            continue
        for _, answer in digest.lines_after(number, 1):
            if re.fullmatch(r"[A-Za-z][\w.-]{1,80}", answer.strip()):
                return answer.strip()
    return ""


def _find_owner(incident: LogIncident, address: str) -> tuple[str, str, Line] | None:
    """(file, interface, line) where a listing of interfaces shows the address."""
    for digest, number, text in incident.lines_with((address,)):
        for match in _OWN.finditer(text[:400]):
            if address in (match["address"], match["inet"]):
                return (
                    digest.file,
                    match["nic"] or "",
                    make_line(digest.file, number, text, digest.year),
                )
    return None


def _find_resolved(incident: LogIncident, file: str, endpoint: str) -> tuple[str, str, Line] | None:
    """(address, name, line) of what the host's own name resolves to in that file, if not the endpoint."""
    digest = incident.digest_of(file)
    asked = 0
    for number, text in digest.kept:
        if _ASKS_NAME.search(text[:400]) is not None:
            asked = number
            continue
        if not asked or number - asked > LOOKED_ROUND:
            continue
        match = _RESOLVED.match(text[:200])
        if match is None:
            continue
        rest = text.split()
        if endpoint in rest:
            return None
        return match["address"], match["name"] or "", make_line(file, number, text, digest.year)
    return None
