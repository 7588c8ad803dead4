"""In which order did it happen, and what follows from what? The chain of one incident.

A cause beats a failure, a failure beats a symptom; within a level the earliest wins. What training
survived is no cause of its end. Everything else becomes cascade, teardown or noise. Each explanation carries
its `Standing`: the fields are compared in their order, and the first that differs is the reason why one
stands before the other (`--why`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import fields
from functools import partial

from firstfault_tools.correlation.decisions import Trail
from firstfault_tools.correlation.relations import relate
from firstfault_tools.dataclass import dataclass
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

WEAKEST = "run.ended"
"""An end that nothing explains: only where nothing else is known."""

_LEADS = ("run.interrupted", "peers.lost", "collective.")
"""Symptoms that sum up what all ranks saw; they come before those of single lines."""

_NOTHING_LEARNED = "metrics.loss_zero"


CRITERIA = {
    "unexplained_end": ("unexplained-end-last", "the other says only that the run ended"),
    "slowness": ("slowness-after-faults", "the other only tells that the run was slow"),
    "depth": ("deeper-level-first", "a cause stands before a failure, a failure before a symptom"),
    "follows": ("consequence-of-a-category", "broken machines and full memory break connections and launches, never the other way round"),
    "summary": ("summary-of-ranks-first", "it sums up what all ranks saw, the other tells of single lines"),
    "time": ("earliest-first", "its line was written earlier"),
    "file": ("first-file-first", "its file comes first, and no clock says which line was written earlier"),
    "line": ("earliest-first", "what it tells of began at an earlier line"),
    "weakness": ("stronger-evidence-first", "more agrees with it, or its pattern is the more exact one"),
    "position": ("as-found", "nothing parts them: the tool that was asked first comes first"),
}  # fmt: skip
"""Name and reason of each field of a `Standing`: what `--why` says where that field decides."""


@dataclass(frozen=True, slots=True, order=True)
class Standing:
    """Place of an explanation among all: smaller stands first, fields are compared in this order."""

    unexplained_end: bool
    slowness: bool
    depth: int
    follows: bool
    summary: int
    time: float
    file: int
    line: int
    weakness: tuple[int, int]
    position: int

    def reason_before(self, other: Standing) -> tuple[str, str]:
        """(rule, reason) why this one stands before another."""
        parts = (part.name for part in fields(self))
        differ = (name for name in parts if getattr(self, name) != getattr(other, name))
        return CRITERIA[next(differ, "position")]


@dataclass(frozen=True, slots=True)
class Explanation:
    """A finding that may be why the run ended, with its place among all of them."""

    finding: Finding
    standing: Standing


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
    explanations: tuple[Explanation, ...] = ()
    """First, rivals and cascade in the order in which they were ranked."""


def order_findings(findings: Sequence[Finding], trail: Trail | None = None) -> Chain:
    """Chain of all findings, whatever tool they come from."""
    trail = trail or Trail()
    findings = relate("outlived", findings, trail)
    sick = any(map(_is_sick, findings))
    over = partial(_is_over, sick=sick)
    live = relate("absence", [f for f in findings if not over(f)], trail, beside=findings)
    ranked = rank_explanations(live)
    candidates = [e.finding for e in ranked]
    first = candidates[0] if candidates else None
    rest = candidates[1:]
    rivals = [f for f in rest if first is not None and _rivals(first, f)]
    return Chain(
        first=first,
        rivals=tuple(rivals),
        cascade=tuple(f for f in rest if f not in rivals),
        teardown=tuple(_sorted(f for f in live if f.level is Level.TEARDOWN)),
        survived=tuple(f for f in findings if over(f) and DEPTH[f.level] <= 2),
        benign=tuple(_sorted(f for f in findings if f.level is Level.BENIGN)),
        context=tuple(_sorted(f for f in findings if f.level is Level.CONTEXT)),
        explanations=tuple(ranked),
    )


def rank_explanations(live: Sequence[Finding]) -> list[Explanation]:
    """Causes, failures and symptoms, the one that leads first."""
    deeper = {f.category for f in live if f.level in (Level.CAUSE, Level.FAILURE)}
    out = [
        Explanation(finding, _stand(finding, place, position, deeper))
        for level in (Level.CAUSE, Level.FAILURE, Level.SYMPTOM)
        for position, (finding, place) in enumerate(_placed(f for f in live if f.level is level))
    ]
    return sorted(out, key=lambda e: e.standing)


_Place = tuple[float, int, int, tuple[int, int]]


def _stand(
    finding: Finding, place: _Place, position: int, deeper: Collection[Category | None]
) -> Standing:
    over = _CONSEQUENCES.get(finding.category, set()) if finding.category is not None else set()
    time, file, line, weakness = place
    return Standing(
        unexplained_end=finding.kind == WEAKEST,
        slowness=finding.category is Category.PERFORMANCE,
        depth=DEPTH[finding.level],
        follows=not over.isdisjoint(deeper),
        summary=_lead(finding),
        time=time,
        file=file,
        line=line,
        weakness=weakness,
        position=position,
    )


def _sorted(findings: Iterable[Finding]) -> list[Finding]:
    """Earliest first: by time across files where every finding has one, else by place."""
    return [f for f, _ in sorted(_placed(findings), key=lambda row: row[1])]


def _placed(findings: Iterable[Finding]) -> list[tuple[Finding, _Place]]:
    """Each with (time, file, line, weakness) among those of its level."""
    items = list(findings)
    files = list(dict.fromkeys(f.evidence[0].file for f in items if f.evidence))
    timed = len(files) > 1 and all(f.time is not None for f in items)

    def place(finding: Finding) -> _Place:
        evidence = finding.evidence[0] if finding.evidence else None
        return (
            (finding.time or 0.0) if timed else 0.0,
            files.index(evidence.file) if evidence is not None else -1,
            finding.starts_at or (evidence.line if evidence else 0),
            (-finding.strength.together, -finding.strength.length),
        )

    return [(f, place(f)) for f in items]


def _lead(finding: Finding) -> int:
    """Place of a symptom among symptoms; 0 for everything deeper."""
    if finding.level is not Level.SYMPTOM:
        return 0
    order = (i for i, kind in enumerate(_LEADS) if finding.kind.startswith(kind))
    return next(order, len(_LEADS))


def _is_sick(finding: Finding) -> bool:
    """Nothing is learned, or numbers are broken, whatever steps are still taken."""
    broken = finding.level is Level.CAUSE and finding.category is Category.NUMERICAL
    return finding.kind == _NOTHING_LEARNED or (broken and finding.kind.startswith("metrics."))


def _explains_values(finding: Finding) -> bool:
    """A data fault that was recognised together with the broken values that it leads to."""
    needs = finding.strength.together >= 1
    return finding.category is Category.DATA and finding.level is Level.CAUSE and needs


def _is_over(finding: Finding, sick: bool = False) -> bool:
    """Training went on after it. Slowness is not got over by going on, nor NaN while it lasts."""
    if finding.category is Category.PERFORMANCE or (
        sick and (finding.category is Category.NUMERICAL or _explains_values(finding))
    ):
        return False
    return finding.survived


def _rivals(first: Finding, other: Finding) -> bool:
    """Another cause that could explain the end as well: same depth, another category or rank."""
    return other.level is first.level and (
        other.category is not first.category or other.kind != first.kind
    )
