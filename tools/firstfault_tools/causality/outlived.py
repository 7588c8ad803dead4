"""Did the run train on for long after a cause, until another one struck? Then the first of the two did not end it.

A port that comes back, a limit that was met once: told with a time in a kernel log or a listing, they are the
earliest cause and not the reason of an end that came many steps later, where something else is told of that
moment on another machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from firstfault_tools.causality.incident import LogIncident
from firstfault_tools.correlation.decisions import Relation, Rule, Trail
from firstfault_tools.findings import Category, Finding, Level
from firstfault_tools.placement.table import same_host
from firstfault_tools.roles import Role

OUTLIVED_STEPS = 20
"""Steps after a cause that show that it did not stop the run: what breaks a collective does so within a few."""

LAST_STEPS = 2
"""Steps that may still be written after the cause that ended the run: rank 0 hears of it a little later."""

_BUILDS_UP = (Category.NUMERICAL, Category.PERFORMANCE, Category.OOM, Category.DATA)
"""What may begin long before it ends a run."""

OUTLIVED = Rule(
    "outlived-until-another",
    Relation.CONTRADICTS,
    "the run trained on for many steps after it, and another cause on another machine is told of its end",
)


def weigh_outlived(
    incident: LogIncident, findings: Sequence[Finding], trail: Trail | None = None
) -> list[Finding]:
    """The findings, causes that the run outlived until another struck elsewhere marked as survived."""
    ends = [f for f in findings if f.level is Level.CAUSE and not f.survived]
    out: list[Finding] = []
    for finding in findings:
        by = next((f for f in ends if _is_outlived(incident, finding, f)), None)
        if by is None:
            out.append(finding)
            continue
        out.append(replace(finding, facts={**finding.facts, "survived": True}))
        if trail is not None:
            trail.note(OUTLIVED, finding, out[-1], by)
    return out


def _is_outlived(incident: LogIncident, finding: Finding, end: Finding) -> bool:
    """It struck long before the end, on a machine that is known and is not the one where the end was told."""
    if finding.level is not Level.CAUSE or finding.survived or finding.category in _BUILDS_UP:
        return False
    struck, ended = _time_of(finding), _time_of(end)
    host, other = _host_of(finding), _host_of(end)
    if struck is None or ended is None or host is None or other is None or same_host(host, other):
        return False
    # the steps of all logs are read only where two such causes stand against each other
    return (
        _steps_after(incident, struck) >= OUTLIVED_STEPS
        and _steps_after(incident, ended) <= LAST_STEPS
    )


def _steps_after(incident: LogIncident, time: float) -> int:
    """Steps that the logs of the run tell of after `time`."""
    readers = (r for file, r in incident.progress.items() if incident.role_of(file) is Role.RUN)
    return sum(reader.steps_after(time) for reader in readers)


def _time_of(finding: Finding) -> float | None:
    told = (e.time for e in finding.evidence if e.time is not None)
    return finding.time if finding.time is not None else next(told, None)


def _host_of(finding: Finding) -> str | None:
    """Who wrote its line, before the host of the rank that it was given to."""
    wrote = next((e.host for e in finding.evidence if e.host), None)
    return wrote or finding.host
