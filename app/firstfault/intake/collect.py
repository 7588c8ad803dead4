"""What belongs to this incident? Turns paths, folders, archives and pasted text into plain files.

Nothing is executed and nothing is written outside the spool folder. What cannot be read is skipped
with a reason and never silently.
"""

from __future__ import annotations

import os
import stat
import tempfile
import threading
from collections import Counter
from collections.abc import Iterable
from dataclasses import field
from pathlib import Path
from typing import IO

from firstfault.errors import InputUnreadable
from firstfault.intake import archive, debug_pages
from firstfault.plain_text import show_line
from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.log.secrets import redact
from firstfault_tools.registry import Artefact

MAX_FILES = 20_000
_MAX_TRANSCODED = 256 * 1024 * 1024
_WIDE_HEAD = expression(
    rb"(?:((?:[\t\n\r\x20-\x7e]\x00){16,})|(?:\x00[\t\n\r\x20-\x7e]){16,})", short=1 << 20
)
"""UTF-16 without a mark: its first characters are plain ones."""

_PIECE = 1024 * 1024
_HIDDEN = expression(r"(?:^|/)(?:\.git|__pycache__|\.venv|node_modules)(?:/|$)")
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
    twins: Counter[str] = field(default_factory=Counter)
    given: set[tuple[int, int]] = field(default_factory=set)
    budget: archive.Budget = field(default_factory=archive.Budget)

    def add(self, name: str, path: Path) -> None:
        if len(self.artefacts) >= MAX_FILES:
            self.skip(name, f"more than {MAX_FILES} files; split the incident")
            return
        name = show_name(name)
        unique = name
        while unique in self.names:
            self.twins[name] += 1
            unique = f"{name}~{self.twins[name] + 1}"
        self.names.add(unique)
        self.artefacts.append(Artefact(unique, path))

    def skip(self, what: str, why: str) -> None:
        self.skipped.append(Skipped(show_name(what), why))


def show_name(name: str) -> str:
    """A file's name as it may be shown anywhere: no secrets, line breaks or control characters.

    What was no UTF-8, and characters that would steer a terminal or turn text around, become U+FFFD.
    """
    return redact(show_line(name))


def collect_paths(paths: Iterable[Path], spool: Path) -> Collection:
    """Artefacts of files and folders. Raises InputUnreadable when none of them can be read."""
    collector = _Collector(spool)
    given = [path for path in paths if not _is_twin(collector, path)]
    named = Counter(path.name for path in given)
    for path in given:
        try:
            mode = path.stat().st_mode
        except (OSError, ValueError) as error:
            problem = _say_problem(error)
        else:
            if stat.S_ISDIR(mode):
                _collect_folder(collector, path)
                continue
            if stat.S_ISREG(mode):
                twin = named[path.name] > 1
                name = f"{path.parent.name}/{path.name}" if twin else path.name
                _collect_file(collector, path, name)
                continue
            problem = "not a regular file; pipe what it gives into `firstfault diagnose -`"
        collector.skip(str(path), problem)
    if not collector.artefacts:
        reasons = _say_skipped(collector)
        raise InputUnreadable(
            f"nothing to read ({reasons or 'no input given'}). Name a log file or a folder, or pipe a log into `firstfault diagnose -`."
        )
    return Collection(tuple(collector.artefacts), tuple(collector.skipped))


def _is_twin(collector: _Collector, path: Path) -> bool:
    """The very file was named before; read twice, each of its lines would count twice."""
    try:
        status = path.stat()
    except (OSError, ValueError):
        return False
    key = (status.st_dev, status.st_ino)
    if not stat.S_ISREG(status.st_mode) or key not in collector.given:
        collector.given.add(key)
        return False
    collector.skip(str(path), "named twice; read once")
    return True


def collect_bytes(name: str, data: bytes, spool: Path) -> Collection:
    """Artefacts of pasted or piped content, spooled under its hash."""
    if not data.strip():
        raise InputUnreadable(
            f"{name}: empty. Paste the log itself, or pipe it: `firstfault diagnose - < train.log`."
        )
    try:
        path = spool_bytes(data, spool)
    except OSError as error:
        raise InputUnreadable(f"{name}: {_say_spool(error, spool)}") from error
    collector = _Collector(spool)
    _collect_file(collector, path, name)
    if not collector.artefacts:
        raise InputUnreadable(f"{name}: {collector.skipped[0].why}")
    return Collection(tuple(collector.artefacts), tuple(collector.skipped))


def collect_stream(name: str, stream: IO[bytes], spool: Path) -> Collection:
    """Artefacts of what a pipe gives until its end, copied into the spool piece by piece."""
    try:
        spool.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle, copy = tempfile.mkstemp(dir=spool, prefix="piped-")
        seen = False
        left = archive.MAX_UNPACKED
        with os.fdopen(handle, "wb") as target:
            while left > 0 and (piece := stream.read(min(_PIECE, left))):
                seen = seen or not piece.isspace()
                left -= target.write(piece)
            cut = left <= 0 and bool(stream.read(1))
    except OSError as error:
        raise InputUnreadable(f"{name}: {_say_spool(error, spool)}") from error
    path = Path(copy)
    if not seen:
        path.unlink()
        raise InputUnreadable(
            f"{name}: empty. Paste the log itself, or pipe it: `firstfault diagnose - < train.log`."
        )
    collector = _Collector(spool)
    _collect_file(collector, path, name)
    if cut:
        limit = archive.MAX_UNPACKED >> 30
        collector.skip(name, f"what comes after {limit} GiB; save it to a file and name that")
    if not collector.artefacts:
        raise InputUnreadable(_say_skipped(collector))
    return Collection(tuple(collector.artefacts), tuple(collector.skipped))


