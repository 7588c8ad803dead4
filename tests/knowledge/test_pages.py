"""Can every knowledge page be loaded, cited and trusted?"""

from __future__ import annotations

import re
from collections import Counter
from datetime import date
from pathlib import Path
from typing import Any

import pytest
import yaml

from firstfault_tools.findings import Category

KNOWLEDGE = Path(__file__).resolve().parents[2] / "knowledge"
FILES = sorted((KNOWLEDGE / "pages").rglob("*.md"))

REQUIRED = {
    "id",
    "title",
    "category",
    "frameworks",
    "tags",
    "checked",
    "versions",
    "sources",
    "covers",
    "corrects",
}
OPTIONAL = {"benign"}
HEADINGS = [
    "Symptoms",
    "Why it happens",
    "How to confirm",
    "Fix now",
    "Fix for good",
    "What it is not",
    "Prevent",
]
BENIGN_HEADINGS = ["Symptoms", "Why it is harmless"]
NO_KNOWLEDGE = {
    "000: Objective",
    "000: References",
    "000: What Comes Next",
    "004: Try With AI",
}
"""Seed sections that state no fact: goals, link lists, outlook, exercises."""
INVENTED = re.compile(r"\b(?:NCCL_TIMEOUT|TORCH_DISTRIBUTED_TIMEOUT|nccl-ras-query)\b")
"""Names that do not exist; a page may only name them to say so."""


def _read(file: Path) -> tuple[dict[str, Any], str]:
    text = file.read_text(encoding="utf-8")
    match = re.match(r"---\n(.*?)\n---\n(.*)", text, re.DOTALL)
    assert match, "front matter between two --- lines"
    front = yaml.load(match[1], Loader=yaml.CSafeLoader)
    assert isinstance(front, dict)
    return front, match[2]


def _without_code(body: str) -> str:
    return re.sub(r"^[ ]*```.*?^[ ]*```[ ]*$", "", body, flags=re.DOTALL | re.MULTILINE)


def _section(body: str, heading: str) -> str:
    match = re.search(
        rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", body, re.DOTALL | re.MULTILINE
    )
    assert match, f"no section {heading}"
    return match[1]


def _seed_sections() -> set[str]:
    content = yaml.load(
        (KNOWLEDGE / "seeds.yaml").read_text(encoding="utf-8"), Loader=yaml.CSafeLoader
    )
    return {
        f"{number}: {section}"
        for number, seed in content["seeds"].items()
        for section in seed["sections"]
    }


file_of = pytest.mark.parametrize("file", FILES, ids=lambda f: f.stem)


def test_ids_are_unique() -> None:
    doubled = [name for name, count in Counter(f.stem for f in FILES).items() if count > 1]
    assert not doubled, f"page ids used twice: {doubled}"


def test_titles_are_unique() -> None:
    doubled = [t for t, n in Counter(str(_read(f)[0]["title"]) for f in FILES).items() if n > 1]
    assert not doubled


@file_of
def test_front_matter(file: Path) -> None:
    front, _ = _read(file)
    assert not REQUIRED - front.keys(), "fields missing"
    assert not front.keys() - REQUIRED - OPTIONAL, "fields that nothing reads"
    assert front["id"] == file.stem
    assert isinstance(front["title"], str)
    assert front["category"] in set(Category)
    assert isinstance(front["checked"], date)
    assert isinstance(front["versions"], str)
    for key in ("frameworks", "tags", "sources", "covers", "corrects"):
        assert isinstance(front[key], list), key
        assert all(isinstance(entry, str) and entry for entry in front[key]), key
    assert front["frameworks"]
    assert front["tags"]


@file_of
def test_sources_are_named(file: Path) -> None:
    front, _ = _read(file)
    assert front["sources"]
    for source in front["sources"]:
        assert re.match(r"https://\S+$|seed \d{3}\b|arXiv ", source), source


@file_of
def test_covered_sections_exist(file: Path) -> None:
    front, _ = _read(file)
    unknown = set(front["covers"]) - _seed_sections()
    assert not unknown, f"not a section of knowledge/seeds.yaml: {unknown}"


def test_every_seed_section_is_carried_over() -> None:
    covered = {section for f in FILES for section in _read(f)[0]["covers"]}
    assert _seed_sections() - covered == NO_KNOWLEDGE


@file_of
def test_headings(file: Path) -> None:
    front, body = _read(file)
    found = re.findall(r"^## (.+)$", _without_code(body), re.MULTILINE)
    wanted = BENIGN_HEADINGS if front.get("benign") else HEADINGS
    assert found[: len(wanted)] == wanted
    assert len(found) == len(set(found))
    if front.get("benign"):
        assert not {"Fix now", "Fix for good"} & set(found), "a benign page offers no fixes"
    for heading in found:
        assert _section(body, heading).strip(), f"section {heading} is empty"


@file_of
def test_summary_comes_first(file: Path) -> None:
    _, body = _read(file)
    summary = body.split("\n## ", 1)[0].strip()
    assert summary
    assert "\n\n" not in summary, "one paragraph"


@file_of
def test_fixes_are_full_sentences(file: Path) -> None:
    front, body = _read(file)
    if front.get("benign"):
        pytest.skip("no fixes on a benign page")
    for heading in ("Fix now", "Fix for good"):
        text = _without_code(_section(body, heading))
        fixes = re.findall(r"^- (.+(?:\n  .+)*)", text, re.MULTILINE)
        assert fixes, f"{heading}: one fix a bullet"
        for fix in fixes:
            ending = re.sub(r"\s*\[changes state\]$", "", fix.strip())
            assert re.search(r"[.!)`:]$", ending), f"a full sentence: {fix}"


@file_of
def test_invented_names_are_called_so(file: Path) -> None:
    front, body = _read(file)
    if INVENTED.search(body):
        assert front["corrects"], "an invented name appears: the page must correct it"
    for heading in ("Fix now", "Fix for good"):
        if not front.get("benign"):
            code = "\n".join(re.findall(r"```.*?```", _section(body, heading), re.DOTALL))
            assert not INVENTED.search(code), f"{heading} advises a name that does not exist"
