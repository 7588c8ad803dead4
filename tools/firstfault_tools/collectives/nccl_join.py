"""Did the ranks whose set-up one log misses begin it in another one? Logs of several nodes, read as one.

NCCL's lines are read log by log. A rank that is absent from the log of one node stands in that of another;
only what no log has is missing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from firstfault_tools.facts import Fact
from firstfault_tools.findings import Confidence, Finding, Level

STOPPED = "nccl.init_stopped"
MOST_RANKS = 1_000_000


def join_communicators(findings: Sequence[Finding]) -> list[Finding]:
    """The findings, with one for each communicator that several logs tell of."""
    told: dict[str, list[Finding]] = defaultdict(list)
    for finding in findings:
        if finding.kind == STOPPED:
            told[finding.text(Fact.COMMUNICATOR)].append(finding)
    for identity, parts in told.items():
        if len(parts) > 1:
            joined = _join(identity, parts)
            findings = [joined if f is parts[0] else f for f in findings if f not in parts[1:]]
    return list(findings)


def _join(identity: str, parts: Sequence[Finding]) -> Finding:
    size = parts[0].whole(Fact.RANKS_EXPECTED) or 0
    absent = set.intersection(*(_absent(f) for f in parts))
    began = size - len(absent)
    label = f"the NCCL communicator of {size} ranks (commId {identity}) never came up"
    evidence = tuple(e for f in parts for e in f.evidence[:4])
    facts = {**parts[0].facts, "ranks_began": began, "absent_ranks": sorted(absent)[:64]}
    if absent:
        shown = ", ".join(map(str, sorted(absent)[:8])) + (" ..." if len(absent) > 8 else "")
        rank = next(iter(absent)) if len(absent) == 1 else None
        title = f"{label}: rank {shown} never began its set-up, {began} did"
        return replace(parts[0], title=title, evidence=evidence, rank=rank, facts=facts)
    return replace(
        parts[0],
        title=f"{label}: all {size} ranks began, on {len(parts)} nodes or logs, and none got through the bootstrap, in which they meet over TCP",
        level=Level.SYMPTOM,
        confidence=Confidence.POSSIBLE,
        evidence=evidence,
        rank=None,
        facts=facts,
    )


def _absent(finding: Finding) -> set[int]:
    """Ranks that a log does not have; of long lists the finding keeps the first."""
    return set(finding.wholes(Fact.ABSENT_RANKS))
