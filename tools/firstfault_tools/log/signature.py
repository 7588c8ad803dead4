"""Which lines are known? Failure signatures: data in YAML files, compiled for one linear-time pass.

google-re2's `Set` says which patterns match a block of text; only blocks with a match are looked at
line by line. Parsing hundreds of YAML files takes longer than scanning a log, so the parsed form is
kept in a cache file that is rebuilt when any source file changes.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from firstfault_tools.errors import UnreadableArtefact
from firstfault_tools.findings import Category, Level

_CACHE_FORMAT = 3
_FIELDS = ("title", "category", "level", "rank", "patterns", "root_cause", "page")


@dataclass(frozen=True, slots=True)
class NextArtefact:
    """What would settle an open question, why, and the command that collects it."""

    what: str
    why: str
    command: str


@dataclass(frozen=True, slots=True)
class Signature:
    """One known kind of line; CONTRIBUTING.md describes the file format."""

    id: str
    title: str
    category: Category
    level: Level
    rank_is_speaker: bool
    patterns: tuple[str, ...]
    unless: tuple[str, ...]
    needs: tuple[str, ...]
    without: tuple[str, ...]
    root_cause: str
    page: str
    next: tuple[NextArtefact, ...]


def parse_signature(row: Mapping[str, Any], name: str) -> Signature:
    """Signature from a parsed YAML mapping; errors name the file and the field."""
    for field in _FIELDS:
        if field not in row:
            raise UnreadableArtefact(f"signature {name}: field '{field}' is missing")
    try:
        return Signature(
            id=str(row["id"]),
            title=str(row["title"]),
            category=Category(row["category"]),
            level=Level(row["level"]),
            rank_is_speaker=row["rank"] == "line",
            patterns=tuple(map(str, row["patterns"])),
            unless=tuple(map(str, row.get("unless") or ())),
            needs=tuple(map(str, row.get("needs") or ())),
            without=tuple(map(str, row.get("without") or ())),
            root_cause=str(row["root_cause"]),
            page=str(row["page"]),
            next=tuple(
                NextArtefact(str(n["what"]), str(n["why"]), str(n["command"]))
                for n in row.get("next") or ()
            ),
        )
    except (ValueError, TypeError, KeyError) as error:
        raise UnreadableArtefact(f"signature {name}: {error}") from error


def load_signatures(folder: Path, cache_folder: Path | None = None) -> tuple[Signature, ...]:
    """All signatures below `folder`, by id; from the cache where it is fresh."""
    files = sorted(folder.rglob("*.yaml"))
    stamp = [[str(f.relative_to(folder)), f.stat().st_mtime_ns, f.stat().st_size] for f in files]
    cache = cache_folder / "signatures.json" if cache_folder is not None else None
    rows = _read_cache(cache, stamp)
    if rows is None:
        rows = [_read_yaml(file) for file in files]
        _write_cache(cache, stamp, rows)
    return tuple(parse_signature(row, str(row.get("id"))) for row in rows)


def _read_yaml(file: Path) -> dict[str, Any]:
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    row = yaml.load(file.read_text(encoding="utf-8"), Loader=loader)  # noqa: S506 - safe loader
    if not isinstance(row, dict):
        raise UnreadableArtefact(f"{file}: expected one mapping; see CONTRIBUTING.md")
    row.pop("samples", None)
    return row


def _read_cache(cache: Path | None, stamp: list[list[Any]]) -> list[dict[str, Any]] | None:
    if cache is None or not cache.is_file():
        return None
    try:
        content = json.loads(cache.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if content.get("format") != _CACHE_FORMAT or content.get("stamp") != stamp:
        return None
    rows: list[dict[str, Any]] = content["rows"]
    return rows


def _write_cache(cache: Path | None, stamp: list[list[Any]], rows: list[dict[str, Any]]) -> None:
    if cache is None:
        return
    try:
        cache.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=cache.parent, prefix=".signatures-")
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            json.dump({"format": _CACHE_FORMAT, "stamp": stamp, "rows": rows}, stream)
        os.replace(name, cache)
    except OSError:
        return  # a read-only home must not stop a diagnosis; the next start parses again


@dataclass(frozen=True, slots=True)
class Matches:
    """What a text matched: indices of signatures, conditions and marks (structure and secrets)."""

    signatures: tuple[int, ...]
    conditions: tuple[int, ...]
    marks: tuple[int, ...]


@dataclass(frozen=True)
class SignatureSet:
    """All patterns of all signatures, compiled together with conditions and marks.

    Conditions are the `needs` and `without` patterns: only the whole incident can decide them. Marks
    are patterns of the scanner itself (tracebacks, watchdog lines, secrets).
    """

    signatures: tuple[Signature, ...]
    marks: tuple[str, ...] = ()

    @cached_property
    def conditions(self) -> tuple[str, ...]:
        """Every `needs` and `without` pattern, without repeats, in order."""
        seen: dict[str, None] = {}
        for signature in self.signatures:
            seen.update(dict.fromkeys((*signature.needs, *signature.without)))
        return tuple(seen)

    @cached_property
    def _owners(self) -> tuple[int, ...]:
        return tuple(i for i, s in enumerate(self.signatures) for _ in s.patterns)

    @cached_property
    def _set(self) -> Any:
        import re2

        options = re2.Options()
        options.max_mem = 512 << 20
        options.log_errors = False
        options.encoding = re2.Options.Encoding.LATIN1
        compiled = re2.Set.SearchSet(options)
        patterns = [p for s in self.signatures for p in s.patterns]
        for pattern in (*patterns, *self.conditions, *self.marks):
            # (?m) lets ^ and $ mean lines when a whole block is tried at once
            compiled.Add(f"(?m:{pattern})".encode())
        compiled.Compile()
        return compiled

    @cached_property
    def _compiled(self) -> dict[str, re.Pattern[str]]:
        return {}

    def expression(self, pattern: str) -> re.Pattern[str]:
        """Compiled `re` form of one pattern, made at first use."""
        found = self._compiled.get(pattern)
        if found is None:
            found = re.compile(pattern)
            self._compiled[pattern] = found
        return found

    def match(self, text: bytes) -> Matches | None:
        """What a line or block matches; None for nothing, the usual case."""
        found = self._set.Match(text)
        if not found:
            return None
        owners = self._owners
        conditions_end = len(owners) + len(self.conditions)
        return Matches(
            tuple(sorted({owners[i] for i in found if i < len(owners)})),
            tuple(i - len(owners) for i in found if len(owners) <= i < conditions_end),
            tuple(i - conditions_end for i in found if i >= conditions_end),
        )

    def captures(self, index: int, text: str) -> dict[str, str] | None:
        """Named groups of the first pattern of signature `index` that matches `text`.

        None where no pattern matches the text as Unicode, or an `unless` pattern does.
        """
        signature = self.signatures[index]
        if any(self.expression(p).search(text) for p in signature.unless):
            return None
        for pattern in signature.patterns:
            match = self.expression(pattern).search(text)
            if match is not None:
                return {k: v.strip() for k, v in match.groupdict().items() if v is not None}
        return None


def fill_template(template: str, values: Mapping[str, object]) -> str:
    """`template` with {captures} filled in; a `[bracketed]` part with a missing value drops out."""

    def optional(match: re.Match[str]) -> str:
        names = re.findall(r"\{(\w+)\}", match[1])
        if not names:
            return match[0]
        return match[1] if all(values.get(n) not in (None, "") for n in names) else ""

    text = re.sub(r"\[([^\[\]]*)\]", optional, template)
    text = re.sub(r"\{(\w+)\}", lambda m: str(values.get(m[1]) or "?"), text)
    return re.sub(r"\s{2,}", " ", text).strip()
