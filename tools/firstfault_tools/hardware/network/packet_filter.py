"""Does a packet filter shut out the port that peers tried, by the rules shown or by checks of ports?

Rules of firewalld, ufw, iptables and nftables as they print them. Only where a connection failed: a
rule set alone is no fault, and a port that the rules let in was not stopped by them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field
from itertools import islice

from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.findings import (
    Category,
    Evidence,
    Finding,
    Level,
    Strength,
    Together,
)
from firstfault_tools.hardware.excerpt import NumberedLine, quote_line
from firstfault_tools.hardware.host_sections import split_sections
from firstfault_tools.log.digest import FileDigest
from firstfault_tools.log.logs import Logs

RULES = (
    "services: ", "(incoming)", " ALLOW ", " DENY ", "-P INPUT", "-A INPUT", "Chain INPUT", "hook input",
    "REJECT ", "DROP ",
)  # fmt: skip
FAILED = (
    "No route to host", "onnection timed out", "onnection refused", "connectFullMesh failed", "clients joined",
    "timed out after", "onnect timeout", "RendezvousTimeoutError", "unable to connect to", "failed to connect",
)  # fmt: skip
MAX_LINES = 4_000
HIGH = 32_768
"""First of the ports that Linux gives to whoever asks for none."""
MOST_HIGH = 2_000
"""Open high ports below which one that was not chosen is hardly among them."""

_FAILURE = expression(
    r"(?i)No route to host|connection (?:timed out|refused)|connectFullMesh failed|clients joined|connect timeout|"
    r"(?:client socket|connect\w*|rendezvous|store)\b[^\n]{0,80}\btimed out after|RendezvousTimeoutError|"
    r"unable to connect to|(?:socket|server|store|peer|host)\b.{0,40}\bfailed to connect"
)
_PORT = expression(
    r"(?:\d{1,3}(?:\.\d{1,3}){3}\]?|[a-fA-F\d:]\]|[Cc]onnect(?:ing|ion)? to (?:remote )?\[?[\w.-]+\]?)[:<](?P<port>\d{4,5})\b"
)
_NO_STORE = expression(r"\bhttps?://|\bHTTPS?Connection|\bpypi\b|huggingface|wandb|\bdatabase\b")
_POLICY = expression(
    r"^-P INPUT (?P<a>DROP|REJECT)|^Chain INPUT \(policy (?P<b>DROP|REJECT)|^Default: (?P<c>deny|reject) \(incoming\)|"
    r"hook input priority [\w; +-]+policy (?P<d>drop)|^target: (?P<e>default|%%REJECT%%|DROP)$"
)
_LAST = expression(
    r"^(?:\d+\s+)?(?:\d+\s+\S+\s+)?(?:REJECT|DROP)\s+(?:all|0)\s+--\s+(?:\*\s+\*\s+)?(?:0\.0\.0\.0/0|anywhere)\s+(?:0\.0\.0\.0/0|anywhere)|"
    r"^-A INPUT (?:-j (?:REJECT|DROP)|-i \S+ -j (?:REJECT|DROP))|^-A INPUT -p tcp (?:-m tcp )?-j (?:REJECT|DROP)"
)
_OPEN = expression(
    r"^(?:trusted \(active\)|target: ACCEPT|Status: inactive|not running)|"
    r"^(?:Anywhere|\d{1,3}(?:\.\d{1,3}){3}(?:/\d+)?)\s+ALLOW(?: IN)?\s+\d|^Anywhere\s+ALLOW(?: IN)?\s+Anywhere\s*$|"
    r"^-A INPUT -s (?!127\.)[\d./]+ (?:-p tcp )?-j ACCEPT|^ACCEPT\s+(?:all|0|tcp)\s+--\s+(?!127\.)\d[\d./]+\s+(?:0\.0\.0\.0/0|anywhere)\s*$|"
    r"^ip saddr (?!127\.)[\d./]+ accept|^rule family=\S+ source address=\S+ accept"
)
_ACCEPTED = expression(
    r"^(?P<ufw>\d+(?::\d+)?)(?:/tcp)?\s+ALLOW|\bdports? (?P<dport>[\d:,-]+) .*-j ACCEPT|\bACCEPT\b.*\bdpts?:(?P<dpt>\d+(?::\d+)?)|"
    r"\btcp dport (?P<nft>\{[^}]*\}|[\d-]+) .*accept"
)
_PORTS = expression(r"^ports: (?P<ports>\d.*)$")
_SERVICES = expression(r"^services: (?P<services>[\w -]+)$")


@dataclass(slots=True)
class RuleSet:
    """What one host lets in. ports: (first, last). shut: lines that keep all else out."""

    host: str | None
    ports: list[tuple[int, int]] = field(default_factory=list)
    services: str = ""
    shut: list[NumberedLine] = field(default_factory=list)
    opened: list[NumberedLine] = field(default_factory=list)
    free: bool = False

    def stops(self, port: int | None) -> bool:
        """Nothing that is let in covers the port, or the high ports where none is told."""
        if self.free or not self.shut:
            return False
        if port is not None:
            return not any(first <= port <= last for first, last in self.ports)
        return sum(last - first + 1 for first, last in self.ports if last >= HIGH) < MOST_HIGH


def find_in_incident(incident: Logs, findings: Sequence[Finding]) -> list[Finding]:
    """What keeps out what the ranks tried to reach: the rules of a host, or a port that a check found closed."""
    return _find_rules(incident, findings) or _find_closed(incident, findings)


def _find_rules(incident: Logs, findings: Sequence[Finding]) -> list[Finding]:
    if not any(
        f.category in (Category.COMMUNICATION, Category.ENVIRONMENT, None)
        and f.level in (Level.CAUSE, Level.FAILURE, Level.SYMPTOM)
        for f in findings
    ):
        return []
    files = {digest.file: digest for digest, _, _ in incident.lines_with(RULES)}
    if not files:
        return []
    failure = next(_failures(incident), None)
    if failure is None:
        return []
    for digest in files.values():
        for rules in _read_rules(digest):
            if rules.stops(failure[3]):
                return [_describe(rules, digest, failure)]
    return []


Failure = tuple[FileDigest, int, str, int | None]


def _failures(incident: Logs) -> Iterator[Failure]:
    """Connections that did not come about, those that tell the port first."""
    rows: list[Failure] = []
    for digest, number, text in islice(incident.lines_with(FAILED), 400):
        match = _FAILURE.search(text)
        if match is None or _NO_STORE.search(text):
            continue
        port = _PORT.search(text)
        rows.append((digest, number, text, int(port["port"]) if port is not None else None))
    yield from sorted(rows, key=lambda row: row[3] is None or row[3] > 65_535)


def _read_rules(digest: FileDigest) -> Iterator[RuleSet]:
    lines = list(islice(digest.kept, 2 * MAX_LINES))
    if len(lines) == 2 * MAX_LINES:
        lines = list(digest.kept[-MAX_LINES:])
    found: dict[str | None, RuleSet] = {}
    for section in split_sections(lines):
        rules = found.setdefault(section.host, RuleSet(section.host))
        for number, text in section.lines:
            _read_rule(rules, number, text.strip())
    yield from found.values()


def _read_rule(rules: RuleSet, number: int, text: str) -> None:
    if _POLICY.search(text) is not None or _LAST.match(text) is not None:
        rules.shut.append((number, text))
    elif _OPEN.match(text) is not None:
        rules.free = True
    elif (services := _SERVICES.match(text)) is not None:
        rules.services = services["services"]
        rules.opened.append((number, text))
    elif (ports := _PORTS.match(text)) is not None:
        rules.ports += _ranges(ports["ports"])
        rules.opened.append((number, text))
    elif (match := _ACCEPTED.search(text)) is not None:
        told = next(g for g in match.groups() if g)
        rules.ports += _ranges(told)
        rules.opened.append((number, text))
    if text == "Status: active":
        rules.shut.append((number, text))


def _ranges(text: str) -> list[tuple[int, int]]:
    found = expression(r"(\d{1,5})(?:[-:](\d{1,5}))?(?:/(tcp|udp))?").findall(text)
    return [(int(a), int(b or a)) for a, b, kind in found if kind != "udp"]


def _describe(rules: RuleSet, digest: FileDigest, failure: Failure) -> Finding:
    where, number, text, port = failure
    spans = sorted(set(rules.ports))
    told = ", ".join(f"{a}" if a == b else f"{a}-{b}" for a, b in spans[:6])
    only = " and ".join(p for p in (rules.services, f"port {told}" if told else "") if p)
    tried = f"port {port}" if port is not None else "the ports that the ranks listen on"
    high = port is None or port >= 1_024
    what = f"lets in only {only}" if only else "drops what comes in"
    title = (
        f"the firewall on {rules.host or 'a host'} {what}: the connection to {tried} is blocked"
        + (
            "; NCCL and Gloo listen on random high ports, all of which the training nodes need between them"
            if high
            else ""
        )
    )
    quotes = [*rules.opened[:2], *rules.shut[:1]]
    failed = quote_line(where.file, number, text)
    return Finding(
        kind="network.firewall",
        title=title,
        level=Level.CAUSE,
        category=Category.COMMUNICATION,
        evidence=(*(quote_line(digest.file, *q) for q in quotes), failed),
        host=rules.host,
        facts={"port": port, "starts_at": number, "survived": False},
        strength=Strength(Together.RANKS),
    )


CHECK_WORDS = ("nc: connect to ", "succeeded!", "Ncat: ", "telnet", "(UNKNOWN) [", "Nmap scan ", "/tcp ", "Connected to ", "nc -", "ncat -")  # fmt: skip
MOST_CHECKS = 2_000
_HOST = r"[A-Za-z0-9][\w.-]{0,80}"
_ERROR = r"[Cc]onnection (?:timed out|refused)|[Oo]peration timed out|No route to host|timed out"
_CHECK = expression(
    rf"\bnc: connect to (?P<h1>{_HOST})(?: \([\d.]+\))? port (?P<p1>\d+) \(tcp\)(?:[^:]{{0,12}}: | )(?P<e1>{_ERROR})|"
    rf"\bConnection to (?P<h2>{_HOST})(?: \([\d.]+\))? (?P<p2>\d+) port \[tcp/[^\]]*\] (?P<ok2>succeeded)!|"
    rf"\bNcat: Connected to (?P<h3>{_HOST}):(?P<p3>\d+)(?P<ok3>)|"
    rf"\(UNKNOWN\) \[(?P<h4>{_HOST})\] (?P<p4>\d+) \([^)]*\) : (?:(?P<e4>{_ERROR})|(?P<ok4>open))"
)
_COMMAND = expression(
    rf"\b(?:nc|ncat|netcat|telnet)(?: -\S+(?: \d+(?= -| [A-Za-z\d.-]+ \d))?)* (?P<host>{_HOST}) (?P<port>\d{{2,5}})\b"
)
_ANSWER = expression(
    rf"\b(?:Ncat: |telnet: (?:Unable to connect to remote host|connect to address [\d.]+): )(?P<error>{_ERROR})|"
    r"^\W{0,4}(?:\S+\s)?Connected to (?P<ok>[\w.-]+)\.\s*$"
)
_SCAN = expression(rf"\bNmap scan report for (?P<host>{_HOST})")
_SCANNED = expression(r"^\W{0,4}(?P<port>\d{1,5})/tcp\s+(?P<state>open|closed|filtered)\b")


@dataclass(frozen=True, slots=True)
class Check:
    """One port of one host; error: empty where it answered."""

    host: str
    port: int
    error: str
    place: Evidence


def _find_closed(incident: Logs, findings: Sequence[Finding]) -> list[Finding]:
    """A port that checks could not reach, where connections failed."""
    if not any(
        f.category in (Category.COMMUNICATION, Category.ENVIRONMENT, Category.SCHEDULER)
        and f.level in (Level.CAUSE, Level.FAILURE, Level.SYMPTOM)
        and not f.survived
        for f in findings
    ):
        return []
    checks = list(_read_checks(incident))
    closed = next((c for c in checks if c.error and "refused" not in c.error), None)
    if closed is None:
        return []
    beside = next(
        (c for c in checks if c.host == closed.host and c.port != closed.port and "timed" not in c.error and "route" not in c.error),
        None,
    )  # fmt: skip
    if any(c.host == closed.host and c.port == closed.port and not c.error for c in checks):
        return []  # it was reached at another time, or from another host
    title = f"port {closed.port} of {closed.host} cannot be reached ({closed.error})"
    quotes = [closed.place]
    if beside is not None:
        title += f" although port {beside.port} there can: a firewall or security group between the hosts lets only some ports through"
        quotes.append(beside.place)
    else:
        title += ": a firewall or security group is in the way, the address is wrong, or that host is down"
    return [
        Finding(
            kind="network.port_closed",
            title=title,
            level=Level.CAUSE if beside is not None else Level.FAILURE,
            category=Category.COMMUNICATION,
            evidence=tuple(quotes),
            facts={"port": closed.port, "starts_at": 1, "survived": False},
            strength=Strength(Together.RANKS),
        )
    ]


def _read_checks(incident: Logs) -> Iterator[Check]:
    asked: tuple[str, int, str] | None = None
    scanned = ""
    for digest, number, text in islice(incident.lines_with(CHECK_WORDS), MOST_CHECKS):
        text = text[:300]
        place = Evidence(digest.file, number, text.strip())
        match = _CHECK.search(text)
        if match is not None:
            at = next(i for i in "1234" if match[f"h{i}"])
            error = match.groupdict().get(f"e{at}") or ""
            yield Check(match[f"h{at}"], int(match[f"p{at}"]), error, place)
            asked = None
            continue
        answer = _ANSWER.search(text)
        if answer is not None and asked is not None and asked[2] == digest.file:
            yield Check(asked[0], asked[1], answer["error"] or "", place)
            asked = None
            continue
        if (scan := _SCAN.search(text)) is not None:
            scanned = scan["host"]
        elif scanned and (row := _SCANNED.search(text)) is not None:
            error = {"open": "", "closed": "Connection refused", "filtered": "filtered"}[
                row["state"]
            ]
            yield Check(scanned, int(row["port"]), error, place)
        elif (command := _COMMAND.search(text)) is not None:
            asked = (command["host"], int(command["port"]), digest.file)
