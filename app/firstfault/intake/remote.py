"""Where do logs lie that are no local files? s3://, gs:// and http(s):// objects, and globs.

Small objects and archives are copied into the spool, many at a time. Large logs stay where they are
and are read in ranges, so that the workers of a cluster each fetch their own part.
"""

from __future__ import annotations

import glob
import os
import re
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from firstfault.errors import InputUnreadable
from firstfault.intake.archive import MAX_UNPACKED, kind_of
from firstfault.intake.collect import Collection, Skipped, collect_files, collect_paths
from firstfault.intake.objects import (
    ObjectChanged,
    ObjectMissing,
    RemotePath,
    describe_object,
    in_plain_words,
    is_remote,
    name_object,
    open_store,
    open_whole,
    scheme_of,
    show_address,
)
from firstfault_tools.artefact import HEAD_BYTES, Artefact
from firstfault_tools.expressions import expression
from firstfault_tools.registry import readers, readers_for

COPY_BYTES = 8 * 1024 * 1024
"""Objects up to this size are copied at once."""

MAX_OBJECTS = 20_000
AT_ONCE = 16
"""Objects copied or looked into at the same time: a store answers late, but many at once."""

_PIECE = 1024 * 1024
_HIDDEN = expression(r"(?:^|/)(?:\.git|__pycache__|\.venv|node_modules)(?:/|$)")
Placed = tuple[str, Path] | Skipped


def _sort_sources(
    sources: Sequence[str],
) -> tuple[list[Path], list[RemotePath], list[Skipped]]:
    """Local files, objects, and what is neither."""
    local: list[Path] = []
    remote: list[RemotePath] = []
    skipped: list[Skipped] = []
    for source in sources:
        if is_remote(source):
            try:
                found = _expand(source)
            except OSError as error:
                skipped.append(Skipped(show_address(source), str(error)))
                continue
            remote += found
            if not found:
                skipped.append(Skipped(show_address(source), "no object matches"))
        elif "://" in source and not os.path.exists(source):
            kinds = "s3://, gs://, http:// and https:// are"
            skipped.append(Skipped(show_address(source), f"no such addresses are read, {kinds}"))
        elif not os.path.exists(source) and glob.has_magic(source):
            matches = sorted(glob.glob(source, recursive=True))
            local += [Path(m) for m in matches if os.path.isfile(m)]
            if not matches:
                skipped.append(Skipped(source, "no file matches"))
        else:
            local.append(Path(source))
    return local, remote, skipped


def collect_sources(sources: Sequence[str], spool: Path, in_place: bool = False) -> Collection:
    """Artefacts of paths, globs and addresses as one incident.

    in_place: others read the logs, too (a cluster), so only what must be unpacked is copied here.
    Raises InputUnreadable when none of them can be read.
    """
    local, remote, skipped = _sort_sources(sources)
    placed = _place_all(remote, spool, in_place)
    named = [p for p in placed if not isinstance(p, Skipped)]
    skipped += [p for p in placed if isinstance(p, Skipped)]
    parts = []
    if local:
        try:
            parts.append(collect_paths(local, spool))
        except InputUnreadable as error:
            if not named:
                raise
            skipped.append(Skipped(", ".join(map(str, local[:3])), str(error)))
    if named:
        parts.append(collect_files(named, spool))
    if not parts:
        reasons = "; ".join(f"{s.what}: {s.why}" for s in skipped[:5])
        raise InputUnreadable(f"nothing to read ({reasons or 'no input given'}). Name a log file.")
    return _join(parts, skipped)


def _join(parts: Sequence[Collection], skipped: Sequence[Skipped]) -> Collection:
    artefacts: list[Artefact] = []
    names: set[str] = set()
    for part in parts:
        for artefact in part.artefacts:
            unique, n = artefact.name, 2
            while unique in names:
                unique, n = f"{artefact.name}~{n}", n + 1
            names.add(unique)
            artefacts.append(Artefact(unique, artefact.path))
    return Collection(tuple(artefacts), (*skipped, *(s for part in parts for s in part.skipped)))


def _expand(url: str) -> list[RemotePath]:
    """Every object that `url` means, in order. Raises OSError, ObjectMissing where there is none."""
    filesystem, path = open_store(url)
    scheme = scheme_of(url)
    with in_plain_words(url):
        if scheme in ("http", "https"):
            return [describe_object(url, filesystem.info(path))]
    try:
        with in_plain_words(url):
            found = _list_objects(filesystem, path)
    except ObjectMissing:
        _check_bucket(filesystem, url, path)
        raise
    if len(found) > MAX_OBJECTS:
        raise InputUnreadable(
            f"{show_address(url)}: more than {MAX_OBJECTS} objects; name a folder or glob of fewer"
        )
    if not found:
        _check_bucket(filesystem, url, path)
    return [
        describe_object(f"{scheme}://{name.lstrip('/')}", info)
        for name, info in sorted(found.items())
    ]


