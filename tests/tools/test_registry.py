"""Tools are found by their presence; a gated finder is imported when a log first holds one of its words."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path

from tests.rows import each_row

from firstfault_tools.registry import (
    Artefact,
    calculators,
    incident_finders,
    line_finders,
    readers,
    readers_for,
)

ROOT = Path(__file__).parents[2]
GATED = {name: finder for name, finder in line_finders().items() if finder.gate}


def test_there_are_tools_of_each_sort() -> None:
    assert len(readers()) > 15
    assert len(calculators()) > 5
    assert len(line_finders()) > 40
    assert len(incident_finders()) > 15


def test_every_gate_is_read_from_the_text() -> None:
    """A gate that is no plain tuple of words would be passed over in silence."""
    written = {
        ".".join(file.relative_to(ROOT / "tools/firstfault_tools").with_suffix("").parts)
        for file in (ROOT / "tools/firstfault_tools").rglob("*.py")
        if "\nGATE = " in file.read_text(encoding="utf-8")
    }
    assert written == set(GATED)


def test_what_must_stand_beside_is_read_from_the_text() -> None:
    """As with gates; and what a finder over all logs asks for is a word, a kind or a number of logs."""
    asked = {name: finder for name, finder in incident_finders().items() if finder.beside}
    written = {
        ".".join(file.relative_to(ROOT / "tools/firstfault_tools").with_suffix("").parts)
        for file in (ROOT / "tools/firstfault_tools").rglob("*.py")
        if "\nBESIDE = " in (text := file.read_text(encoding="utf-8"))
        and "\ndef find_in_incident(" in text
    }
    assert written == set(asked)
    for finder in asked.values():
        assert finder.beside == importlib.import_module(finder.module).BESIDE
        assert all(s in ("logs:2",) for s in finder.beside if s.startswith("logs:"))


def test_a_reader_is_imported_where_it_would_know_the_artefact() -> None:
    """Signs are what a reader cannot do without: whoever recognises a file is asked for it."""
    files = [p for p in (ROOT / "evals/cases/dev").glob("*/*/*") if p.name != "case.yaml"]
    missed = [
        f"{reader.name}: {path}"
        for path in [f for f in files if f.is_file() and f.name != "log.txt"] + files[::20]
        if path.is_file()
        for reader in readers()
        if reader.recognise(path.name, head := Artefact(path.name, path).head())
        and reader not in readers_for(path.name, head)
    ]
    assert not missed


@each_row("name", GATED)
def test_gate_is_that_of_the_module(name: str) -> None:
    module = importlib.import_module(GATED[name].module)
    assert GATED[name].gate == module.GATE
    assert all(isinstance(word, str) and word for word in module.GATE)


@each_row("name", GATED)
def test_module_finds_nothing_without_its_words(name: str) -> None:
    """On real lines of all cases, with those that hold a word of the gate left out."""
    module = importlib.import_module(GATED[name].module)
    for log in sorted((ROOT / "evals/cases/dev").glob("*/[b-m]*/log.txt"))[::4]:
        lines = [
            (number, text)
            for number, text in enumerate(log.read_text(errors="replace").splitlines(), start=1)
            if not any(word in text for word in module.GATE)
        ]
        assert list(module.find_in_lines(lines, "log.txt")) == []


_PROGRAM = """
import json, sys
from firstfault_tools.registry import line_finders
for find in line_finders().values():
    list(find([(1, sys.argv[1])], "log"))
print(json.dumps(sorted(sys.modules)))
"""


@each_row(
    ("line", "imported"),
    [("all is well", False), ("Last error: socket closed by the remote peer", True)],
)
def test_gated_modules_are_imported_at_need(line: str, imported: bool) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, line],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": str(ROOT / "tools")},
    )
    modules = json.loads(done.stdout)
    assert ("firstfault_tools.collectives.last_error" in modules) is imported
    assert "firstfault_tools.hardware.network.addresses" not in modules
