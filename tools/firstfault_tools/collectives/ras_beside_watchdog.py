"""Is a rank that one RAS answer shows behind really stuck? A watchdog's timeout beside it says so.

One answer alone proves nothing, since counts differ while a job communicates; a collective that ran into
its timeout in the same incident does not move any more, so the counts stand.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from firstfault_tools.facts import Fact
from firstfault_tools.findings import Category, Confidence, Finding, Level

BESIDE = ("kind:collective.ras_mismatch",)

MISMATCH = "collective.ras_mismatch"


def find_in_incident(incident: Any, findings: Sequence[Finding]) -> list[Finding]:
    """The ranks behind, as a failure, where the log holds a timeout of the watchdog."""
    behind = [f for f in findings if f.kind == MISMATCH and f.flag(Fact.BEHIND_RANKS)]
    if not behind or not incident.work:
        return []
    return [_confirm(f) for f in behind[:1]]


def _confirm(finding: Finding) -> Finding:
    return replace(
        finding,
        kind="collective.lagging_rank",
        title=finding.reworded(
            "; a collective ran into its timeout in the same run, so it is stuck there"
        ),
        level=Level.FAILURE,
        category=Category.COMMUNICATION,
        confidence=Confidence.LIKELY,
        host=finding.evidence[0].host if finding.evidence else None,
        page="collective-divergence",
        facts={k: v for k, v in finding.facts.items() if k not in ("next", "explains")},
    )
