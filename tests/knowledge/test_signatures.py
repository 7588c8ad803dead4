"""Does every signature file keep its promises? Each check runs over all files and names every one that fails.

A signature carries its own samples: each `match` sample must be a hit and each `no_match` sample
must not, by google-re2 (what the scanner uses) and by Python's `re` (what reads the captures).
"""

from __future__ import annotations

from tests.rows import each_row
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import re2
import yaml

from firstfault_tools.findings import Category, Level

KNOWLEDGE = Path(__file__).resolve().parents[2] / "knowledge"
FILES = sorted((KNOWLEDGE / "signatures").rglob("*.yaml"))
HEALTHY = KNOWLEDGE.parents[1] / "shared" / "cases" / "lab" / "healthy" / "log.txt"

REQUIRED = {"id", "title", "category", "level", "patterns", "root_cause", "page", "source", "samples"}
OPTIONAL = {"rank", "roles", "versions", "unless", "needs", "without", "next", "fix", "opening", "at_least", "explains"}
GIVEN = {"rank", "host", "gpu", "who", "odd", "odd_value", "others"}
"""Template values the scanner knows without a capture."""

Search = Callable[[str, str], bool]
Row = Mapping[str, Any]
Problems = Iterator[str]


@cache
def _compile_re2(pattern: str) -> Any:
    options = re2.Options()
    options.log_errors = False
    return re2.compile(pattern, options)


def _search_re2(pattern: str, line: str) -> bool:
    return _compile_re2(pattern).search(line) is not None


