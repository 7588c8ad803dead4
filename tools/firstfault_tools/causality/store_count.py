"""Did more processes join a store than the job has? Then it serves two runs, or an earlier one left it.

A store counts who joined. More than the world size means that the file of a `file://` rendezvous was
not removed after a crash, or that two jobs use one master address and port.
"""

from __future__ import annotations

from collections.abc import Sequence

from firstfault_tools.causality.incident import LogIncident
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Category, Confidence, Finding, Level
from firstfault_tools.log.scan import make_line

SIGNATURE = "signature.store-clients-missing"
_FILE = expression(r"file://(?P<path>/[\w./-]{1,200})")


def find_in_incident(incident: LogIncident, findings: Sequence[Finding]) -> list[Finding]:
    """One finding where a store counted more processes than the job has."""
    for finding in findings:
        joined, world = (str(finding.facts.get(k) or "") for k in ("joined", "world"))
        if finding.kind != SIGNATURE or finding.facts.get("survived"):
            continue
        if not (joined.isdigit() and world.isdigit() and int(joined) > int(world)):
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
                confidence=Confidence.LIKELY,
                evidence=evidence,
                page="rendezvous-failed",
                facts={"survived": False, "joined": int(joined), "world": int(world)},
            )
        ]
    return []
