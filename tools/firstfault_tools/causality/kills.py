"""What does a kill that the kernel or an orchestrator reports have to do with what else was seen of it?

Who reports a kill for memory saw it. Memory that grew until then says why it came; a time limit that ended
what was left of the job, and the complaints of processes after it, are its consequences.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from firstfault_tools.causality.incident import LogIncident
from firstfault_tools.correlation.decisions import Relation, Rule, Trail
from firstfault_tools.finding_roles import FindingRole
from firstfault_tools.findings import Category, Finding, Level

_GROWTH = "metrics.host_memory_growth"


GROWN = Rule(
    "growth-before-the-kill", Relation.SAME_AS, "memory that grew until the kill says why it came"
)
IDLED = Rule(
    "limit-after-the-kill",
    Relation.EXPLAINS,
    "what the kill left of the job idled until its time limit",
)


def weigh_kills(
    _incident: LogIncident, findings: Sequence[Finding], trail: Trail | None = None
) -> list[Finding]:
    """The findings; growth and a later limit told with the kill for memory that they belong to."""
    trail = trail or Trail()
    kill = next((f for f in findings if _is_kill(f)), None)
    if kill is None:
        return list(findings)
    growth = next((f for f in findings if f.kind == _GROWTH and f.level is Level.CAUSE), None)
    limits = [f for f in findings if f.has(FindingRole.TIME_LIMIT) and _comes_after(f, kill)]
    title, page = kill.title, kill.page
    if growth is not None:
        title += f"; {growth.title[0].lower()}{growth.title[1:]}"
        page = growth.page or page
    if limits:
        title += "; what was left of the job idled until its time limit"
    out = []
    for finding in findings:
        if finding is kill:
            quoted = growth.evidence[-1:] if growth is not None else ()
            out.append(replace(kill, title=title, page=page, evidence=(*kill.evidence, *quoted)))
        elif finding is growth or finding in limits:
            out.append(replace(finding, level=Level.SYMPTOM))
            trail.note(GROWN if finding is growth else IDLED, finding, out[-1], kill)
        else:
            out.append(finding)
    return out


def _is_kill(finding: Finding) -> bool:
    live = finding.level is Level.CAUSE and not finding.survived
    return live and finding.category is Category.OOM and finding.has(FindingRole.MEMORY_KILL)


def _comes_after(limit: Finding, kill: Finding) -> bool:
    """It is told below the kill, in the same log."""
    first, last = limit.evidence[:1], kill.evidence[:1]
    return bool(first and last) and first[0].file == last[0].file and first[0].line > last[0].line