@cache
def _compile_re(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


def _search_re(pattern: str, line: str) -> bool:
    return _compile_re(pattern).search(line) is not None


def _load(file: Path) -> Any:
    return yaml.load(file.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)


ROWS: dict[Path, Any] = {f: _load(f) for f in FILES}


def hold(check: Callable[[Row], Problems], wanted: Callable[[Row], bool] = lambda _: True) -> None:
    """Run a check over every signature that is wanted; all its problems in one message."""
    chosen = {file: row for file, row in ROWS.items() if wanted(row)}
    assert chosen
    wrong = [f"{file.stem}: {problem}" for file, row in chosen.items() for problem in check(row)]
    assert not wrong, "\n".join(wrong)


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


def test_ids_are_unique() -> None:
    doubled = [name for name, count in Counter(f.stem for f in FILES).items() if count > 1]
    assert not doubled, f"signature ids used twice: {doubled}"


def test_schema() -> None:
    named = [f.stem for f, row in ROWS.items() if not isinstance(row, dict)]
    assert not named, f"one mapping a file; see CONTRIBUTING.md: {named}"
    misnamed = [f.stem for f, row in ROWS.items() if row.get("id") != f.stem]
    assert not misnamed, f"the id is the name of the file: {misnamed}"
    hold(_break_schema)


def _break_schema(row: Row) -> Problems:
    if missing := REQUIRED - row.keys():
        yield f"fields missing: {sorted(missing)}"
        return
    if unread := row.keys() - REQUIRED - OPTIONAL:
        yield f"fields that nothing reads: {sorted(unread)}"
    if row["category"] is not None and row["category"] not in set(Category):
        yield f"category {row['category']}"
    if row["level"] not in set(Level):
        yield f"level {row['level']}"
    if row.get("rank", "line") != "line":
        yield f"rank {row['rank']}: left out where the line does not say whose it is"
    if not all(isinstance(one, str) and one.strip() for one in row["source"]):
        yield "source names issues, documents or runs"
    if empty := [name for name in sorted(OPTIONAL & row.keys()) if not row[name]]:
        yield f"left out where there are none: {empty}"
    if not isinstance(row["title"], str) or not isinstance(row["root_cause"], str):
        yield "title and root_cause are texts"
    if not row["patterns"] or not all(isinstance(p, str) and p for p in _patterns(row)):
        yield "patterns are texts, one at least"
    if set(row["samples"]) != {"match", "no_match"}:
        yield "samples are match and no_match"
    elif not row["samples"]["match"] or not row["samples"]["no_match"]:
        yield "at least one line that is a hit, and one that looks alike and is none"
    for step in row.get("next") or []:
        read = {"run_on", "supports_if", "refutes_if", "then"}
        if set(step) - read != {"what", "why", "command"}:
            yield f"next has what, why and command: {sorted(step)}"
        if not all(isinstance(v, str) and v for v in step.values()):
            yield f"next holds texts: {step}"


def test_patterns_compile_in_both_engines() -> None:
    hold(_break_engines)


def _break_engines(row: Row) -> Problems:
    for pattern in _patterns(row):
        for compile_one in (_compile_re2, _compile_re):
            try:
                compile_one(pattern)
            except (re2.error, re.error) as error:
                yield f"{pattern}: {error}"


def test_patterns_do_not_match_everything() -> None:
    hold(_match_everything)


def _match_everything(row: Row) -> Problems:
    plain = ("", "iteration 12/100 | lm loss: 2.31", "INFO starting")
    for pattern in row["patterns"]:
        if any(_search_re(pattern, line) for line in plain):
            yield pattern


def test_template_uses_known_captures() -> None:
    hold(_break_template)


def _break_template(row: Row) -> Problems:
    groups = [set(_compile_re(p).groupindex) for p in row["patterns"]]
    template = row["root_cause"]
    if template.count("[") != template.count("]"):
        yield "a bracket is left open"
    used = set(re.findall(r"\{(\w+)\}", template))
    if unknown := used - set().union(*groups) - GIVEN:
        yield f"a capture of no pattern: {sorted(unknown)}"
    unbracketed = set(re.findall(r"\{(\w+)\}", re.sub(r"\[[^\[\]]*\]", "", template)))
    for names in groups:
        if missing := unbracketed - names:
            yield f"{sorted(missing)} may be missing: put it in [ ]"


@each_row("search", [_search_re2, _search_re], ids=["re2", "re"])
def test_samples(search: Search) -> None:
    def check(row: Row) -> Problems:
        for sample in row["samples"]["match"]:
            if not _is_hit(search, row, sample):
                yield f"should be a hit: {sample}"
        for sample in row["samples"]["no_match"]:
            if _is_hit(search, row, sample):
                yield f"should be no hit: {sample}"

    hold(check)


def test_every_pattern_has_a_sample() -> None:
    hold(_lack_samples)


def _lack_samples(row: Row) -> Problems:
    lines = [
        line
        for sample in row["samples"]["match"]
        for line in (sample.splitlines() if isinstance(sample, str) else sample)
    ]
    for pattern in row["patterns"]:
        if not _any(_search_re, [pattern], lines):
            yield f"a pattern that no match sample exercises: {pattern}"


def test_a_pattern_in_two_files_is_parted_by_conditions() -> None:
    """Where one line is two signatures, other lines of the incident or the level say which it is."""
    owners: dict[str, list[Row]] = {}
    for row in ROWS.values():
        for pattern in row["patterns"]:
            owners.setdefault(pattern, []).append(row)
    same = [
        f"{', '.join(row['id'] for row in rows)}: {pattern}"
        for pattern, rows in owners.items()
        if len({(row["level"], str(row.get("needs")), str(row.get("without"))) for row in rows})
        < len(rows)
    ]
    assert not same, "\n".join(same)


_ADVICE = re.compile(
    r"(?:use|set|raise|give|start|install|update|upgrade|rebuild|reinstall|put|take|drain|reset|reboot|choose|unset|load|save|pin|lower|"
    r"turn|switch|clean|reduce|filter|create|write|allow|repair|configure|register|call|run|pad|unwrap|export|ask)(?= )"
)


def test_a_cause_says_what_happened_and_not_what_to_do() -> None:
    hold(_break_cause)


def _break_cause(row: Row) -> Problems:
    cause = re.sub(r"\[[^\]]*\]", "", str(row["root_cause"]))
    for clause in re.split(r"[;:.] ", cause):
        if _ADVICE.match(clause):
            yield f"advice belongs to the fixes of its page: {clause}"


def test_page_exists() -> None:
    pages = Counter(f.stem for f in (KNOWLEDGE / "pages").rglob("*.md"))

    def check(row: Row) -> Problems:
        if pages[row["page"]] != 1:
            yield f"page {row['page']}: {pages[row['page']]} files"

    hold(check)


@pytest.mark.skipif(not HEALTHY.is_file(), reason="no healthy log here")
def test_healthy_log_raises_no_alarm() -> None:
    lines = HEALTHY.read_text(encoding="utf-8", errors="replace").splitlines()

    def check(row: Row) -> Problems:
        if _is_hit(_search_re2, row, lines):
            yield "matches the healthy log"

    hold(check, lambda row: row["level"] not in {Level.BENIGN, Level.CONTEXT})
