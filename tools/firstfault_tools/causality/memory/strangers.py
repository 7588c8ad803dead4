"""Whose is the process that holds memory of a card beside the job, and on which host, as a listing shows it?

The allocator's message knows it by its pid alone. The process box of `nvidia-smi` names its program, `ps` its user, and
the file in which the pid stands is of the host of the card.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from firstfault_tools.causality.incident import LogIncident
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Evidence, Finding
from firstfault_tools.hardware.excerpt import quote_line
from firstfault_tools.hardware.host_sections import read_sign
from firstfault_tools.log.digest import FileDigest
from firstfault_tools.memory.oom_message import OomMessage

ABOVE = 40
"""Rows of a listing at most between its head and a row."""
MOST_OUTPUT = 200
"""Rows of an output at most between the prompt that asked for it and a row."""

LONGEST = 400

_PROGRAM = expression(
    r"^\|\s+\d{1,2}\s+(?:(?:N/A|\d+)\s+){0,2}(?P<pid>\d{2,8})\s+[CGM+]{1,3}\s+(?P<name>\S.{0,120}?)\s+\d{1,7}MiB\s+\|"
)
_COUNTED = expression(
    r"^(?:[ \t]*[^\s,]{1,60},)?[ \t]*(?P<pid>\d{2,8}), ?(?P<name>[^,]{2,200}), ?\d{1,7} ?MiB"
)
_USER = ("USER", "UID", "RUSER", "EUSER")


def name_stranger(incident: LogIncident, finding: Finding, message: OomMessage) -> Finding:
    """The finding with program and user of the largest other process, and its host where none was known."""
    if not message.others:
        return finding
    largest = sorted(message.others, key=lambda o: -o.bytes)
    pid = next((str(o.pid) for o in largest if f"({o.pid})" in finding.title), None)
    if pid is None:
        return finding
    named = f"({pid})"
    program, user, places = "", "", []
    for digest, number, text in incident.lines_with((pid,)):
        if len(text) > LONGEST:
            continue
        if (row := _PROGRAM.match(text) or _COUNTED.match(text)) is not None and row["pid"] == pid:
            program = program or row["name"].strip()
        elif found := _read_user(digest, number, text, pid):
            user = user or found
        else:
            continue
        places.append(quote_line(digest.file, number, text))
    who = " of ".join(x for x in (program, user) if x)
    if not who:
        return finding
    return replace(
        finding,
        title=finding.title.replace(named, f"({pid}, {who})", 1),
        host=finding.host or _host_of(incident, places),
        evidence=(*finding.evidence[:3], *places[:2]),
    )


def _read_user(digest: FileDigest, number: int, text: str, pid: str) -> str:
    """The user in a row of `ps`, by the head above it; '' where it is no such row."""
    fields = text.split()
    at = digest.position(number)
    for _, above in reversed(digest.kept[max(0, at - ABOVE) : at]):
        head = above.split()
        if "PID" not in head or (column := _find_user(head)) is None:
            continue
        # columns before a start time of several words stand where the head says
        spread = head.index("STARTED") if "STARTED" in head else len(head)
        if max(column, head.index("PID")) > spread or len(fields) <= column:
            return ""
        return fields[column] if fields[head.index("PID")] == pid else ""
    return ""


def _find_user(head: Sequence[str]) -> int | None:
    return next((n for n, word in enumerate(head) if word in _USER), None)


def _host_of(incident: LogIncident, places: Sequence[Evidence]) -> str | None:
    """The one host that the prompts above these lines, or notes on their files, name."""
    hosts = {_prompt_above(incident, p) or incident.placement.host_told(p.file) for p in places}
    return hosts.pop() if len(hosts) == 1 else None


def _prompt_above(incident: LogIncident, place: Evidence) -> str | None:
    digest = incident.digest_of(place.file)
    at = digest.position(place.line)
    above = reversed(digest.kept[max(0, at - MOST_OUTPUT) : at])
    signs = (read_sign(text) for _, text in above if len(text) <= LONGEST)
    return next((sign[0] for sign in signs if sign is not None), None)
