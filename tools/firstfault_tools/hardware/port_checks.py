"""Which port of which host did a pasted check reach, and which not: nc, ncat, telnet, nmap?

A port that times out beside one that answers is closed by something between the hosts; a port that is
refused is reachable, and nobody listens on it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from firstfault_tools.causality.incident import LogIncident
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Category, Confidence, Evidence, Finding, Level

WORDS = ("nc: connect to ", "succeeded!", "Ncat: ", "telnet", "(UNKNOWN) [", "Nmap scan ", "/tcp ", "Connected to ", "nc -", "ncat -")  # fmt: skip
MOST_LINES = 2_000
_HOST = r"[A-Za-z0-9][\w.-]{0,80}"
_ERROR = r"[Cc]onnection (?:timed out|refused)|[Oo]peration timed out|No route to host|timed out"
_CHECK = expression(
    rf"\bnc: connect to (?P<h1>{_HOST})(?: \([\d.]+\))? port (?P<p1>\d+) \(tcp\)[^:]{{0,12}}: (?P<e1>{_ERROR})|"
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


def find_in_incident(incident: LogIncident, findings: Sequence[Finding]) -> list[Finding]:
    """A port that checks could not reach, where connections failed."""
    if not any(
        f.category in (Category.COMMUNICATION, Category.ENVIRONMENT, Category.SCHEDULER)
        and f.level in (Level.CAUSE, Level.FAILURE, Level.SYMPTOM)
        and not f.facts.get("survived")
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
            confidence=Confidence.LIKELY,
            evidence=tuple(quotes),
            page="bootstrap-connect",
            facts={"port": closed.port, "specificity": 10_000, "starts_at": 1, "survived": False},
        )
    ]


def _read_checks(incident: LogIncident) -> Iterator[Check]:
    asked: tuple[str, int, str] | None = None
    scanned = ""
    for digest, number, text in islice(incident.lines_with(WORDS), MOST_LINES):
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
