"""Where do logs lie that are no local files? s3://, gs:// and http(s):// objects, and globs.

Small objects and archives are copied into the spool. Large logs stay where they are and are read in
ranges, so that the workers of a cluster each fetch their own part. fsspec is imported only here.
"""

from __future__ import annotations

import glob
import io
import os
import re
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

from firstfault.errors import InputUnreadable
from firstfault.intake.archive import MAX_UNPACKED, kind_of
from firstfault.intake.collect import Collection, Skipped, collect_files, collect_paths
from firstfault_tools.registry import Artefact

COPY_BYTES = 8 * 1024 * 1024
"""Objects up to this size are copied at once."""

READ_BYTES = 1024 * 1024
MAX_OBJECTS = 20_000
SCHEMES = ("s3", "gs", "gcs", "http", "https", "memory")
_REMOTE = re.compile(rf"(?:{'|'.join(SCHEMES)})://")
_INSTALL = {"s3": "s3fs", "gs": "gcsfs", "gcs": "gcsfs", "http": "aiohttp", "https": "aiohttp"}


def is_remote(source: str) -> bool:
    """An address fsspec opens, not a local path."""
    return _REMOTE.match(source) is not None


@dataclass(frozen=True, slots=True)
class _Size:
    st_size: int


@dataclass(frozen=True, slots=True)
class RemotePath:
    """An object that is read like a `Path`: opened for reading, sought in, asked for its size."""

    url: str
    size: int

    @property
    def name(self) -> str:
        return self.url.rstrip("/").rsplit("/", 1)[-1]

    def stat(self) -> _Size:
        return _Size(self.size)

    def open(self, mode: str = "rb") -> IO[bytes]:
        filesystem, path = _filesystem(self.url)
        # fsspec's own files know no readline with a limit
        return io.BufferedReader(filesystem.open(path, "rb"), READ_BYTES)

    def read_bytes(self) -> bytes:
        with self.open() as stream:
            return stream.read()


def collect_sources(sources: Sequence[str], spool: Path) -> Collection:
    """Artefacts of paths, globs and addresses as one incident.

    Raises InputUnreadable when none of them can be read.
    """
    local: list[Path] = []
    named: list[tuple[str, Path]] = []
    skipped: list[Skipped] = []
    for source in sources:
        if is_remote(source):
            found = [_place(url, size, spool) for url, size in _expand(source)]
            named += found
            if not found:
                skipped.append(Skipped(source, "no such object"))
        elif not os.path.exists(source) and glob.has_magic(source):
            matches = sorted(glob.glob(source, recursive=True))
            local += [Path(m) for m in matches if os.path.isfile(m)]
            if not matches:
                skipped.append(Skipped(source, "no file matches"))
        else:
            local.append(Path(source))
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


def _filesystem(url: str) -> tuple[Any, str]:
    scheme = url.split("://", 1)[0]
    try:
        import fsspec

        filesystem, path = fsspec.core.url_to_fs(url)
    except ImportError as error:
        package = _INSTALL.get(scheme, "fsspec")
        raise InputUnreadable(
            f"{url}: needs the package {package}: pip install {package}"
        ) from error
    return filesystem, str(path)


def _expand(url: str) -> Iterator[tuple[str, int]]:
    """(address, size in bytes; -1 if unknown) of every object that `url` means."""
    filesystem, path = _filesystem(url)
    scheme = url.split("://", 1)[0]
    try:
        if glob.has_magic(path) and scheme not in ("http", "https"):
            found = filesystem.glob(path, detail=True)
        elif scheme not in ("http", "https") and filesystem.isdir(path):
            found = filesystem.find(path, detail=True)
        else:
            found = {path: filesystem.info(path)}
    except FileNotFoundError:
        return
    except OSError as error:
        raise InputUnreadable(f"{url}: cannot be listed ({error})") from error
    for count, (name, info) in enumerate(sorted(found.items())):
        if count >= MAX_OBJECTS:
            raise InputUnreadable(f"{url}: more than {MAX_OBJECTS} objects; name fewer")
        if info.get("type") == "directory":
            continue
        size = info.get("size")
        address = name if is_remote(name) else f"{scheme}://{name.lstrip('/')}"
        yield address, size if isinstance(size, int) else -1


def _place(url: str, size: int, spool: Path) -> tuple[str, Path]:
    """Name and path of one object: a copy in the spool, or the object itself if it is a large log."""
    remote = RemotePath(url, size)
    name = url.split("://", 1)[1]
    try:
        if size > COPY_BYTES and _reads_in_ranges(remote):
            return name, cast(Path, remote)
        return name, _copy(remote, spool)
    except OSError as error:
        raise InputUnreadable(f"{url}: cannot be read ({error})") from error


def _reads_in_ranges(remote: RemotePath) -> bool:
    """A log that can be read from any place; archives have to be unpacked first."""
    try:
        with remote.open() as stream:
            if kind_of(stream.read(512), remote.name) is not None:
                return False
            stream.seek(remote.size - 1)
            return len(stream.read(1)) == 1
    except (OSError, ValueError):  # fsspec's word for a server that ignores ranges
        return False


def _copy(remote: RemotePath, spool: Path) -> Path:
    spool.mkdir(parents=True, exist_ok=True, mode=0o700)
    handle, name = tempfile.mkstemp(dir=spool, prefix="fetched-", suffix=f"-{remote.name[-60:]}")
    left = MAX_UNPACKED
    with os.fdopen(handle, "wb") as target, remote.open() as source:
        while chunk := source.read(1024 * 1024):
            left -= len(chunk)
            if left < 0:
                target.close()
                os.unlink(name)
                raise InputUnreadable(
                    f"{remote.url}: larger than {MAX_UNPACKED >> 30} GiB; copy it here first"
                )
            target.write(chunk)
    return Path(name)