def _list_objects(filesystem: Any, path: str) -> dict[str, Any]:
    if glob.has_magic(path.partition("?versionId=")[0]):
        found = filesystem.glob(path, detail=True)
    else:
        info = filesystem.info(path)
        folder = info.get("type") == "directory"
        found = filesystem.find(path, detail=True) if folder else {path: info}
    return {
        name: info
        for name, info in found.items()
        if info.get("type") != "directory" and not name.endswith("/") and not _HIDDEN.search(name)
    }


def _check_bucket(filesystem: Any, url: str, path: str) -> None:
    """Raises ObjectMissing with the bucket's name where it is the bucket that is missing."""
    bucket = path.lstrip("/").split("/", 1)[0]
    if scheme_of(url) == "memory":
        return
    try:
        with in_plain_words(url):
            filesystem.info(bucket)
    except ObjectMissing:
        raise ObjectMissing(f"no such bucket: {bucket}") from None
    except OSError:
        return  # whoever may read objects need not be allowed to look at the bucket


def _place_all(remote: Sequence[RemotePath], spool: Path, in_place: bool) -> list[Placed]:
    if not remote:
        return []
    readers()  # loaded here: imports of many threads would wait for each other
    with ThreadPoolExecutor(min(AT_ONCE, len(remote)), thread_name_prefix="place") as pool:
        return list(pool.map(lambda r: _place(r, spool, in_place), remote))


def _place(remote: RemotePath, spool: Path, in_place: bool) -> Placed:
    """Name and path of one object: a copy in the spool, or the object itself if it is a large log."""
    name = name_object(remote.url)
    try:
        try:
            return name, _fetch(remote, spool, in_place)
        except ObjectChanged:
            # a log that is still written to; what it is now is as good
            return name, _fetch(_look_again(remote), spool, in_place)
    except OSError as error:
        return Skipped(show_address(remote.url), f"cannot be read: {error}")


def _look_again(remote: RemotePath) -> RemotePath:
    filesystem, path = open_store(remote.url)
    with in_plain_words(remote.url):
        filesystem.invalidate_cache()
        return describe_object(remote.url, filesystem.info(path))


def _fetch(remote: RemotePath, spool: Path, in_place: bool) -> Path:
    stays = HEAD_BYTES if in_place else COPY_BYTES
    if remote.size <= stays:
        return _copy(remote, spool, ranged=False)
    try:
        head = _read_ends(remote)
    except (ObjectChanged, PermissionError):
        raise
    except OSError:
        return _copy(remote, spool, ranged=False)  # a server that knows no ranges
    if kind_of(head, remote.name) is not None or _is_owned(remote, head):
        return _copy(remote, spool, ranged=True)
    return cast(Path, replace(remote, head=_spool_head(head, spool)))


def _read_ends(remote: RemotePath) -> bytes:
    """The first bytes of an object that can be read from any place. Raises OSError."""
    with remote.open() as stream:
        head = stream.read(HEAD_BYTES)
        stream.seek(remote.size - 1)
        if len(stream.read(1)) != 1:
            raise OSError("the server gives no ranges")
    return head


def _is_owned(remote: RemotePath, head: bytes) -> bool:
    """No log, but a file that a reader wants whole and on disk."""
    return any(
        reader.owns and reader.recognise(remote.name, head)
        for reader in readers_for(remote.name, head)
    )


def _spool_head(head: bytes, spool: Path) -> Path:
    spool.mkdir(parents=True, exist_ok=True, mode=0o700)
    handle, name = tempfile.mkstemp(dir=spool, prefix="head-")
    with os.fdopen(handle, "wb") as target:
        target.write(head)
    return Path(name)


def _copy(remote: RemotePath, spool: Path, ranged: bool) -> Path:
    spool.mkdir(parents=True, exist_ok=True, mode=0o700)
    ending = re.sub(r"[^\w.-]", "_", remote.name)[-60:]
    handle, name = tempfile.mkstemp(dir=spool, prefix="fetched-", suffix=f"-{ending}")
    target = Path(name)
    try:
        with os.fdopen(handle, "wb") as sink, in_plain_words(remote.url):
            stream = remote.open(eager=True) if ranged else open_whole(remote)
            with stream as source:
                left = MAX_UNPACKED
                while piece := source.read(_PIECE):
                    left -= len(piece)
                    if left < 0:
                        raise OSError(f"larger than {MAX_UNPACKED >> 30} GiB; copy it here first")
                    sink.write(piece)
    except OSError:
        target.unlink()
        raise
    return target
