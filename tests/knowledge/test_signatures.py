"""Does every signature file keep its promises? One run of the same checks over each file.

A signature carries its own samples: each `match` sample must be a hit and each `no_match` sample
must not, by google-re2 (what the scanner uses) and by Python's `re` (what reads the captures).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import re2
import yaml

from firstfault_tools.findings import Category, Level

KNOWLEDGE = Path(__file__).resolve().parents[2] / "knowledge"
FILES = sorted((KNOWLEDGE / "signatures").rglob("*.yaml"))
HEALTHY = Path("/work/shared/cases/lab/healthy/log.txt")

REQUIRED = {"id", "title", "category", "level", "rank", "patterns", "root_cause", "page", "samples"}
OPTIONAL = {"unless", "needs", "without", "next", "at_least", "explains"}
GIVEN = {"rank", "host", "gpu", "who", "odd", "odd_value", "others"}
"""Template values the scanner knows without a capture."""

Search = Callable[[str, str], bool]


def _search_re2(pattern: str, line: str) -> bool:
    return re2.search(pattern, line) is not None


def _search_re(pattern: str, line: str) -> bool:
    return re.search(pattern, line) is not None


ENGINES = [pytest.param(_search_re2, id="re2"), pytest.param(_search_re, id="re")]


def _load(file: Path) -> dict[str, Any]:
    row = yaml.load(file.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)
    assert isinstance(row, dict), "one mapping a file; see CONTRIBUTING.md"
    return row


def _any(search: Search, patterns: Sequence[str], lines: Sequence[str]) -> bool:
    return any(search(pattern, line) for pattern in patterns for line in lines)


def _is_hit(search: Search, row: Mapping[str, Any], sample: str | Sequence[str]) -> bool:
    """Whether the sample, taken as a whole incident, is a hit."""
    lines = sample.splitlines() if isinstance(sample, str) else list(sample)
    hits = [
        line
        for line in lines
        if _any(search, row["patterns"], [line])
        and not _any(search, row.get("unless") or [], [line])
    ]
    return (
        len(hits) >= int(row.get("at_least") or 1)
        and all(_any(search, [need], lines) for need in row.get("needs") or [])
        and not _any(search, row.get("without") or [], lines)
    )


def _patterns(row: Mapping[str, Any]) -> list[str]:
    return [p for key in ("patterns", "unless", "needs", "without") for p in row.get(key) or []]


file_of = pytest.mark.parametrize("file", FILES, ids=lambda f: f.stem)


def test_ids_are_unique() -> None:
    doubled = [name for name, count in Counter(f.stem for f in FILES).items() if count > 1]
    assert not doubled, f"signature ids used twice: {doubled}"


@file_of
def test_schema(file: Path) -> None:
    row = _load(file)
    assert not REQUIRED - row.keys(), "fields missing"
    assert not row.keys() - REQUIRED - OPTIONAL, "fields that nothing reads"
    assert row["id"] == file.stem
    assert row["category"] is None or row["category"] in set(Category)
    assert row["level"] in set(Level)
    assert row["rank"] in {"line", "none"}
    assert isinstance(row["title"], str)
    assert isinstance(row["root_cause"], str)
    assert row["patterns"]
    assert all(isinstance(p, str) and p for p in _patterns(row))
    assert set(row["samples"]) == {"match", "no_match"}
    assert row["samples"]["match"], "at least one line that is a hit"
    assert row["samples"]["no_match"], "at least one line that looks alike and is no hit"
    for step in row.get("next") or []:
        assert set(step) == {"what", "why", "command"}
        assert all(isinstance(v, str) and v for v in step.values())


@file_of
def test_patterns_compile_in_both_engines(file: Path) -> None:
    options = re2.Options()
    options.log_errors = False
    for pattern in _patterns(_load(file)):
        re2.compile(pattern, options)
        re.compile(pattern)


@file_of
def test_patterns_do_not_match_everything(file: Path) -> None:
    plain = ("", "iteration 12/100 | lm loss: 2.31", "INFO starting")
    for pattern in _load(file)["patterns"]:
        assert not any(_search_re(pattern, line) for line in plain), pattern


@file_of
def test_template_uses_known_captures(file: Path) -> None:
    row = _load(file)
    groups = [set(re.compile(p).groupindex) for p in row["patterns"]]
    template = row["root_cause"]
    assert template.count("[") == template.count("]")
    used = set(re.findall(r"\{(\w+)\}", template))
    assert used <= set().union(*groups) | GIVEN, "a capture of no pattern"
    unbracketed = set(re.findall(r"\{(\w+)\}", re.sub(r"\[[^\[\]]*\]", "", template)))
    for names in groups:
        assert unbracketed <= names, f"{unbracketed - names} may be missing: put it in [ ]"


@pytest.mark.parametrize("search", ENGINES)
@file_of
def test_samples(file: Path, search: Search) -> None:
    row = _load(file)
    for sample in row["samples"]["match"]:
        assert _is_hit(search, row, sample), f"should be a hit: {sample}"
    for sample in row["samples"]["no_match"]:
        assert not _is_hit(search, row, sample), f"should be no hit: {sample}"


@file_of
def test_every_pattern_has_a_sample(file: Path) -> None:
    row = _load(file)
    lines = [
        line
        for sample in row["samples"]["match"]
        for line in (sample.splitlines() if isinstance(sample, str) else sample)
    ]
    unseen = [p for p in row["patterns"] if not _any(_search_re, [p], lines)]
    assert not unseen, f"patterns that no match sample exercises: {unseen}"


@file_of
def test_page_exists(file: Path) -> None:
    page = _load(file)["page"]
    found = list((KNOWLEDGE / "pages").rglob(f"{page}.md"))
    assert len(found) == 1, f"page {page}: {len(found)} files"


@pytest.mark.skipif(not HEALTHY.is_file(), reason="no healthy log here")
@file_of
def test_healthy_log_raises_no_alarm(file: Path) -> None:
    row = _load(file)
    if row["level"] in {Level.BENIGN, Level.CONTEXT}:
        pytest.skip("may match healthy logs")
    lines = HEALTHY.read_text(encoding="utf-8", errors="replace").splitlines()
    assert not _is_hit(_search_re2, row, lines)