def _say_spool(error: OSError, spool: Path) -> str:
    return (
        f"cannot be kept in {error.filename or spool} ({error.strerror}); "
        "set FIRSTFAULT_DATA to a folder that can be written, or name a file"
    )


def collect_files(named: Iterable[tuple[str, Path]], spool: Path) -> Collection:
    """Artefacts of stored files under the names they were given with; archives are unpacked.

    Raises InputUnreadable when none of them can be read.
    """
    collector = _Collector(spool)
    for name, path in named:
        _collect_file(collector, path, name)
    if not collector.artefacts:
        reasons = _say_skipped(collector)
        raise InputUnreadable(f"nothing to read ({reasons or 'no input given'}). Add a log file.")
    return Collection(tuple(collector.artefacts), tuple(collector.skipped))


def spool_bytes(data: bytes, spool: Path) -> Path:
    """Content-addressed copy of `data` below `spool`, readable by its owner only."""
    import hashlib

    digest = hashlib.sha256(data).hexdigest()
    target = spool / digest[:2] / digest
    if not target.is_file():
        target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        temporary = target.with_suffix(f".{os.getpid()}-{threading.get_ident()}")
        temporary.write_bytes(data)
        temporary.chmod(0o600)
        os.replace(temporary, target)
    return target


def _say_problem(error: OSError | ValueError) -> str:
    if isinstance(error, FileNotFoundError):
        return "no such file"
    if isinstance(error, PermissionError):
        return "permission denied; make it readable for the user that runs this"
    return str((isinstance(error, OSError) and error.strerror) or error)


def _say_skipped(collector: _Collector) -> str:
    said = [f"{s.what[:200]}: {s.why}" for s in collector.skipped[:5]]
    more = len(collector.skipped) - len(said)
    return "; ".join([*said, f"{more} more"] if more > 0 else said)


def _collect_folder(collector: _Collector, folder: Path) -> None:
    found = 0
    closed = 0

    def note(error: OSError) -> None:
        nonlocal closed
        closed += 1
        collector.skip(str(error.filename or folder), _say_problem(error))

    for root, folders, files in os.walk(folder, onerror=note, followlinks=False):
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
    if not found and not closed:
        collector.skip(str(folder), "the folder holds no files")


def _collect_file(collector: _Collector, path: Path, name: str) -> None:
    try:
        size = path.stat().st_size
        with path.open("rb") as stream:
            head = stream.read(64 * 1024)
    except OSError as error:
        collector.skip(name, f"cannot be opened: {_say_problem(error)}")
        return
    if size == 0:
        collector.skip(name, "empty file")
        return
    kind = archive.kind_of(head, name)
    if kind is not None:
        unpacked, skipped = archive.unpack(path, name, kind, collector.spool, collector.budget)
        for inner_name, inner_path in unpacked:
            _collect_plain(collector, inner_path, inner_name)
        for what, why in skipped:
            collector.skip(what, why)
        return
    _collect_plain(collector, path, name)


def _collect_plain(collector: _Collector, path: Path, name: str) -> None:
    with path.open("rb") as stream:
        head = stream.read(64 * 1024)
    wide = _WIDE_HEAD.match(head)
    told = ((wide[0][:0], "utf-16-le" if wide[1] else "utf-16-be"),) if wide else ()
    for bom, encoding in (*_BOMS, *told):
        if head.startswith(bom):
            with path.open("rb") as stream:
                data = stream.read(_MAX_TRANSCODED).decode(encoding, errors="replace")
                cut = bool(stream.read(1))
            collector.add(name, spool_bytes(data.encode("utf-8", "replace"), collector.spool))
            if cut:
                limit = _MAX_TRANSCODED >> 20
                collector.skip(
                    name, f"what comes after {limit} MiB of {encoding}; convert it first"
                )
            return
    if not head:
        collector.skip(name, "empty file")
        return
    if not (debug_pages.is_page(head) and _collect_page(collector, path, name)):
        collector.add(name, path)


def _collect_page(collector: _Collector, path: Path, name: str) -> bool:
    """The parts of all ranks of a page of torch's debug server; False where it has none."""
    with path.open("rb") as stream:
        text = stream.read(debug_pages.LIMIT).decode("utf-8", errors="replace")
    parts = list(debug_pages.split_page(text))
    for part in parts:
        if part.failed or not part.text.strip():
            collector.skip(part.name(name), part.failed or "the server shows nothing of this rank")
            continue
        data = part.text.encode("utf-8", "replace")
        collector.add(part.name(name), spool_bytes(data, collector.spool))
    return bool(parts)
