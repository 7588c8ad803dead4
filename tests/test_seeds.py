"""docs/seeds.md: every item of the mission once, in a known state, and each test, row or command that is named is there."""

from __future__ import annotations

import ast
import re
from collections import Counter
from functools import cache
from pathlib import Path

from firstfault_tools.knowledge.pack import read_yaml

ROOT = Path(__file__).parent.parent
ITEMS, BAR = 156, 145
STATES = {"works", "better", "partly", "missing"}
DONE = {"works", "better"}
_ROW = re.compile(r"^\| (?P<item>.+) \| (?P<state>\w+) \| (?P<shown>.+) \|$")
_TEST = re.compile(r"`(tests/[^`\[]+?\.py)(?:::(\w+))?(?:\[([\w-]+)\])?`")
_COMMAND = re.compile(r"`firstfault ([a-z-]+)[^`]*`")


def rows() -> list[re.Match[str]]:
    lines = (ROOT / "docs" / "seeds.md").read_text(encoding="utf-8").splitlines()
    return [m for line in lines if (m := _ROW.match(line)) is not None and m["item"] != "item"]


@cache
def functions(file: str) -> frozenset[str]:
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    return frozenset(n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef))


@cache
def tried() -> frozenset[str]:
    """Ids of the rows of tests/seeds/items."""
    files = sorted((ROOT / "tests" / "seeds" / "items").glob("*.yaml"))
    return frozenset(r["id"] for f in files for r in read_yaml(f.read_text(encoding="utf-8")))


def test_every_item_stands_there_in_a_known_state() -> None:
    found = rows()
    assert len(found) == ITEMS
    assert {row["state"] for row in found} <= STATES
    counts = Counter(row["state"] for row in found)
    assert counts["works"] + counts["better"] >= BAR
    told = f"{counts['works']} work, {counts['better']} are better, {counts['partly']} work in part, {counts['missing']} are missing"
    assert told in (ROOT / "docs" / "seeds.md").read_text(encoding="utf-8")


def test_every_test_that_is_named_is_there() -> None:
    named = [found for row in rows() for found in _TEST.findall(row["shown"])]
    gone = [
        (file, name, item)
        for file, name, item in named
        if not (ROOT / file).is_file()
        or (name and name not in functions(file))
        or (item and item not in tried())
    ]
    assert not gone


def test_every_command_that_is_named_is_there() -> None:
    commands = {name for row in rows() for name in _COMMAND.findall(row["shown"])}
    assert commands
    folder = ROOT / "app" / "firstfault" / "commands"
    assert not [n for n in commands if not (folder / f"{n.replace('-', '_')}.py").is_file()]


def test_every_row_shows_what_it_says() -> None:
    """A test or a command, and in words what is left where a row is no more than partly there."""
    unshown = [
        row["item"]
        for row in rows()
        if not (_TEST.search(row["shown"]) or _COMMAND.search(row["shown"]))
        or (row["state"] not in DONE and "<br>" not in row["shown"])
    ]
    assert not unshown


def test_no_row_of_the_items_is_forgotten() -> None:
    """Each artefact that is tried stands for an item of the table."""
    named = {item for row in rows() for _, _, item in _TEST.findall(row["shown"])}
    assert not tried() - named
