"""`firstfault compare`: what differs between a good and a bad run, ranked by what can explain the bad one."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from firstfault.errors import UsageError
from firstfault.plain_text import show_line, write_json

if TYPE_CHECKING:
    from firstfault.investigation.run_comparison import Compared

SCHEMA = "firstfault.compare/1"
MOST_SHOWN = 12
HELP = """Lay a bad run beside a good one: what is worse, and which difference can explain it.

GOOD and BAD are files or folders: logs, configurations, `env` and `pip freeze` output, nccl-tests
tables, torch.profiler traces. Settings, variables, versions, data, hosts and columns are compared.

\b
Examples:
  firstfault compare good.log bad.log
  firstfault compare runs/monday runs/tuesday --question "half as fast since yesterday"
  firstfault compare good.yaml bad.yaml --all

Exit codes: 0 nothing worse and nothing differs, 1 something does, 2 usage, 3 unreadable,
4 nothing in them could be compared.
"""


@click.command("compare", help=HELP)
@click.argument("good", type=click.Path(exists=True, path_type=Path))
@click.argument("bad", type=click.Path(exists=True, path_type=Path))
@click.option("--question", default="", help="What is worse, in your words.")
@click.option("--all", "every", is_flag=True, help="Show every difference, also unlikely ones.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
def compare(good: Path, bad: Path, question: str, every: bool, as_json: bool) -> None:
    from firstfault.investigation.run_comparison import compare_paths
    from firstfault.workspace import Workspace

    if good.resolve() == bad.resolve():
        raise UsageError(f"GOOD and BAD are both {good}: name two runs")
    workspace = Workspace()
    compared = compare_paths(workspace.knowledge, workspace.spool, good, bad, question)
    if as_json:
        click.echo(write_json(to_json(compared)))
    else:
        for line in write_lines(compared, None if every else MOST_SHOWN):
            click.echo(show_line(line))
    sys.exit(exit_code(compared))


def exit_code(compared: Compared) -> int:
    """4 where nothing could be compared, 1 where something differs or is worse, else 0."""
    result = compared.comparison
    if not result.changes and not (result.stated_good and result.stated_bad):
        return 4
    worse = any(c.worse for c in result.changes)
    return 1 if worse or result.differences or result.nodes.only_bad else 0


def to_json(compared: Compared) -> dict[str, Any]:
    """The object of `--json`, schema firstfault.compare/1."""
    from firstfault_tools.run_comparison.settings import quote_setting

    result = compared.comparison
    return {
        "schema": SCHEMA,
        "answer": result.sentence,
        "effects": [e.value for e in result.effects],
        "changes": [
            {"what": c.what, "unit": c.unit, "good": _finite(c.good), "bad": _finite(c.bad), "worse": c.worse, "effect": c.effect, "over": c.over}
            for c in result.changes
        ],
        "differences": [
            {
                "kind": d.kind.value, "name": d.name, "weight": d.weight,
                "good": None if d.good is None else {"value": quote_setting(d.good), "file": d.good.file, "line": d.good.line},
                "bad": None if d.bad is None else {"value": quote_setting(d.bad), "file": d.bad.file, "line": d.bad.line},
                "explains": [e.value for e in d.explains], "page": d.page, "why": d.why,
            }
            for d in result.differences
        ],
        "hosts": {"only_good": list(result.nodes.only_good), "only_bad": list(result.nodes.only_bad), "shared": result.nodes.shared},
        "settings": {"alike": result.alike, "stated_good": result.stated_good, "stated_bad": result.stated_bad},
        "verdicts": {"good": compared.good_verdict, "bad": compared.bad_verdict},
        "next": list(compared.next_steps),
        "skipped": list(result.notes),
    }  # fmt: skip


def _finite(value: float) -> float | str:
    return value if value == value and abs(value) != float("inf") else str(value)


def write_lines(compared: Compared, most: int | None) -> list[str]:
    """The comparison in plain text; most: differences shown."""
    from firstfault_tools.run_comparison.comparison import name_hosts
    from firstfault_tools.run_comparison.settings import quote_setting

    result = compared.comparison
    lines = [result.sentence, ""]
    lines += [f"good: {compared.good_verdict}", f"bad:  {compared.bad_verdict}", ""]
    if result.changes:
        lines.append("Measured (median of good, of bad):")
        for change in result.changes[: 12 if most else None]:
            mark = "worse" if change.worse else "     "
            unit = f" {change.unit}" if change.unit else ""
            lines.append(f"  {mark}  {change.what}: {change.good:.5g} -> {change.bad:.5g}{unit}  ({change.over})")  # fmt: skip
        lines.append("")
    shown = result.differences[:most]
    if shown:
        lines.append(f"Differences, what can explain it first ({result.alike} settings are alike):")
        for d in shown:
            lines.append(f"  {d.weight:.2f}  {d.kind} {d.name}: {quote_setting(d.good)} -> {quote_setting(d.bad)}")  # fmt: skip
            if d.why:
                lines.append(f"        {d.why} [page {d.page}]")
            places = " / ".join(f"{s.file}:{s.line}" if s.line else s.file for s in (d.good, d.bad) if s)  # fmt: skip
            lines.append(f"        {places}")
        left = len(result.differences) - len(shown)
        if left > 0:
            lines.append(f"  and {left} less likely ones: --all shows them")
        lines.append("")
    if result.nodes.only_bad or result.nodes.only_good:
        bad, good = name_hosts(result.nodes.only_bad), name_hosts(result.nodes.only_good)
        lines.append(f"Hosts: {result.nodes.shared} in both; only in bad: {bad or 'none'}; only in good: {good or 'none'}")  # fmt: skip
        lines.append("")
    lines += [f"Next: {step}" for step in compared.next_steps]
    lines += [f"Not compared: {note}" for note in result.notes]
    return lines


COMMAND = compare
