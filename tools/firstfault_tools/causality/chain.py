"""In which order did it happen, and what follows from what? The chain of one incident.

A cause beats a failure, a failure beats a symptom; within a level the earliest wins. What training
survived is no cause of its end. Everything else becomes cascade, teardown or noise.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from firstfault_tools.findings import Category, Finding, Level

DEPTH = {
    Level.CAUSE: 0,
    Level.FAILURE: 1,
    Level.SYMPTOM: 2,
    Level.TEARDOWN: 3,
    Level.BENIGN: 4,
    Level.CONTEXT: 5,
}


_CONSEQUENCES: dict[Category, set[Category | None]] = {
    Category.COMMUNICATION: {Category.HARDWARE, Category.OOM},
    Category.SCHEDULER: {Category.HARDWARE},
}
"""Categories whose causes, seen in the same incident, usually explain a cause of the key's category."""

NEEDS_MET = 1000
"""Specificity from which on a signature was recognised by more than its own line."""

WEAKEST = "run.ended"
"""An end that nothing explains: only where nothing else is known."""

_LEADS = ("run.interrupted", "peers.lost", "collective.")
"""Symptoms that sum up what all ranks saw; they come before those of single lines."""

_NOTHING_LEARNED = "metrics.loss_zero"

_ABSENCES = {
    "collective.missing",
    "collective.never_entered",
    "collective.no_dump",
    "collective.not_started",
}


@dataclass(frozen=True, slots=True)
class Chain:
    """Findings of an incident by their part in it. `first` is None when nothing failed."""

    first: Finding | None
    rivals: tuple[Finding, ...]
    cascade: tuple[Finding, ...]
    teardown: tuple[Finding, ...]
    survived: tuple[Finding, ...]
    benign: tuple[Finding, ...]
    context: tuple[Finding, ...]


def order_findings(findings: Sequence[Finding]) -> Chain:
    """Chain of all findings, whatever tool they come from."""
    sick = any(
        f.kind == _NOTHING_LEARNED
        or (
            f.kind.startswith("metrics.")
            and f.level is Level.CAUSE
            and f.category is Category.NUMERICAL
        )
        for f in findings
    )
    live = [_explain_absence(f, findings) for f in findings if not _survived(f, sick)]
    survived = tuple(f for f in findings if _survived(f, sick) and DEPTH[f.level] <= 2)
    candidates = [
        f
        for level in (Level.CAUSE, Level.FAILURE, Level.SYMPTOM)
        for f in _sorted(g for g in live if g.level is level)
    ]
    # broken machines and full memory break connections and launches, never the other way round
    deeper = {f.category for f in candidates if f.level in (Level.CAUSE, Level.FAILURE)}
    candidates.sort(
        key=lambda f: (
            f.kind == WEAKEST,
            f.category is Category.PERFORMANCE,
            *_outranked(f, deeper),
            _lead(f),
        )
    )
    first = candidates[0] if candidates else None
    rest = [f for f in candidates if f is not first]
    rivals = [f for f in rest if first is not None and _rivals(first, f)]
    return Chain(
        first=first,
        rivals=tuple(rivals),
        cascade=tuple(f for f in rest if f not in rivals),
        teardown=tuple(_sorted(f for f in live if f.level is Level.TEARDOWN)),
        survived=survived,
        benign=tuple(_sorted(f for f in findings if f.level is Level.BENIGN)),
        context=tuple(_sorted(f for f in findings if f.level is Level.CONTEXT)),
    )


def _sorted(findings: Iterable[Finding]) -> list[Finding]:
    """Earliest first: by time across files where every finding has one, else by place."""
    items = list(findings)
    files = list(dict.fromkeys(f.evidence[0].file for f in items if f.evidence))
    timed = len(files) > 1 and all(f.time is not None for f in items)

    def place(finding: Finding) -> tuple[float, int, int, int]:
        evidence = finding.evidence[0] if finding.evidence else None
        return (
            (finding.time or 0.0) if timed else 0.0,
            files.index(evidence.file) if evidence is not None else -1,
            int(str(finding.facts.get("starts_at") or 0)) or (evidence.line if evidence else 0),
            -int(str(finding.facts.get("specificity") or 0)),
        )

    return sorted(items, key=place)


def _outranked(finding: Finding, causes: set[Category | None]) -> tuple[int, bool]:
    """(depth of the level, another cause of the incident explains this one)."""
    over = _CONSEQUENCES.get(finding.category, set()) if finding.category is not None else set()
    return DEPTH[finding.level], bool(over & causes)


def _lead(finding: Finding) -> int:
    """Place of a symptom among symptoms; 0 for everything deeper."""
    if finding.level is not Level.SYMPTOM:
        return 0
    order = (i for i, kind in enumerate(_LEADS) if finding.kind.startswith(kind))
    return next(order, len(_LEADS))


def _explain_absence(finding: Finding, findings: Sequence[Finding]) -> Finding:
    """A rank that is missing from a collective because it failed is the victim of that failure."""
    if finding.kind not in _ABSENCES or finding.rank is None:
        return finding
    for other in findings:
        own = other.rank == finding.rank and DEPTH[other.level] <= DEPTH[Level.FAILURE]
        if own and other.kind not in _ABSENCES and not _survived(other):
            return replace(finding, level=Level.SYMPTOM)
    return finding


def _explains_values(finding: Finding) -> bool:
    """A data fault that was recognised together with the broken values that it leads to."""
    needs = int(str(finding.facts.get("specificity") or 0)) >= NEEDS_MET
    return finding.category is Category.DATA and finding.level is Level.CAUSE and needs


def _survived(finding: Finding, sick: bool = False) -> bool:
    """Training went on after it. Slowness is not got over by going on, nor NaN while it lasts."""
    if finding.category is Category.PERFORMANCE or (
        sick and (finding.category is Category.NUMERICAL or _explains_values(finding))
    ):
        return False
    return bool(finding.facts.get("survived"))


def _rivals(first: Finding, other: Finding) -> bool:
    """Another cause that could explain the end as well: same depth, another category or rank."""
    return other.level is first.level and (
        other.category is not first.category or other.kind != first.kind
    )
