"""What does a knowledge page say? Its sections, passages to cite, and the fixes it offers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import Any

from firstfault_tools.dataclass import dataclass
from firstfault_tools.errors import UnreadableArtefact
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Category
from firstfault_tools.knowledge.pack import load_rows, read_yaml

FIX_NOW, FIX_FOR_GOOD = "Fix now", "Fix for good"
CONFIRM = "How to confirm"
_PARTS = expression(r"\b(Run on|Supports|Refutes): ")
_WORKED = " Worked if: "
_STATE = expression(r"\s*\[changes state\]\s*", re.I)


class FixKind(StrEnum):
    """When a fix helps: to get going again, or so that it does not come back."""

    IMMEDIATE = "immediate"
    STRUCTURAL = "structural"


@dataclass(frozen=True, slots=True)
class Fix:
    """One fix of a page. `quote` is its text as it stands on the page."""

    text: str
    kind: FixKind
    heading: str
    quote: str
    command: str | None = None
    changes_state: bool = False
    worked_if: str = ""
    """What is seen where it has helped."""


@dataclass(frozen=True, slots=True)
class Check:
    """One check of a page that is a command: what it shows if the page's cause is the one, and what if it is not.

    run_on: where it is run, a name of run_places.json or words; empty where the command itself tells.
    """

    text: str
    command: str
    run_on: str = ""
    supports_if: str = ""
    refutes_if: str = ""


@dataclass(frozen=True, slots=True)
class Section:
    """One headed part of a page; heading is '' for the summary before the first heading."""

    heading: str
    text: str


@dataclass(frozen=True)
class Page:
    """One page of the knowledge base; `path` is relative to the pages folder."""

    id: str
    title: str
    category: Category
    path: str
    frameworks: tuple[str, ...]
    tags: tuple[str, ...]
    sources: tuple[str, ...]
    versions: str
    checked: str
    benign: bool
    settled: bool
    """Its first fix holds for every cause that leads to it, so that no further check is needed."""
    sections: tuple[Section, ...]

    @property
    def summary(self) -> str:
        return self.sections[0].text if self.sections and not self.sections[0].heading else ""

    @property
    def url(self) -> str | None:
        """First public source."""
        return next((s for s in self.sources if s.startswith("http")), None)

    def section(self, heading: str) -> Section | None:
        return next((s for s in self.sections if s.heading == heading), None)

    @cached_property
    def fixes(self) -> tuple[Fix, ...]:
        """Fixes in page order, immediate ones first."""
        out: list[Fix] = []
        for heading, kind in ((FIX_NOW, FixKind.IMMEDIATE), (FIX_FOR_GOOD, FixKind.STRUCTURAL)):
            section = self.section(heading)
            if section is not None:
                out += [_fix(b, kind, heading) for b in bullets(section.text)]
        return tuple(out)


    @cached_property
    def checks(self) -> tuple[Check, ...]:
        """Checks with a command, in page order."""
        section = self.section(CONFIRM)
        found = [_check(b) for b in bullets(section.text)] if section is not None else []
        return tuple(check for check in found if check is not None)


def bullets(text: str) -> list[list[str]]:
    """Top-level list items of Markdown, each as its lines without the marker."""
    items: list[list[str]] = []
    fenced = False
    for line in text.split("\n"):
        if line.strip().startswith("```"):
            fenced = not fenced
        match = None if fenced else re.match(r"^(?:[-*]|\d+\.)\s+(.*)", line)
        if match is not None:
            items.append([match[1]])
        elif items and (line.startswith((" ", "\t")) or not line.strip() or fenced):
            items[-1].append(line)
    return items


def _check(lines: list[str]) -> Check | None:
    words, command = _part(lines)
    if not command:
        return None
    text, *parts = _PARTS.split(" ".join(words))
    told = dict(zip(parts[::2], (p.strip().rstrip(".") for p in parts[1::2]), strict=True))
    return Check(
        text.strip().rstrip(":."), command, told.get("Run on", ""), told.get("Supports", ""), told.get("Refutes", "")
    )  # fmt: skip


def _part(lines: list[str]) -> tuple[list[str], str]:
    """The words of a list item, and its first command."""
    words: list[str] = []
    code: list[str] = []
    fenced = fences = 0
    for line in lines:
        stripped = line.strip()
        if stripped.startswith("```"):
            fenced, fences = 1 - fenced, fences + 1
        elif fenced and fences == 1:
            code.append(line[2:] if line.startswith("  ") else line)
        elif stripped and not fenced:
            words.append(stripped)
    return words, "\n".join(code).strip()


def _fix(lines: list[str], kind: FixKind, heading: str) -> Fix:
    words, command = _part(lines)
    quote, _, worked = " ".join(words).partition(_WORKED)
    return Fix(
        text=_STATE.sub(" ", quote).strip(),
        kind=kind,
        heading=heading,
        quote=quote,
        command=command or None,
        changes_state=_STATE.search(quote) is not None,
        worked_if=worked.strip().rstrip("."),
    )


def parse_page(text: str, path: str) -> dict[str, Any]:
    """Row of a page file: front matter and sections. Errors name the file and the field."""
    match = re.match(r"---\n(.*?)\n---\n(.*)", text, re.S)
    if match is None:
        raise UnreadableArtefact(f"page {path}: no front matter; see CONTRIBUTING.md")
    row = read_yaml(match[1])
    if not isinstance(row, dict) or not {"id", "title", "category", "sources"} <= row.keys():
        raise UnreadableArtefact(f"page {path}: id, title, category and sources are needed")
    sections: list[list[str]] = [["", ""]]
    fenced = False
    for line in match[2].split("\n"):
        if line.strip().startswith("```"):
            fenced = not fenced
        if line.startswith("## ") and not fenced:
            sections.append([line[3:].strip(), ""])
        else:
            sections[-1][1] += line + "\n"
    row["sections"] = [[h, t.strip("\n")] for h, t in sections if h or t.strip()]
    row["path"] = path
    row["checked"] = str(row.get("checked", ""))
    page_of_row(row)  # a category that there is none of is said here
    return row


def page_of_row(row: Mapping[str, Any]) -> Page:
    """Page from its parsed row."""
    return Page(
        id=str(row["id"]),
        title=str(row["title"]),
        category=Category(row["category"]),
        path=str(row["path"]),
        frameworks=tuple(map(str, row.get("frameworks") or ("any",))),
        tags=tuple(map(str, row.get("tags") or ())),
        sources=tuple(map(str, row["sources"] or ())),
        versions=str(row.get("versions") or ""),
        checked=str(row["checked"]),
        benign=bool(row.get("benign")),
        settled=bool(row.get("settled")),
        sections=tuple(Section(h, t.strip()) for h, t in row["sections"]),
    )


class Pages(Mapping[str, Page]):
    """Pages by id, each made when it is asked for: an answer shows a few of hundreds."""

    def __init__(self, rows: Iterable[Mapping[str, Any]]) -> None:
        self._rows = {str(row["id"]): row for row in rows}
        self._made: dict[str, Page] = {}

    def __getitem__(self, name: str) -> Page:
        made = self._made.get(name)
        if made is None:
            made = self._made[name] = page_of_row(self._rows[name])
        return made

    def __contains__(self, name: object) -> bool:
        return name in self._rows

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)


def load_pages(folder: Path, pack: Path | None = None) -> Pages:
    """All pages below `folder` by id, from the pack where it is fresh."""

    def read(file: Path) -> dict[str, Any]:
        return parse_page(file.read_text(encoding="utf-8"), file.relative_to(folder).as_posix())

    return Pages(load_rows(folder, ".md", read, pack))
