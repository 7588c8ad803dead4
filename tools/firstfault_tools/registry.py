"""Which tools exist? Discovery of readers (artefact -> findings) and calculators (parameters -> result).

A module below `firstfault_tools` that defines `READER` or `CALCULATOR` is found by its presence:
nothing else is edited to add one. Modules whose name starts with an underscore are passed over.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import cache
from importlib.util import cache_from_source
from pathlib import Path
from types import MappingProxyType
from typing import Any

from firstfault_tools.artefact import Artefact as Artefact
from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Finding, Json
from firstfault_tools.knowledge.pack import load_pressed
from firstfault_tools.log.kept import fold_bytes, fold_lines
from firstfault_tools.roles import Role

EMPTY_FILE = "empty file"
"""Why an artefact without a byte is passed over; it holds nothing that could be misunderstood."""


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
    only. owns: the artefact is not a log, so the log scan leaves it alone. role: its part in the incident.
    series: states at several times are compared, so two that are alike say that nothing moved.
    """

    name: str
    summary: str
    recognise: Callable[[str, bytes], bool]
    read: Callable[[tuple[Artefact, ...]], Reading]
    owns: bool = True
    role: Role = Role.COUNTER
    series: bool = False


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
        if not self.may_find(lines):
            return ()
        return _load_finder(self.module)(lines, file)

    def may_find(self, lines: Lines) -> bool:
        """False where it finds nothing in these lines, nor in any part of them."""
        from firstfault_tools.hardware.excerpt import may_hold

        return not self.gate or may_hold(lines, self.gate)


@cache
def _load_finder(module: str) -> Callable[[Lines, str], Iterable[Finding]]:
    """Importing a module that is there already takes longer than to find nothing in a short log."""
    found: Callable[[Lines, str], Iterable[Finding]] = importlib.import_module(module).find_in_lines
    return found


@dataclass(frozen=True, slots=True)
class ReaderSigns:
    """A reader that is imported only where an artefact holds one of its module's `SIGNS`.

    A sign is text in the first 64 KiB, `name:` and a part of the name in small letters, or `re:` and an expression.
    Without signs the reader always looks.
    """

    module: str
    signs: tuple[str, ...]

    def may_know(self, name: str, head: bytes, shapes: bytes) -> bool:
        """Whether the reader has to look at the artefact. shapes: the lines of the head, folded."""
        return not self.signs or any(
            _holds_sign(sign, name.lower(), head, shapes) for sign in self.signs
        )


def _holds_sign(sign: str, name: str, head: bytes, shapes: bytes) -> bool:
    if sign.startswith("name:"):
        return sign[5:] in name
    if sign.startswith("re:"):
        return _sign_pattern(sign[3:]).search(head) is not None
    text = sign.encode("latin-1")
    if b"\n" in text:
        return text in head
    return fold_bytes(text) in shapes and text in head


@cache
def _sign_pattern(sign: str) -> re.Pattern[bytes]:
    return expression(sign.encode())


_READER, _CALCULATOR = "\nREADER = ", "\nCALCULATOR = "
_IN_LINES, _IN_INCIDENT = "\ndef find_in_lines(", "\ndef find_in_incident("
_MARKS = (_READER, _CALCULATOR, _IN_LINES, _IN_INCIDENT)
_GIVEN = ("GATE", "SIGNS", "BESIDE")
_WORDS = re.compile(rb"\n(GATE|SIGNS|BESIDE) = (\([^\n]*\)|\(\n.*?\n\))(?:\n|  #)", re.DOTALL)


@cache
def _modules() -> Mapping[str, Mapping[str, Mapping[str, Sequence[str]]]]:
    """Mark -> names of the modules below `firstfault_tools` that hold it, each with what it gives; none is imported.

    In the order in which finders run: room by room, a room's own modules before those of the rooms
    inside it, which may build on what those found.
    """
    import firstfault_tools

    root = Path(firstfault_tools.__path__[0])
    modules: dict[str, dict[str, dict[str, list[str]]]] = load_pressed(
        root, ".py", lambda file: _read_module(file, root), _sort_modules, _kept_beside(root)
    )
    return MappingProxyType(modules)


