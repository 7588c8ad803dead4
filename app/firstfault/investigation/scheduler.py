"""Which scheduler does the job run on, and which lines of a command are for it?

What shows a scheduler and what belongs to it alone is data: schedulers.json. A page writes what is done on each one
below the other; only where nothing read tells which it is does a person see both, each under its name.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from functools import lru_cache
from pathlib import Path

from firstfault.investigation.stack import FrameworkTable
from firstfault_tools.expressions import expression


@lru_cache(maxsize=1)
def schedulers() -> FrameworkTable:
    """The rows of schedulers.json."""
    told = Path(__file__).with_name("schedulers.json").read_text(encoding="utf-8")
    return FrameworkTable(json.loads(told))


def find_schedulers(text: str) -> tuple[str, ...]:
    """Schedulers that lines of logs and the names of their files show."""
    return tuple(sorted(schedulers().shown(text)))


def advised_for(advice: str) -> frozenset[str]:
    """Schedulers whose own words the advice holds."""
    return schedulers().owners(advice)


def suits(advice: str, runs_on: Collection[str]) -> bool:
    """Advice is not for another scheduler than that of the job, nor what this one does itself."""
    return schedulers().fits(advised_for(advice), runs_on) and not _is_ruled_out(advice, runs_on)


def _is_ruled_out(advice: str, runs_on: Collection[str]) -> bool:
    """A scheduler of the job starts the containers, so that nobody starts one by hand."""
    ruled = (str(schedulers().rows[name].get("rules_out", "")) for name in runs_on)
    return any(words and expression(words).search(advice) for words in ruled)


def keep_lines(command: str, runs_on: Collection[str]) -> str:
    """The lines of a command that are for the job's scheduler; each under its name where it may be either."""
    if not advised_for(command) and not _is_ruled_out(command, runs_on):
        return command
    heads = {name: f"# {row['say']}" for name, row in schedulers().rows.items()}
    rows = [
        (advised_for(part), part)
        for line in command.split("\n")
        for part in _split(line)
        if part not in heads.values() and suits(part, runs_on)
    ]
    told = {name for owners, _ in rows for name in owners}
    if len(told) < 2:
        return "\n".join(part for _, part in rows)
    out = [part for owners, part in rows if not owners]
    for name in heads:
        out += [heads[name], *(part for owners, part in rows if name in owners)]
    return "\n".join(out)


def choose_scheduler(command: str) -> tuple[tuple[str, str], ...]:
    """(scheduler, its lines) of a command that holds them for several, each with the lines that are for any."""
    parts = schedulers().split_by_heads(command)
    own = {name: lines for name, lines in parts.items() if name}
    return (
        tuple((name, "\n".join([*parts[""], *lines])) for name, lines in own.items())
        if len(own) > 1
        else ()
    )


def _split(line: str) -> list[str]:
    """A line whose commands are of several schedulers as one line for each of them."""
    return line.split("; ") if len(advised_for(line)) > 1 else [line]
