"""Which rule changed what a finding says, beside which other one, and why? The record behind `--why`.

Every pass over the findings goes through a `Trail`. A pass that names its rules notes each decision with its
partner; of any other pass the trail finds out itself what it changed, so that none can rewrite a finding unseen.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import field
from enum import StrEnum

from firstfault_tools.dataclass import dataclass
from firstfault_tools.findings import Finding

MOST_LINES = 3


class Relation(StrEnum):
    """What one finding is to another."""

    EXPLAINS = "explains"
    """The other follows from it."""
    ECHOES = "echoes"
    """It only reports what happened elsewhere or before."""
    REPEATS = "repeats"
    """It says what another says as well or better."""
    REFINES = "refines"
    """It says more exactly what, where or whose it is."""
    SAME_AS = "same_as"
    """Two tools tell of one event."""
    CONTRADICTS = "contradicts"
    """It shows that the other does not hold here."""


@dataclass(frozen=True, slots=True)
class Rule:
    """Why findings may be related. name: stable, in words joined by hyphens. reason: one clause for a reader."""

    name: str
    relation: Relation
    reason: str


@dataclass(frozen=True, slots=True)
class Decision:
    """A rule that held. became: the finding after it, None where it was dropped. by: the finding it rests on."""

    rule: Rule
    of: Finding
    became: Finding | None
    by: Finding | None = None

    @property
    def change(self) -> str:
        """What is different now: `failure -> symptom`, `rank 3`, `wording`."""
        if self.became is None:
            return "dropped"
        before, now = self.of, self.became
        parts = [f"{before.level} -> {now.level}"] if before.level is not now.level else []
        parts += [
            f"{name} {'unknown' if value is None else value}"
            for name in ("category", "rank", "host", "gpu")
            if (value := getattr(now, name)) != getattr(before, name)
        ]
        parts += ["wording"] if before.title != now.title else []
        parts += ["survived"] if now.survived and not before.survived else []
        return ", ".join(parts) or "evidence"

    @property
    def lines(self) -> tuple[tuple[str, int], ...]:
        """File and line of what it rests on, at most three."""
        quoted = [*self.of.evidence[:1], *(self.by.evidence if self.by is not None else ())]
        return tuple(dict.fromkeys((e.file, e.line) for e in quoted))[:MOST_LINES]


@dataclass(slots=True)
class Trail:
    """All decisions of one incident, in the order in which they were made."""

    decisions: list[Decision] = field(default_factory=list)

    def note(
        self, rule: Rule, of: Finding, became: Finding | None, by: Finding | None = None
    ) -> None:
        """Record one decision; one that changes nothing is none."""
        if became is not of:
            self.decisions.append(Decision(rule, of, became, by))

    def run(
        self, rule: Rule, work: Callable[[Sequence[Finding]], Iterable[Finding]], findings: Sequence[Finding]
    ) -> list[Finding]:  # fmt: skip
        """Findings after a whole pass. What it changed without noting it itself is recorded under `rule`."""
        noted = len(self.decisions)
        after = list(work(findings))
        told = {id(d.of) for d in self.decisions[noted:]}
        for before, now in pair_changes(findings, after):
            if id(before) not in told and (now is None or _differs(before, now)):
                self.note(rule, before, now)
        return after


def _differs(before: Finding, now: Finding) -> bool:
    """A reader would see it; a fact that only tools read is no decision."""
    names = ("level", "category", "rank", "host", "gpu", "title", "page", "survived", "evidence")
    return any(getattr(before, name) != getattr(now, name) for name in names)


def pair_changes(
    before: Sequence[Finding], after: Sequence[Finding]
) -> list[tuple[Finding, Finding | None]]:
    """Findings that are not there any more, each with what stands in its place, None for nothing.

    A finding keeps its kind and the place of its first line; where it loses both, its order decides.
    """
    here = {id(f) for f in after}
    gone = [f for f in before if id(f) not in here]
    if not gone:
        return []
    known = {id(f) for f in before}
    new: dict[tuple[str, str, int], list[Finding]] = defaultdict(list)
    for finding in after:
        if id(finding) not in known:
            new[_place(finding)].append(finding)
    return [(f, new[_place(f)].pop(0) if new[_place(f)] else None) for f in gone]


def _place(finding: Finding) -> tuple[str, str, int]:
    first = finding.evidence[0] if finding.evidence else None
    return (finding.kind, first.file, first.line) if first is not None else (finding.kind, "", 0)