def _sort_modules(rows: list[dict[str, Any]]) -> dict[str, dict[str, dict[str, list[str]]]]:
    modules: dict[str, dict[str, dict[str, list[str]]]] = {mark: {} for mark in _MARKS}
    for row in sorted(rows, key=lambda row: (row["parts"][0], len(row["parts"]), row["parts"])):
        if row["parts"][-1].startswith("_"):
            continue
        name = ".".join(("firstfault_tools", *row["parts"])).removesuffix(".py")
        for mark in row["marks"]:
            modules[mark][name] = {given: row[given] for given in _GIVEN}
    return modules


def _kept_beside(root: Path) -> Path | None:
    """Where it is kept what the modules define: with their bytecode, since it goes stale as that does."""
    if sys.dont_write_bytecode:
        return None
    return Path(cache_from_source(str(root / "__init__.py"))).with_name("modules.pack")


def _read_module(file: Path, root: Path) -> dict[str, Any]:
    from ast import literal_eval

    source = file.read_bytes()
    words = {m[1].decode(): list(literal_eval(m[2].decode())) for m in _WORDS.finditer(source)}
    return {
        "parts": file.relative_to(root).parts,
        "marks": [mark for mark in _MARKS if mark.encode() in source],
        **{name: words.get(name, []) for name in _GIVEN},
    }


def _modules_with(mark: str) -> Iterator[tuple[str, Any]]:
    for name in _modules()[mark]:
        yield name, importlib.import_module(name)


@cache
def readers() -> tuple[Reader, ...]:
    """Every reader, by name. Imports only the modules that define one."""
    return tuple(sorted((m.READER for _, m in _modules_with(_READER)), key=lambda r: r.name))


def readers_for(name: str, head: bytes) -> tuple[Reader, ...]:
    """Readers that may know an artefact, by name of the reader; only their modules are imported."""
    shapes = b"\n".join(fold_lines(head))
    asked = (s.module for s in _reader_signs() if s.may_know(name, head, shapes))
    found: list[Reader] = [importlib.import_module(module).READER for module in asked]
    return tuple(sorted(found, key=lambda r: r.name))


@cache
def _reader_signs() -> tuple[ReaderSigns, ...]:
    return tuple(
        ReaderSigns(name, tuple(given["SIGNS"])) for name, given in _modules()[_READER].items()
    )


@cache
def line_finders() -> Mapping[str, LineFinder]:
    """Every finder of pasted material, by name. Imports none of them."""
    return {
        name.removeprefix("firstfault_tools."): LineFinder(name, tuple(given["GATE"]))
        for name, given in _modules()[_IN_LINES].items()
    }


@dataclass(frozen=True, slots=True)
class IncidentFinder:
    """The function `find_in_incident(incident, findings)` of a module that lays all logs beside each other.

    beside: without one of these it finds nothing, the module's literal `BESIDE`: a word of a kept line, `kind:` and
    how a finding's kind begins, or `logs:2`; the module is imported where one is there.
    """

    module: str
    beside: tuple[str, ...] = ()

    def __call__(self, incident: Any, findings: Sequence[Finding]) -> Iterable[Finding]:
        if self.beside and not self._may_find(incident, findings):
            return ()
        found: Iterable[Finding] = importlib.import_module(self.module).find_in_incident(
            incident, findings
        )
        return found

    def _may_find(self, incident: Any, findings: Sequence[Finding]) -> bool:
        kinds = tuple(s[5:] for s in self.beside if s.startswith("kind:"))
        if kinds and any(f.kind.startswith(kinds) for f in findings):
            return True
        if "logs:2" in self.beside and len(incident.digests) > 1:
            return True
        words = tuple(s for s in self.beside if not s.startswith(("kind:", "logs:")))
        return bool(words) and any(d.kept.holds(words) for d in incident.digests)


@cache
def incident_finders() -> Mapping[str, IncidentFinder]:
    """Functions `find_in_incident(incident, findings)` of modules that lay all logs beside each other.

    incident: a `causality.incident.LogIncident`. findings: what is known so far, never changed.
    """
    return {
        name.removeprefix("firstfault_tools."): IncidentFinder(name, tuple(given["BESIDE"]))
        for name, given in _modules()[_IN_INCIDENT].items()
    }


@cache
def calculators() -> tuple[Calculator, ...]:
    """Every calculator, by name."""
    found = (m.CALCULATOR for _, m in _modules_with(_CALCULATOR))
    return tuple(sorted(found, key=lambda c: c.name))
