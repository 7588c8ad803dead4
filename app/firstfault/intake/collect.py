"""What belongs to this incident? Turns paths, folders, archives and pasted text into plain files.

Nothing is executed and nothing is written outside the spool folder. What cannot be read is skipped
with a reason and never silently.
"""

from __future__ import annotations

import hashlib
import os
import re
import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from firstfault.errors import InputUnreadable
from firstfault.intake import archive
from firstfault_tools.registry import Artefact

MAX_FILES = 20_000
_HIDDEN = re.compile(r"(?:^|/)(?:\.git|__pycache__|\.venv|node_modules)(?:/|$)")
_BOMS = ((b"\xff\xfe\x00\x00", "utf-32"), (b"\x00\x00\xfe\xff", "utf-32"), (b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16"))  # fmt: skip


@dataclass(frozen=True, slots=True)
class Skipped:
    """One input that was left out, and why."""

    what: str
    why: str


@dataclass(frozen=True, slots=True)
class Collection:
    """Artefacts of one incident, with unique display names, and what was skipped."""

    artefacts: tuple[Artefact, ...]
    skipped: tuple[Skipped, ...] = ()


@dataclass(slots=True)
class _Collector:
    spool: Path
    artefacts: list[Artefact] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    names: set[str] = field(default_factory=set)

    def add(self, name: str, path: Path) -> None:
        if len(self.artefacts) >= MAX_FILES:
            self.skipped.append(Skipped(name, f"more than {MAX_FILES} files; split the incident"))
            return
        unique, n = name, 2
        while unique in self.names:
            unique, n = f"{name}~{n}", n + 1
        self.names.add(unique)
        self.artefacts.append(Artefact(unique, path))

    def skip(self, what: str, why: str) -> None:
        self.skipped.append(Skipped(what, why))


def collect_paths(paths: Iterable[Path], spool: Path) -> Collection:
    """Artefacts of files and folders. Raises InputUnreadable when none of them can be read."""
    collector = _Collector(spool)
    given = list(paths)
    problems: list[str] = []
    for path in given:
        if path.is_dir():
            _collect_folder(collector, path)
        elif path.is_file():
            _collect_file(
                collector, path, path.name if len(given) == 1 else _short_name(path, given)
            )
        elif path.exists():
            problems.append(f"{path}: not a regular file")
            collector.skip(str(path), "not a regular file")
        else:
            problems.append(f"{path}: no such file")
            collector.skip(str(path), "no such file")
    if not collector.artefacts:
        reasons = "; ".join(problems or [f"{s.what}: {s.why}" for s in collector.skipped[:5]])
        raise InputUnreadable(
            f"nothing to read ({reasons or 'no input given'}). Name a log file or a folder, or pipe a log into `firstfault diagnose -`."
        )
    return Collection(tuple(collector.artefacts), tuple(collector.skipped))


def collect_bytes(name: str, data: bytes, spool: Path) -> Collection:
    """Artefacts of pasted or piped content, spooled under its hash."""
    if not data.strip():
        raise InputUnreadable(
            f"{name}: empty. Paste the log itself, or pipe it: `firstfault diagnose - < train.log`."
        )
    path = spool_bytes(data, spool)
    collector = _Collector(spool)
    _collect_file(collector, path, name)
    if not collector.artefacts:
        raise InputUnreadable(f"{name}: {collector.skipped[0].why}")
    return Collection(tuple(collector.artefacts), tuple(collector.skipped))


def collect_files(named: Iterable[tuple[str, Path]], spool: Path) -> Collection:
    """Artefacts of stored files under the names they were given with; archives are unpacked.

    Raises InputUnreadable when none of them can be read.
    """
    collector = _Collector(spool)
    for name, path in named:
        _collect_file(collector, path, name)
    if not collector.artefacts:
        reasons = "; ".join(f"{s.what}: {s.why}" for s in collector.skipped[:5])
        raise InputUnreadable(f"nothing to read ({reasons or 'no input given'}). Add a log file.")
    return Collection(tuple(collector.artefacts), tuple(collector.skipped))


def spool_bytes(data: bytes, spool: Path) -> Path:
    """Content-addressed copy of `data` below `spool`, readable by its owner only."""
    digest = hashlib.sha256(data).hexdigest()
    target = spool / digest[:2] / digest
    if not target.is_file():
        target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        temporary = target.with_suffix(f".{os.getpid()}-{threading.get_ident()}")
        temporary.write_bytes(data)
        temporary.chmod(0o600)
        os.replace(temporary, target)
    return target


def _short_name(path: Path, given: list[Path]) -> str:
    twins = [p for p in given if p.name == path.name]
    return path.name if len(twins) == 1 else f"{path.parent.name}/{path.name}"


def _collect_folder(collector: _Collector, folder: Path) -> None:
    found = 0
    for root, folders, files in os.walk(folder, followlinks=False):
        folders.sort()
        for file in sorted(files):
            path = Path(root) / file
            name = path.relative_to(folder).as_posix()
            if _HIDDEN.search(name):
                continue
            if path.is_symlink() and not path.resolve().is_relative_to(folder.resolve()):
                collector.skip(name, "a link that leads outside the folder")
                continue
            if not path.is_file():
                collector.skip(name, "not a regular file")
                continue
            found += 1
            _collect_file(collector, path, name)
    if not found:
        collector.skip(str(folder), "the folder holds no files")


def _collect_file(collector: _Collector, path: Path, name: str) -> None:
    try:
        size = path.stat().st_size
        with path.open("rb") as stream:
            head = stream.read(64 * 1024)
    except OSError as error:
        collector.skip(name, f"cannot be opened: {error.strerror}")
        return
    if size == 0:
        collector.skip(name, "empty file")
        return
    kind = archive.kind_of(head, name)
    if kind is not None:
        unpacked, skipped = archive.unpack(path, name, kind, collector.spool)
        for inner_name, inner_path in unpacked:
            _collect_plain(collector, inner_path, inner_name)
        collector.skipped += [Skipped(what, why) for what, why in skipped]
        return
    _collect_plain(collector, path, name)


def _collect_plain(collector: _Collector, path: Path, name: str) -> None:
    with path.open("rb") as stream:
        head = stream.read(64 * 1024)
    for bom, encoding in _BOMS:
        if head.startswith(bom):
            data = path.read_bytes()[: 256 * 1024 * 1024].decode(encoding, errors="replace")
            collector.add(name, spool_bytes(data.encode(), collector.spool))
            return
    if not head:
        collector.skip(name, "empty file")
        return
    collector.add(name, path)
