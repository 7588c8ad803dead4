"""Which commands does a capture run, in which order, why, and for how long? Read from steps.yaml."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from firstfault_tools.dataclass import dataclass
from firstfault_tools.errors import InvalidParameter

FILE = Path(__file__).with_name("steps.yaml")


class Scope(StrEnum):
    """How often a step runs."""

    JOB = "job"
    """Once, from here."""
    HOST = "host"
    """Once on every host or in every pod."""
    TARGET = "target"
    """Once for every host or pod, from here: it answers for those that are dead, too."""
    PROCESS = "process"
    """Once for every training process, on its host."""
    ANY = "any"
    """On one host: the first that answers; what answers speaks for the whole job."""


class Manager(StrEnum):
    """Who started the job, and so by what its hosts are reached."""

    LOCAL = "local"
    SSH = "ssh"
    SLURM = "slurm"
    KUBERNETES = "kubernetes"


@dataclass(frozen=True, slots=True)
class Step:
    """One thing to capture. commands: argument lists with {fields}; the next is tried where one is missing."""

    id: str
    what: str
    why: str
    scope: Scope
    commands: tuple[tuple[str, ...], ...]
    reads: str
    limit_s: float
    source: str
    needs: str = ""
    managers: frozenset[Manager] = frozenset(Manager)
    suffix: str = "txt"
    binary: bool = False
    diagnosed: bool = True
    after: str = ""
    pause_s: float = 0.0

    def fill(self, fields: Mapping[str, str]) -> tuple[tuple[str, ...], ...]:
        """Commands with their fields filled in. A whole-argument field may give several arguments.

        Commands that need a field which is not known are left out.
        """
        filled = (_fill_command(command, fields) for command in self.commands)
        return tuple(command for command in filled if command)


def _fill_command(command: tuple[str, ...], fields: Mapping[str, str]) -> tuple[str, ...]:
    out: list[str] = []
    for part in command:
        whole = part[1:-1] if part.startswith("{") and part.endswith("}") else ""
        if whole:
            if not fields.get(whole):
                return ()
            # NUL parts the arguments: a file name may hold any other character
            out += fields[whole].split("\0")
            continue
        for name, value in fields.items():
            if f"{{{name}}}" in part:
                if not value:
                    return ()
                part = part.replace(f"{{{name}}}", value)
        out.append(part)
    return tuple(out)


@cache
def read_steps(file: Path = FILE) -> tuple[Step, ...]:
    """All steps in the order in which they are taken. Raises InvalidParameter."""
    rows = yaml.safe_load(file.read_text(encoding="utf-8"))["steps"]
    steps = tuple(_read_step(row) for row in rows)
    if len({step.id for step in steps}) != len(steps):
        raise InvalidParameter("steps", f"{file.name}: an id stands twice")
    return steps


def _read_step(row: Mapping[str, Any]) -> Step:
    try:
        return Step(
            id=row["id"],
            what=row["what"],
            why=row["why"],
            scope=Scope(row["scope"]),
            commands=tuple(tuple(map(str, command)) for command in row["commands"]),
            reads=row["reads"],
            limit_s=float(row["limit_s"]),
            source=row["source"],
            needs=row.get("needs", ""),
            managers=frozenset(map(Manager, row.get("managers", list(Manager)))),
            suffix=row.get("suffix", "txt"),
            binary=bool(row.get("binary", False)),
            diagnosed=bool(row.get("diagnosed", True)),
            after=row.get("after", ""),
            pause_s=float(row.get("pause_s", 0)),
        )
    except (KeyError, ValueError) as error:
        raise InvalidParameter("steps", f"{row.get('id', row)}: {error}") from error


def select_steps(
    manager: Manager, only: frozenset[str] = frozenset(), skip: frozenset[str] = frozenset()
) -> tuple[Step, ...]:
    """Steps for jobs of this manager. Raises InvalidParameter for a name that no step has."""
    known = {step.id for step in read_steps()}
    if unknown := sorted((only | skip) - known):
        raise InvalidParameter(
            "step", f"{', '.join(unknown)}: no such step; {', '.join(sorted(known))}"
        )
    return tuple(
        step
        for step in read_steps()
        if manager in step.managers and step.id not in skip and (not only or step.id in only)
    )
