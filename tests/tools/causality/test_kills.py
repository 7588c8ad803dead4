"""A kill for memory that was reported, beside what led to it and what came of it."""

from __future__ import annotations

from tests.rows import each_row

from firstfault_tools.causality.incident import LogIncident
from firstfault_tools.causality.kills import weigh_kills
from firstfault_tools.finding_roles import FindingRole
from firstfault_tools.findings import Category, Confidence, Evidence, Finding, Level
from firstfault_tools.log.scan import build_set


def made(kind: str, line: int, category: Category = Category.OOM) -> Finding:
    return Finding(
        kind=kind,
        title=f"What {kind} says",
        level=Level.CAUSE,
        category=category,
        confidence=Confidence.LIKELY,
        evidence=(Evidence("a.log", line, "text"),),
        rank=None,
        page="page-of-" + kind,
        roles=frozenset({FindingRole.MEMORY_KILL} if "oom" in kind else ()),
    )


NO_LOGS = LogIncident((), build_set(()))
GROWTH = made("metrics.host_memory_growth", 7)
LIMIT = made("slurm.time_limit", 77, Category.SCHEDULER)


@each_row(
    "kind", ["signature.slurm-oom-kill", "signature.kernel-oom-kill", "kubernetes.oom_killed"]
)
def test_the_kill_leads_and_tells_growth_and_limit(kind: str) -> None:
    growth, kill, limit = weigh_kills(NO_LOGS, [GROWTH, made(kind, 67), LIMIT])
    assert (growth.level, kill.level, limit.level) == (Level.SYMPTOM, Level.CAUSE, Level.SYMPTOM)
    assert "what metrics.host_memory_growth says" in kill.title
    assert "time limit" in kill.title
    assert kill.page == GROWTH.page


def test_a_limit_before_the_kill_is_not_its_consequence() -> None:
    early = made("slurm.time_limit", 3, Category.SCHEDULER)
    assert (
        weigh_kills(NO_LOGS, [early, made("signature.slurm-oom-kill", 67)])[0].level is Level.CAUSE
    )


def test_without_a_kill_nothing_changes() -> None:
    assert weigh_kills(NO_LOGS, [GROWTH, LIMIT]) == [GROWTH, LIMIT]
