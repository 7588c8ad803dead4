"""How often was an explanation of this kind right where it was tried? Only then is a cause called confirmed.

What was counted stands in knowledge/tables/precision.yaml, written by `python -m evals.calibrate`: for every kind of
finding that led a verdict, and for the family it belongs to, the independent sources it was tried on, for how many of
them the verdict's sentence was right (category, rank and cause), and for how many the whole answer was. Half counts
where only the category was right.

A kind is seen on few sources, so it borrows from its family: its precision is that of its own sources and of
`BORROWED` more that are as good as the family (the mean of a beta distribution with the family's mean as prior). What
a kind may not borrow is its own record: one whose sentence was ever half right is not confirmed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace

from firstfault.investigation.verdict import Judgement
from firstfault_tools.dataclass import dataclass
from firstfault_tools.facts import Fact
from firstfault_tools.findings import Confidence, Finding, Verdict

CONFIRMED_FROM = 0.99
"""Design: confirmed is said where an explanation of the kind was right nearly always."""

LEAST_SOURCES = 60
"""Sources a family needs. Rule of three: where none of n was wrong, at most 3/n are with 95 % confidence; 60 bound
the share of wrong ones by 5 %."""

BORROWED = 10
"""Weight of the family in sources: as much as the rule of three needs to say anything at all (3/10 < 1/3)."""


@dataclass(frozen=True, slots=True)
class Tried:
    """Independent sources of a kind; for how many its sentence, and its whole answer, was right (or half right)."""

    sources: int = 0
    said: float = 0.0
    named: float = 0.0

    @property
    def share_said(self) -> float:
        return self.said / self.sources if self.sources else 0.0

    @property
    def share_named(self) -> float:
        return self.named / self.sources if self.sources else 0.0


@dataclass(frozen=True)
class PrecisionTable:
    """Counts by kind and by family."""

    kinds: Mapping[str, Tried] = field(default_factory=dict)
    families: Mapping[str, Tried] = field(default_factory=dict)

    @classmethod
    def from_rows(cls, rows: Mapping[str, Mapping[str, Sequence[float]]]) -> PrecisionTable:
        """Table from the parsed file: `{kinds: {kind: [sources, said, named]}, families: ...}`."""
        return cls(
            *(
                {
                    name: Tried(int(row[0]), row[1], row[2])
                    for name, row in rows.get(part, {}).items()
                }
                for part in ("kinds", "families")
            )
        )

    def precision(self, kind: str, family: str) -> float:
        """Share of right answers to expect of a kind; 0 where its family has too few sources, or its record is bad."""
        of_family, of_kind = self.families.get(family, Tried()), self.kinds.get(kind, Tried())
        if of_family.sources < LEAST_SOURCES:
            return 0.0
        if of_kind.sources and of_kind.share_said < CONFIRMED_FROM:
            return 0.0
        right = of_kind.named + BORROWED * of_family.share_named
        return right / (of_kind.sources + BORROWED)


def name_family(finding: Finding) -> str:
    """By which means the cause was named, and how much of the incident it names.

    `line`: a signature; raised: with the place in the program's own code, captured: with values of the line,
    bare: with neither. `tool`: a reader, a comparison or a calculation.
    """
    if not finding.kind.startswith("signature."):
        return "tool"
    if finding.flag(Fact.RAISED):
        return "line, raised"
    return "line, captured" if finding.flag(Fact.CAPTURED) else "line, bare"


def weigh_precision(judgement: Judgement, table: PrecisionTable | None) -> Judgement:
    """Confirmed becomes likely where its kind was not right nearly always; without a table nothing changes."""
    finding = judgement.finding
    if table is None or finding is None or judgement.confidence is not Confidence.CONFIRMED:
        return judgement
    if judgement.verdict is Verdict.HEALTHY:
        return judgement
    if table.precision(finding.kind, name_family(finding)) >= CONFIRMED_FROM:
        return judgement
    return replace(judgement, confidence=Confidence.LIKELY)
