"""Which frameworks and fabric does the run use, and whose option is a piece of advice?

An option of one framework is no advice for a run of another, nor a RoCE setting for InfiniBand. What shows a framework, and what belongs to it alone,
is data: knowledge/tables/frameworks.yaml. Where the logs show no framework nothing is left out, and advice that
names none comes first.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from functools import cached_property
from typing import Any

from firstfault.investigation.examination import Examination
from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Evidence

MOST_LOGS = 8
HEAD_LINES, TAIL_LINES, LINE_CHARS = 2000, 500, 400


@dataclass(frozen=True)
class Framework:
    """How a log shows a framework, what advice names it, and which others are set through it."""

    name: str
    shown: re.Pattern[str]
    owns: re.Pattern[str]
    brings: tuple[str, ...]
    group: str
    """Advice is weighed within a group: which fabric is used tells nothing of the trainer."""


@dataclass(frozen=True)
class FrameworkTable:
    """All of frameworks.yaml, as parsed rows."""

    rows: Mapping[str, Mapping[str, Any]]

    @cached_property
    def frameworks(self) -> tuple[Framework, ...]:
        return tuple(
            Framework(
                n, expression(r["shown"]), expression(r["owns"]), tuple(r["brings"]), r.get("group", "framework")
            )
            for n, r in self.rows.items()
        )  # fmt: skip

    @cached_property
    def _groups(self) -> Mapping[str, str]:
        return {f.name: f.group for f in self.frameworks}

    def owners(self, advice: str) -> frozenset[str]:
        """Frameworks whose options or names the advice holds."""
        return frozenset(f.name for f in self.frameworks if f.owns.search(advice))

    def shown(self, text: str) -> frozenset[str]:
        """Frameworks that a text of log lines shows, with those that they bring."""
        found = [f for f in self.frameworks if f.shown.search(text)]
        return frozenset(name for f in found for name in (f.name, *f.brings))

    def fits(self, owners: Collection[str], used: Collection[str]) -> bool:
        """Advice fits a run unless it is of others than those of their group that the run is known to use."""
        for group in {self._groups[name] for name in owners}:
            known = {name for name in used if self._groups.get(name) == group}
            if known and not known & set(owners):
                return False
        return True


def read_frameworks(examination: Examination, evidence: Collection[Evidence], table: FrameworkTable) -> frozenset[str]:  # fmt: skip
    """Frameworks of the run, from the first and last lines of its logs and from what is cited."""
    return table.shown(read_lines(examination, evidence))


def read_lines(examination: Examination, evidence: Collection[Evidence]) -> str:
    """What shows on what a job runs: what is cited, and the first and last lines of its logs."""
    parts = [e.text[:LINE_CHARS] for e in evidence]
    for digest in examination.logs.digests[:MOST_LOGS]:
        head, tail = digest.kept[:HEAD_LINES], digest.kept[HEAD_LINES:][-TAIL_LINES:]
        parts += [text[:LINE_CHARS] for rows in (head, tail) for _, text in rows]
    return "\n".join(parts)
