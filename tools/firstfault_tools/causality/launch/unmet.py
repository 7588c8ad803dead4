"""Did the nodes of a job not meet, which node wrote a line, and how is the reason told?

What the finders of a failed launch share: the meeting at the store, and the commands that lead there.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from firstfault_tools.causality.incident import LogIncident
from firstfault_tools.expressions import expression
from firstfault_tools.finding_roles import FindingRole
from firstfault_tools.findings import (
    Category,
    Confidence,
    Finding,
    Level,
    Strength,
    Together,
)
from firstfault_tools.hardware.host_sections import read_sign
from firstfault_tools.log.digest import FileDigest, Line

MOST_LINES = 50_000

_LABEL = expression(r"^\s*\[(?P<place>[A-Za-z][\w.]*(?:-[\w.]+)*)\]:?\s")

_RANK_LABEL = expression(
    r"(?i)^(?:rank|default|gpu|info|warn(?:ing)?|error|debug|critical|c10d|rank_?)\W?\d*$"
)


def find_unmet(findings: Sequence[Finding]) -> list[Finding]:
    """Findings of nodes that did not meet and that the run did not get over."""
    return [f for f in findings if not f.survived and f.has(FindingRole.NOT_MET)]


def find_place(digest: FileDigest, text: str, line: Line, homes: Mapping[str, str]) -> str:
    """Node that wrote a line: its label, the host of the file's prompts, else the file."""
    label = _LABEL.match(text)
    if label is not None and _RANK_LABEL.match(label["place"]) is None:
        return label["place"]
    return line.place.host or homes.get(digest.file) or digest.file


def find_homes(incident: LogIncident) -> dict[str, str]:
    """Host of each file whose shell prompts all name the same one."""
    hosts: dict[str, set[str]] = defaultdict(set)
    for count, (digest, _, text) in enumerate(incident.lines_with(("# ", "$ "))):
        if count >= MOST_LINES:
            break
        sign = read_sign(text[:400])
        if sign is not None and sign[0] is not None:
            hosts[digest.file].add(sign[0])
    return {file: next(iter(names)) for file, names in hosts.items() if len(names) == 1}


def describe_launch(
    kind: str, title: str, lines: Sequence[Line], category: Category = Category.SCHEDULER
) -> Finding:
    """Finding of a launch that could not work, quoted by its lines."""
    return Finding(
        kind=f"launch.{kind}",
        title=title,
        level=Level.CAUSE,
        category=category,
        confidence=Confidence.CONFIRMED,
        evidence=tuple(line.evidence() for line in lines),
        page="rendezvous-failures",
        facts={"survived": False},
        strength=Strength(Together.SETTING),
    )
