"""What did a person give us, and is it safe on disk? Pasted text, uploads and paths become evidence.

Accepted bytes are on disk under their hash before the database names them. A file named by path is
copied when it is small; a large one is read where it lies and watched for change.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeAlias

from firstfault.errors import InputUnreadable
from firstfault.incidents.records import EvidenceFile, Origin, clean_text
from firstfault.intake.collect import show_name, spool_bytes
from firstfault.intake.places import refuse_place
from firstfault.investigation.diagnosis import SkippedInput
from firstfault.settings import Settings
from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression

MIB = 1024 * 1024
_CONTROL = expression(r"[\x00-\x1f\x7f]+")
_HIDDEN = expression(r"(?:^|/)(?:\.git|__pycache__|\.venv|node_modules)(?:/|$)")


@dataclass(frozen=True, slots=True)
class PastedText:
    """Text from the box."""

    text: str
    name: str = "pasted.txt"


@dataclass(frozen=True, slots=True)
class Upload:
    """An uploaded file."""

    name: str
    data: bytes


@dataclass(frozen=True, slots=True)
class NamedPath:
    """A file or folder on the machine the service runs on."""

    path: Path


Input: TypeAlias = PastedText | Upload | NamedPath


@dataclass(frozen=True, slots=True)
class Acceptance:
    """Evidence that is on disk, and what was left out with the reason."""

    files: tuple[EvidenceFile, ...]
    skipped: tuple[SkippedInput, ...]


def accept_inputs(inputs: Sequence[Input], settings: Settings) -> Acceptance:
    """Store inputs. Raises InputUnreadable when inputs were given and none can be read."""
    files: list[EvidenceFile] = []
    skipped: list[SkippedInput] = []
    for given in inputs:
        for name, item in _expand(given, settings, skipped):
            if len(files) >= settings.max_inputs:
                why = f"more than {settings.max_inputs} files; raise FIRSTFAULT_MAX_INPUTS"
                skipped.append(SkippedInput(name, why))
                continue
            stored = _store(name, item, settings, skipped)
            if stored is not None:
                files.append(stored)
    if inputs and not files:
        reasons = "; ".join(f"{s.what}: {s.why}" for s in skipped[:5])
        raise InputUnreadable(f"nothing to read ({reasons}). Paste the log itself, or add a file.")
    return Acceptance(_with_unique_names(files), tuple(skipped))


def _expand(
    given: Input, settings: Settings, skipped: list[SkippedInput]
) -> Iterator[tuple[str, Input]]:
    if not isinstance(given, NamedPath):
        yield clean_name(given.name), given
    elif why := refuse_place(given.path, settings):
        skipped.append(SkippedInput(show_name(str(given.path)), why))
    elif given.path.is_dir():
        yield from _walk(given.path, settings, skipped)
    else:
        yield clean_name(given.path.name), given


def _walk(
    folder: Path, settings: Settings, skipped: list[SkippedInput]
) -> Iterator[tuple[str, Input]]:
    home = folder.resolve()
    for root, folders, names in os.walk(folder, followlinks=False):
        for closed in [f for f in folders if refuse_place(Path(root) / f, settings)]:
            folders.remove(closed)
            label = (Path(root) / closed).relative_to(folder).as_posix()
            skipped.append(SkippedInput(label, refuse_place(Path(root) / closed, settings)))
        folders.sort()
        for name in sorted(names):
            path = Path(root) / name
            label = path.relative_to(folder).as_posix()
            if _HIDDEN.search(label):
                continue
            if path.is_symlink() and not path.resolve().is_relative_to(home):
                skipped.append(SkippedInput(label, "a link that leads outside the folder"))
                continue
            if path.is_symlink() and (why := refuse_place(path, settings)):
                skipped.append(SkippedInput(label, why))
                continue
            yield clean_name(label), NamedPath(path)


def _store(
    name: str, item: Input, settings: Settings, skipped: list[SkippedInput]
) -> EvidenceFile | None:
    if isinstance(item, NamedPath):
        return _store_path(name, item.path, settings, skipped)
    if isinstance(item, PastedText):
        data, origin = item.text.encode("utf-8", "replace"), Origin.PASTED
    else:
        data, origin = item.data, Origin.UPLOADED
    if not data.strip():
        skipped.append(SkippedInput(name, "empty"))
        return None
    if len(data) > settings.max_input_mib * MIB:
        why = (
            f"{len(data) // MIB} MiB are more than the {settings.max_input_mib} MiB of one input; "
            "name the file by its path instead"
        )
        skipped.append(SkippedInput(name, why))
        return None
    return _stored(name, origin, data, settings)


def _store_path(
    name: str, path: Path, settings: Settings, skipped: list[SkippedInput]
) -> EvidenceFile | None:
    try:
        status = path.stat()
        if not path.is_file():
            skipped.append(SkippedInput(str(path), "not a regular file"))
            return None
        if status.st_size <= settings.copy_below_mib * MIB:
            data = path.read_bytes()
            if not data:
                skipped.append(SkippedInput(name, "empty file"))
                return None
            return _stored(name, Origin.COPIED, data, settings)
        with path.open("rb") as stream:
            stream.read(1)
    except OSError as error:
        skipped.append(SkippedInput(str(path), f"cannot be opened: {error.strerror}"))
        return None
    return EvidenceFile(
        name=name,
        origin=Origin.REFERENCE,
        path=path.resolve(),
        size=status.st_size,
        turn=0,
        modified=status.st_mtime,
    )


def _stored(name: str, origin: Origin, data: bytes, settings: Settings) -> EvidenceFile:
    path = spool_bytes(data, settings.spool)
    return EvidenceFile(
        name=name, origin=origin, path=path, size=len(data), turn=0, sha256=path.name
    )


def clean_name(name: str) -> str:
    """A display name: no control characters, no way out of a folder, at most 300 characters."""
    flat = _CONTROL.sub("_", clean_text(name, 1_000)).replace("\\", "/")
    parts = [p for p in flat.split("/") if p not in ("", ".", "..")]
    return show_name("/".join(parts)[-300:]) or "unnamed"


def _with_unique_names(files: list[EvidenceFile]) -> tuple[EvidenceFile, ...]:
    """Equal content under an equal name counts once; other twins get a number from intake."""
    seen: set[tuple[str, str | None, str]] = set()
    out = []
    for file in files:
        key = (file.name, file.sha256, str(file.path))
        if key not in seen:
            seen.add(key)
            out.append(file)
    return tuple(out)
