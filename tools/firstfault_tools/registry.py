"""Which tools exist? Discovery of readers (artefact -> findings) and calculators (parameters -> result).

A module below `firstfault_tools` that defines `READER` or `CALCULATOR` is found by its presence:
nothing else is edited to add one. Modules whose name starts with an underscore are passed over.
"""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from firstfault_tools.findings import Finding, Json

HEAD_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class Artefact:
    """One file of an incident as a reader sees it: a display name and its bytes on disk."""

    name: str
    path: Path

    def head(self) -> bytes:
        """First 64 KiB, enough to recognise a format."""
        with self.path.open("rb") as stream:
            return stream.read(HEAD_BYTES)

    def data(self, limit: int = 512 * 1024 * 1024) -> bytes:
        """Whole content up to `limit` bytes."""
        with self.path.open("rb") as stream:
            return stream.read(limit)

    def text(self) -> str:
        """Whole content as text; undecodable bytes become U+FFFD."""
        return self.data().decode("utf-8", errors="replace")


@dataclass(frozen=True, slots=True)
class Reading:
    """What a reader got out of one or several artefacts of its kind.

    findings: facts for the diagnosis. data: a JSON-able summary for the page, MCP and the model.
    """

    findings: tuple[Finding, ...] = ()
    data: Mapping[str, Json] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class Reader:
    """A deterministic reader of one kind of artefact.

    recognise(name, head) must be cheap and must not raise. read gets *all* artefacts of its kind in
    the incident at once, since ranks only mean something beside each other. read raises `ToolError`s
    only. owns: the artefact is not a log, so the log scan leaves it alone.
    """

    name: str
    summary: str
    recognise: Callable[[str, bytes], bool]
    read: Callable[[tuple[Artefact, ...]], Reading]
    owns: bool = True


@dataclass(frozen=True, slots=True)
class Calculator:
    """A deterministic calculator offered to the command line, MCP and the model.

    parameters: JSON schema of the keyword arguments of `run`; `run` returns a JSON-able mapping whose
    keys carry units.
    """

    name: str
    summary: str
    parameters: Mapping[str, Any]
    run: Callable[..., Mapping[str, Json]]


Lines = Sequence[tuple[int, str]]
"""1-based number and normalised, redacted text."""


@dataclass(frozen=True, slots=True)
class LineFinder:
    """The function `find_in_lines(lines, file)` of a module that reads material pasted inside logs.

    gate: words without which it finds nothing, the module's literal `GATE`; the module is imported when
    a log first holds one of them. Without a gate it must be quick to find nothing.
    """

    module: str
    gate: tuple[str, ...] = ()

    def __call__(self, lines: Lines, file: str) -> Iterable[Finding]:
        from firstfault_tools.hardware.excerpt import may_hold

        if self.gate and not may_hold(lines, self.gate):
            return ()
        found: Iterable[Finding] = importlib.import_module(self.module).find_in_lines(lines, file)
        return found


_READER, _CALCULATOR = b"\nREADER = ", b"\nCALCULATOR = "
_IN_LINES, _IN_INCIDENT = b"\ndef find_in_lines(", b"\ndef find_in_incident("
_GATE = re.compile(rb"\nGATE = (\([^\n]*\)|\(\n.*?\n\))(?:\n|  #)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class _Module:
    """What a module's text tells of it."""

    marks: frozenset[bytes]
    gate: tuple[str, ...]


@cache
def _modules() -> Mapping[str, _Module]:
    """What every module below `firstfault_tools` defines, told from its text without importing it.

    In the order in which finders run: room by room, a room's own modules before those of the rooms
    inside it, which may build on what those found.
    """
    import firstfault_tools

    found: dict[str, _Module] = {}
    marks = (_READER, _CALCULATOR, _IN_LINES, _IN_INCIDENT)
    root = Path(firstfault_tools.__path__[0])
    paths = (file.relative_to(root) for file in root.rglob("[!_]*.py"))
    for path in sorted(paths, key=lambda p: (p.parts[0], len(p.parts), p)):
        source = (root / path).read_bytes()
        name = ".".join((root.name, *path.with_suffix("").parts))
        gate = _GATE.search(source)
        found[name] = _Module(
            marks=frozenset(mark for mark in marks if mark in source),
            gate=tuple(ast.literal_eval(gate[1].decode())) if gate is not None else (),
        )
    return MappingProxyType(found)


def _modules_with(mark: bytes) -> Iterator[tuple[str, Any]]:
    for name, module in _modules().items():
        if mark in module.marks:
            yield name, importlib.import_module(name)


@cache
def readers() -> tuple[Reader, ...]:
    """Every reader, by name. Imports only the modules that define one."""
    return tuple(sorted((m.READER for _, m in _modules_with(_READER)), key=lambda r: r.name))


@cache
def line_finders() -> Mapping[str, LineFinder]:
    """Every finder of pasted material, by name. Imports none of them."""
    return {
        name.removeprefix("firstfault_tools."): LineFinder(name, module.gate)
        for name, module in _modules().items()
        if _IN_LINES in module.marks
    }


IncidentFinder = Callable[[Any, Sequence[Finding]], Iterable[Finding]]


@cache
def incident_finders() -> Mapping[str, IncidentFinder]:
    """Functions `find_in_incident(incident, findings)` of modules that lay all logs beside each other.

    incident: a `causality.incident.LogIncident`. findings: what is known so far, never changed.
    """
    return {
        name.removeprefix("firstfault_tools."): module.find_in_incident
        for name, module in _modules_with(_IN_INCIDENT)
    }


@cache
def calculators() -> tuple[Calculator, ...]:
    """Every calculator, by name."""
    found = (m.CALCULATOR for _, m in _modules_with(_CALCULATOR))
    return tuple(sorted(found, key=lambda c: c.name))
