"""Was a process that others declared lost still at work? Then it was late with its heartbeat, not dead."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice

from firstfault_tools.causality.incident import LogIncident
from firstfault_tools.correlation.decisions import Relation, Rule, Trail
from firstfault_tools.expressions import expression
from firstfault_tools.finding_roles import FindingRole
from firstfault_tools.findings import Evidence, Finding, Level
from firstfault_tools.log.digest import Line
from firstfault_tools.log.scan import make_line

_WORKS = expression(
    r"(?i)\b(?:compil\w+|autotun\w+|step|loss|iteration|epoch|load(?:ed|ing)|restor\w+|sav(?:ed|ing))\b"
)
_FAILS = expression(
    r"(?i)error|fail|abort|terminat|unhealthy|heartbeat|exception|traceback|shut(?:ting)? ?down|lost|disconnect"
)
MOST_LINES = 20_000


ALIVE = Rule(
    "declared-lost-and-alive",
    Relation.CONTRADICTS,
    "the process works on after others declared it lost",
)


def weigh_declared(
    incident: LogIncident, findings: Sequence[Finding], trail: Trail | None = None
) -> list[Finding]:
    """The findings; of a process that goes on working after it was declared lost, it says so."""
    out = []
    for finding in findings:
        declared = finding.has(FindingRole.DECLARED_LOST) and finding.rank is not None
        out.append(_revive(incident, finding) if declared else finding)
        if trail is not None:
            trail.note(ALIVE, finding, out[-1])
    return out


def _revive(incident: LogIncident, finding: Finding) -> Finding:
    if finding.level not in (Level.CAUSE, Level.FAILURE) or not finding.evidence:
        return finding
    sign = next(_signs_of_life(incident, finding.evidence[0], finding.rank), None)
    if sign is None:
        return finding
    said = " ".join(sign.message.split())[:120]
    return replace(
        finding,
        title=f"Task {finding.rank} was declared lost for missing heartbeats and is at work afterwards («{said}»): it was busy and not "
        "dead, so the time that the service waits for a heartbeat is shorter than what the task was doing",
        rank=None,
        evidence=(*finding.evidence[:2], sign.evidence()),
    )


def _signs_of_life(incident: LogIncident, place: Evidence, rank: int | None) -> Iterator[Line]:
    """Later lines of the process in the same log that tell of work and of no failure."""
    if place.file not in incident.progress:
        return
    digest = incident.digest_of(place.file)
    start = digest.position(place.line) + 1
    for number, text in islice(digest.kept[start:], MOST_LINES):
        if not _WORKS.search(text[:400]) or _FAILS.search(text[:400]):
            continue
        line = make_line(digest.file, number, text, digest.year)
        if rank in (line.place.rank, line.place.task):
            yield line
