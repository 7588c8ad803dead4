"""What do the tables of everyday tools say, row by row? `df`, `ps`, `top`, `sacct`, `/proc/PID/status`, `memory.stat`, meminfo.

All have one of two shapes: a heading over rows, or one name and value a line. tables.json says which columns and
names mean what; a heading and a ruler only name what stands below them and prove nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.hardware.excerpt import NumberedLine
from firstfault_tools.hardware.host_name import name_host
from firstfault_tools.hardware.host_sections import Section, split_sections

_SIZE = expression(r"(?P<n>\d{1,18}(?:[.,]\d{1,3})?) ?(?P<unit>[KMGTPkmgtp])?i?[Bb]?%?")
_PAIR = expression(r"^\s*(?:\S*/)?(?P<name>[A-Za-z][\w.]{1,40})[:=]?\s+(?P<value>\S.{0,120}?)\s*$")
_RULER = expression(r"^[\s|+:]*[-=_~]{2}[-=_~|+:\s]*$")
_ALONE = expression(r"^\s*(?P<value>\d{1,20}|max)\s*$")
_GAP = expression(r"\s{2,}|\t|\s*[|,]\s*")
_NAME = expression(r"^[A-Za-z%][A-Za-z_%/.()\[\]-]*(?: [A-Za-z%/()-]+){0,2}$")
_WORDS = expression(r"^\s*[A-Z][A-Za-z%]*(?:\s+[A-Z][A-Za-z%]*){2,}\s*$")
LEAST_COLUMNS = 3
_LABEL = expression(r"^\S{1,64}:\s+(?=\S)")


@dataclass(frozen=True, slots=True)
class Record:
    """One row, or one block of named values. cells: text by role; places: the line of each."""

    table: str
    host: str | None
    cells: Mapping[str, str]
    places: Mapping[str, NumberedLine]
    units: Mapping[str, float]

    def __getitem__(self, role: str) -> str:
        return self.cells.get(role, "")

    @property
    def place(self) -> NumberedLine:
        return next(iter(self.places.values()))

    def amount(self, role: str) -> float | None:
        """Bytes of a size, the number of a count or a share; None where it is not told."""
        found = _SIZE.fullmatch(self.cells.get(role, ""))
        if found is None:
            return None
        unit = found["unit"]
        scale = 1024.0 ** ("KMGTP".index(unit.upper()) + 1) if unit else self.units.get(role, 1.0)
        return float(found["n"].replace(",", ".")) * scale


@cache
def _load() -> Mapping[str, Any]:
    loaded: Mapping[str, Any] = json.loads((Path(__file__).parent / "tables.json").read_text())
    return loaded


def table_names() -> tuple[str, ...]:
    """All kinds of tables that are known."""
    specs = (*_load()["rows"], *_load()["pairs"])
    return tuple(dict.fromkeys(spec["table"] for spec in specs))


def read_tables(lines: Sequence[NumberedLine], file: str, table: str) -> list[Record]:
    """Records of one kind of table, in printed order, with the host they were printed on."""
    out: list[Record] = []
    own = name_host(file)
    sections = split_sections(lines)
    for spec in _load()["rows"]:
        if spec["table"] == table:
            out += _read_rows(spec, sections, own)
    for spec in _load()["pairs"]:
        if spec["table"] == table:
            for section in sections:
                out += _read_pairs(spec, section, section.host or own)
    return out


def is_frame(text: str) -> bool:
    """A rule, a heading of a known table, or a row of at least three names of columns and nothing else.

    A sentence may look like names of columns: a line is passed over for it only where others are there.
    """
    if not any(map(str.isalnum, text)) or is_heading(text) or _WORDS.match(text):
        return True
    cells = [cell for cell in _GAP.split(text.strip().strip("|").strip()) if cell]
    return len(cells) >= LEAST_COLUMNS and all(_NAME.match(cell) for cell in cells)


def is_heading(text: str) -> bool:
    """A known table's heading or ruler, with or without the host in front of it."""
    if _RULER.match(text):
        return True
    bare = _LABEL.sub("", text, count=1)
    patterns = (*(spec["header"] for spec in _load()["rows"]), *_load()["headings"])
    return any(expression(p).search(part) for p in patterns for part in (text, bare))


