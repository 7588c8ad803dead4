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


TRAINERS = "framework"
"""The group of what trains; fabrics are another."""


@dataclass(frozen=True)
class Framework:
    """How a log shows a framework, what advice names it, and which others are set through it."""

    name: str
    shown: re.Pattern[str]
    owns: re.Pattern[str]
    brings: tuple[str, ...]
    group: str
    """Advice is weighed within a group: which fabric is used tells nothing of the trainer."""
    say: str
    """The name that heads its lines in the command of a fix."""


@dataclass(frozen=True)
class FrameworkTable:
    """All of frameworks.yaml, as parsed rows."""

    rows: Mapping[str, Mapping[str, Any]]

    @cached_property
    def frameworks(self) -> tuple[Framework, ...]:
        return tuple(
            Framework(
                n, expression(r["shown"]), expression(r["owns"]), tuple(r["brings"]), r.get("group", TRAINERS), r.get("say", n)
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

    @cached_property
    def _heads(self) -> Mapping[str, Framework]:
        return {f"# {f.say}": f for f in self.frameworks}

    def has_heads(self, command: str) -> bool:
        """The command says for which framework some of its lines are."""
        return "# " in command and any(line in self._heads for line in command.split("\n"))

    def split_by_heads(self, command: str) -> dict[str, list[str]]:
        """The lines of a command by the name that heads them; first, under '', those before any head."""
        parts: dict[str, list[str]] = {"": []}
        at = ""
        for line in command.split("\n"):
            if line in self._heads:
                at = self._heads[line].say
            else:
                parts.setdefault(at, []).append(line)
        return parts

    def keep_lines(self, command: str, used: Collection[str]) -> str:
        """The lines under the head of the run's own framework, of the outer one where it brings others; without such a
        head those before any, which hold everywhere. Where no framework is known and none stand before: all."""
        parts = self.split_by_heads(command)
        of_run = {head: f for head, f in self._heads.items() if f.say in parts and f.name in used}
        brought = {name for f in of_run.values() for name in f.brings}
        own = {head: parts[f.say] for head, f in of_run.items() if f.name not in brought}
        if len(own) == 1:
            return "\n".join(*own.values())
        if own:
            return "\n".join(line for head, lines in own.items() for line in (head, *lines))
        known = any(self._groups.get(name) == TRAINERS for name in used)
        return "\n".join(parts[""]) if parts[""] or known else command

    def fits(self, owners: Collection[str], used: Collection[str]) -> bool:
        """Advice fits a run unless it is of others than those of their group that the run is known to use."""
        for group in {self._groups[name] for name in owners}:
            known = {name for name in used if self._groups.get(name) == group}
            if known and not known & set(owners):
                return False
        return True


def read_lines(examination: Examination, evidence: Collection[Evidence]) -> str:
    """What shows on what a job runs: what is cited, and the first and last lines of its logs."""
    parts = [e.text[:LINE_CHARS] for e in evidence]
    for digest in examination.logs.digests[:MOST_LOGS]:
        head, tail = digest.kept[:HEAD_LINES], digest.kept[HEAD_LINES:][-TAIL_LINES:]
        parts += [text[:LINE_CHARS] for rows in (head, tail) for _, text in rows]
    return "\n".join(parts)
