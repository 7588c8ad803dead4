"""Which relations between findings does data state? Rows of relations.json, tried in order.

A row names what a finding must be (`of`), what must stand beside it (`by`), what both must share, and what
becomes of it. Within a stage the first row that holds decides, and all rows look at the same findings.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from firstfault_tools.correlation.decisions import Relation, Rule, Trail
from firstfault_tools.dataclass import dataclass
from firstfault_tools.errors import UnreadableArtefact
from firstfault_tools.finding_roles import FindingRole
from firstfault_tools.findings import Category, Finding, Level
from firstfault_tools.placement.table import same_host

DROPPED = "dropped"
LIVE = "live"
"""What was set aside, since training went on after it, counts again."""

_MATCH = {"kinds", "not_kinds", "roles", "not_roles", "levels", "categories", "live", "outlived", "ranked", "facts"}  # fmt: skip
_ROW = {"rule", "stage", "relation", "of", "by", "given", "same", "not_later_s", "within_lines", "later", "becomes", "adds", "reason"}  # fmt: skip
_SHARED = {"host", "rank", "file", "subject"}
_SUBJECTS = ("pci_address", "device", "server", "target")
"""Facts that name what an event befell."""


@dataclass(frozen=True, slots=True)
class Match:
    """What a finding must be; an empty part asks for nothing."""

    kinds: tuple[str, ...] = ()
    not_kinds: tuple[str, ...] = ()
    roles: tuple[FindingRole, ...] = ()
    not_roles: tuple[FindingRole, ...] = ()
    levels: tuple[Level, ...] = ()
    categories: tuple[Category, ...] = ()
    live: bool = False
    outlived: bool = False
    ranked: bool = False
    facts: Mapping[str, Sequence[object]] | None = None

    def holds(self, finding: Finding) -> bool:
        """Whether a finding is all of that; kinds and roles each: one of them."""
        return (
            (not self.levels or finding.level in self.levels)
            and (not self.categories or finding.category in self.categories)
            and (not self.kinds or _is_kind(finding.kind, self.kinds))
            and not _is_kind(finding.kind, self.not_kinds)
            and (not self.roles or any(map(finding.has, self.roles)))
            and not any(map(finding.has, self.not_roles))
            and not (self.live and finding.survived)
            and not (self.outlived and not finding.survived)
            and not (self.ranked and finding.rank is None)
            and all(finding.fact(k) in v for k, v in (self.facts or {}).items())
        )


@dataclass(frozen=True, slots=True)
class RelationRow:
    """One row: the rule, both sides, what they share, and what becomes of the one."""

    rule: Rule
    stage: str
    of: Match
    by: Match | None
    given: str
    same: tuple[str, ...]
    not_later_s: float | None
    within_lines: int | None
    later: bool
    becomes: str
    adds: str

    def partner(self, finding: Finding, findings: Sequence[Finding]) -> Finding | None:
        """What it rests on, None where nothing is there."""
        if self.by is None:
            return None
        return next((f for f in findings if self.by.holds(f) and self._fits(finding, f)), None)

    def change(self, finding: Finding) -> Finding | None:
        """The finding after the rule."""
        if self.becomes == DROPPED:
            return None
        if self.becomes == LIVE:
            return replace(finding, facts={**finding.facts, "survived": False})
        level = Level(self.becomes) if self.becomes else finding.level
        return replace(finding, level=level, title=finding.title + self.adds)

    def _fits(self, of: Finding, by: Finding) -> bool:
        if by is of:
            return False
        late = self.not_later_s
        if late is not None and of.time is not None and by.time is not None and by.time > of.time + late:  # fmt: skip
            return False
        if self.later and not _ends_later(of, by):
            return False
        if self.within_lines is not None and not _begin_together(of, by, self.within_lines):
            return False
        return all(_SHARES[name](of, by) for name in self.same)


def _begin_together(of: Finding, by: Finding, lines: int) -> bool:
    """Both begin in one log, within so many lines of each other."""
    if not of.evidence or not by.evidence or of.evidence[0].file != by.evidence[0].file:
        return False
    return abs(of.evidence[0].line - by.evidence[0].line) <= lines


def _ends_later(of: Finding, by: Finding) -> bool:
    """The last that is quoted of the one stands in the same log behind the last of the other."""
    last = {e.file: e.line for e in of.evidence}
    return any(e.file in last and e.line > last[e.file] for e in by.evidence[-1:])


def _share_host(of: Finding, by: Finding) -> bool:
    """Unknown hosts fit; a management controller is its host."""
    one, other = ((f.host or "").lower().removesuffix("-bmc") for f in (of, by))
    return not one or not other or same_host(one, other)


def _share_subject(of: Finding, by: Finding) -> bool:
    """What both name is the same thing, and both name something."""
    named = [(of.fact(n), by.fact(n)) for n in _SUBJECTS if of.fact(n) and by.fact(n)]
    return bool(named) and all(one == other for one, other in named)


_SHARES: Mapping[str, Callable[[Finding, Finding], bool]] = {
    "host": _share_host,
    "rank": lambda of, by: of.rank == by.rank,
    "file": lambda of, by: {e.file for e in of.evidence} & {e.file for e in by.evidence} != set(),
    "subject": _share_subject,
}


def relate(
    stage: str,
    findings: Sequence[Finding],
    trail: Trail,
    beside: Sequence[Finding] | None = None,
    given: frozenset[str] = frozenset(),
) -> list[Finding]:
    """Findings after the rows of a stage.

    beside: where their partners are looked for, else among themselves. given: what is true of the incident (`trained`).
    """
    rows = rows_of(stage, given)
    others = findings if beside is None else beside
    decided = (decide(rows, finding, others, trail) for finding in findings)
    return [finding for finding in decided if finding is not None]


def rows_of(stage: str, given: frozenset[str] = frozenset()) -> tuple[RelationRow, ...]:
    """Rows of a stage whose condition is true of the incident."""
    return tuple(
        r for r in relation_rows() if r.stage == stage and (not r.given or r.given in given)
    )


def decide(
    rows: Sequence[RelationRow], finding: Finding, findings: Sequence[Finding], trail: Trail
) -> Finding | None:
    """The finding after the first row that holds; None where that drops it."""
    for row in rows:
        if not row.of.holds(finding):
            continue
        partner = row.partner(finding, findings)
        if partner is not None or row.by is None:
            became = row.change(finding)
            trail.note(row.rule, finding, became, partner)
            return became
    return finding


@cache
def relation_rows() -> tuple[RelationRow, ...]:
    """All rows, in order. A wrong word is an error that names the row."""
    path = Path(__file__).with_name("relations.json")
    return tuple(read_row(row) for row in json.loads(path.read_text(encoding="utf-8")))


def read_row(row: Mapping[str, Any]) -> RelationRow:
    """One row of the file; raises `UnreadableArtefact` naming rule and word."""
    name = str(row.get("rule"))
    if strange := row.keys() - _ROW:
        raise UnreadableArtefact(f"relation {name}: unknown fields {sorted(strange)}")
    if strange := set(row.get("same") or ()) - _SHARED:
        raise UnreadableArtefact(f"relation {name}: 'same' knows {sorted(_SHARED)}, not {sorted(strange)}")  # fmt: skip
    try:
        becomes = str(row.get("becomes") or "")
        return RelationRow(
            rule=Rule(name, Relation(row["relation"]), str(row["reason"])),
            stage=str(row["stage"]),
            of=_read_match(row["of"]),
            by=_read_match(row["by"]) if row.get("by") is not None else None,
            given=str(row.get("given") or ""),
            same=tuple(row.get("same") or ()),
            not_later_s=row.get("not_later_s"),
            within_lines=row.get("within_lines"),
            later=bool(row.get("later")),
            becomes=becomes if becomes in ("", DROPPED, LIVE) else Level(becomes),
            adds=str(row.get("adds") or ""),
        )
    except (KeyError, ValueError, TypeError) as error:
        raise UnreadableArtefact(f"relation {name}: {error}") from error


def _read_match(row: Mapping[str, Any]) -> Match:
    if strange := row.keys() - _MATCH:
        raise ValueError(f"unknown words {sorted(strange)}")
    return Match(
        kinds=tuple(row.get("kinds") or ()),
        not_kinds=tuple(row.get("not_kinds") or ()),
        roles=tuple(map(FindingRole, row.get("roles") or ())),
        not_roles=tuple(map(FindingRole, row.get("not_roles") or ())),
        levels=tuple(map(Level, row.get("levels") or ())),
        categories=tuple(map(Category, row.get("categories") or ())),
        live=bool(row.get("live")),
        outlived=bool(row.get("outlived")),
        ranked=bool(row.get("ranked")),
        facts=row.get("facts"),
    )


def _is_kind(kind: str, kinds: Sequence[str]) -> bool:
    return any(kind.startswith(k[:-1]) if k.endswith("*") else kind == k for k in kinds)