def _read_rows(
    spec: Mapping[str, Any], sections: Sequence[Section], own: str | None
) -> Iterator[Record]:
    """Rows below a heading; of one command on many hosts the first host's heading serves all."""
    heading, only = _Heading(spec, (), {}), expression(spec.get("only", ""))
    command = ""
    for section in sections:
        if section.command and section.command != command:
            heading, command = _Heading(spec, (), {}), section.command
        held = ""
        for number, text in section.lines:
            if (told := heading.follow(text, section.command)) is not heading:
                heading, held = told, ""
                continue
            cells, held = heading.split(f"{held} {text}" if held else text)
            roles = {spec["columns"].get(n): c for n, c in zip(heading.names, cells, strict=False)}
            known = {role: cell for role, cell in roles.items() if role is not None and cell}
            if all(role in known for role in spec["needs"]) and only.search(text):
                places = dict.fromkeys(known, (number, text))
                yield Record(spec["table"], section.host or own, known, places, heading.units)


@dataclass(frozen=True, slots=True)
class _Heading:
    """Columns that hold for the rows below; without names there is no table. spans: where a ruler puts them."""

    spec: Mapping[str, Any]
    names: tuple[str, ...]
    units: Mapping[str, float]
    spans: tuple[slice, ...] = ()

    def follow(self, text: str, command: str) -> _Heading:
        """What holds below this line; itself where the line is a row."""
        if expression(self.spec["header"]).search(text):
            for words, word in self.spec.get("joined", {}).items():
                text = text.replace(words, word)
            names = tuple(re.split(r"[\s|]+", text.strip().strip("|")))
            first = self.spec.get("unnamed")
            return _Heading(self.spec, (first, *names) if first else names, self._units(names, command))  # fmt: skip
        if not self.names or not text.strip():
            return self if not self.names else _Heading(self.spec, (), {})
        if _RULER.match(text):
            spans = tuple(slice(m.start(), m.end()) for m in re.finditer(r"\S+", text))
            return replace(self, spans=spans)
        return self

    def _units(self, names: Sequence[str], command: str) -> Mapping[str, float]:
        """Bytes of a bare number, by the heading or an option of the command."""
        asked = (
            scale
            for option, scale in self.spec.get("options", {}).items()
            if option in command.split()
        )
        usual = self.spec.get("unit", {})
        scale = next(asked, None)
        return {**(dict.fromkeys(usual, float(scale)) if scale else usual), **_unit_of(names)}

    def split(self, text: str) -> tuple[list[str], str]:
        """Cells of a row, and what is held back because a long name pushed the rest to the next line."""
        count = len(self.names)
        if not count:
            return [], ""
        if len(self.spans) == count and len(text.split()) != count:
            return _place_words(text, self.spans), ""
        if "|" in text:
            return [c.strip() for c in text.strip().strip("|").split("|")], ""
        cells = text.split(None, count - 1)
        if len(cells) == 1 and count > 2:
            return [], cells[0]
        return (cells, "") if len(cells) == count else ([], "")


def _place_words(text: str, spans: Sequence[slice]) -> list[str]:
    """Each word in the column that it covers most of."""
    cells = [""] * len(spans)
    for word in re.finditer(r"\S+", text):
        shared = [min(word.end(), s.stop) - max(word.start(), s.start) for s in spans]
        at = shared.index(max(shared))
        cells[at] = f"{cells[at]} {word[0]}".strip()
    return cells


def _unit_of(names: Sequence[str]) -> dict[str, float]:
    """Bytes of a block, as the heading of `df` says it."""
    block = next((m for n in names if (m := re.fullmatch(r"(\d{1,9})([KMG]?)B?-blocks", n))), None)
    if block is None:
        return {}
    scale = float(block[1]) * 1024.0 ** (" KMG".index(block[2] or " "))
    return {"size": scale, "free": scale}


def _read_pairs(spec: Mapping[str, Any], section: Section, host: str | None) -> Iterator[Record]:
    cells, places = dict[str, str](), dict[str, NumberedLine]()
    units = dict.fromkeys(spec["names"].values(), float(spec["unit"]))

    def close() -> Iterator[Record]:
        if all(role in cells for role in spec["needs"]):
            yield Record(spec["table"], host, dict(cells), dict(places), units)
        cells.clear()
        places.clear()

    asked = section.command.rpartition("/")[2].split()[:1]
    for number, text in section.lines:
        alone = _ALONE.match(text)
        pair = _PAIR.match(text)
        name = asked[0] if alone is not None and asked else pair["name"] if pair is not None else ""
        role = spec["names"].get(name)
        if role is None:
            continue
        if role in cells:
            yield from close()
        value = alone["value"] if alone is not None else pair["value"] if pair is not None else ""
        cells[role] = value.removesuffix(" kB")
        places[role] = (number, text)
    yield from close()
