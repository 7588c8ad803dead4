"""Why did the processes not meet at the store: a false address, nobody who hosts it, a node that came late?

"Could not reach the master" tells the victim's side. Why stands elsewhere: in the address itself (a number, a
node list, a variable left unexpanded), in what the master's name resolves to, in what another node was
still doing when the wait ran out, or in the store's own count of who joined.
"""

from __future__ import annotations

from collections.abc import Sequence

from firstfault_tools.causality.incident import LogIncident
from firstfault_tools.causality.launch.unmet import find_unmet
from firstfault_tools.expressions import expression
from firstfault_tools.facts import Fact
from firstfault_tools.finding_roles import FindingRole
from firstfault_tools.findings import Category, Finding, Level
from firstfault_tools.log.scan import make_line

_FILE = expression(r"file://(?P<path>/[\w./-]{1,200})")


def find_in_incident(incident: LogIncident, findings: Sequence[Finding]) -> list[Finding]:
    """The reason why processes did not meet, where the logs show one."""
    counted = _count_joined(incident, findings)
    failed = find_unmet(findings)
    if incident.trained:
        return counted
    if any("_nodes" in t or ":" in t for _, _, t in incident.lines_with(("--nnodes", "min_nodes"))):
        from firstfault_tools.causality.launch.quorum import find_small_quorum

        if (small := find_small_quorum(incident)) is not None:
            return [*counted, small]
    if not failed:
        return counted
    # most jobs meet: what explains that one did not is loaded where it is needed
    from firstfault_tools.causality.launch.extra_pods import find_extra_pods
    from firstfault_tools.causality.launch.late_node import (
        find_late,
        find_restarted,
        find_waiting_pod,
    )
    from firstfault_tools.causality.launch.master_address import find_odd_address
    from firstfault_tools.causality.launch.store_host import find_unhosted, find_unrecognised

    found = find_extra_pods(
        incident, [f for f in findings if f.has(FindingRole.CLIENTS_MISSING)]
    ) or (
        find_odd_address(incident)
        or find_unhosted(incident)
        or find_unrecognised(incident, failed)
        or find_waiting_pod(incident, failed)
        or find_restarted(incident, failed)
    )
    if found is None and _nothing_deeper(findings, [*failed, *counted]):
        found = find_late(incident, failed)
    return [*counted, found] if found is not None else counted


def _nothing_deeper(findings: Sequence[Finding], known: Sequence[Finding]) -> bool:
    """Nothing else tells of a cause or failure that the run did not get over."""
    deep = (Level.CAUSE, Level.FAILURE)
    return all(f in known or f.survived or f.level not in deep for f in findings)


def _count_joined(incident: LogIncident, findings: Sequence[Finding]) -> list[Finding]:
    """One finding where a store counted more processes than the job has.

    More than the world size means that the file of a `file://` rendezvous was not removed after a crash,
    or that two jobs use one master address and port.
    """
    for finding in findings:
        joined, world = finding.whole(Fact.JOINED), finding.whole(Fact.WORLD)
        if not finding.has(FindingRole.CLIENTS_MISSING) or finding.survived:
            continue
        if joined is None or world is None or joined <= world:
            continue
        found = (
            (match["path"], make_line(digest.file, number, text, digest.year))
            for digest, number, text in incident.lines_with(("file://",))
            if (match := _FILE.search(text)) is not None
        )
        path, line = next(found, ("", None))
        why = (
            f"the rendezvous file {path} is left over from an earlier run that crashed (stale file); remove it before "
            "each start, or use tcp:// or env://"
            if path
            else "two jobs use the same master address and port, or processes of an earlier run still hold the store"
        )
        evidence = (*finding.evidence[:2], *((line.evidence(),) if line is not None else ()))
        return [
            Finding(
                kind="store.too_many",
                title=f"{joined} processes joined a store of a job of {world}: {why}",
                level=Level.CAUSE,
                category=Category.SCHEDULER if not path else Category.ENVIRONMENT,
                evidence=evidence,
                facts={"survived": False, "joined": int(joined), "world": int(world)},
            )
        ]
    return []
