"""What is inside a compressed file or archive? Unpacked into the spool, within limits.

Member names are labels, never paths to write to; links and devices are skipped; sizes are counted
while unpacking, since headers lie.
"""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
import zlib
from pathlib import Path
from typing import IO

from firstfault_tools.dataclass import dataclass

MAX_UNPACKED = 8 * 1024**3
MAX_RATIO = 400
"""Times its size an archive may unpack to: deflate ends at 1,032, logs of one repeated line near 300."""

RATIO_FROM = 64 * 1024**2
MAX_MEMBERS = 10_000
KEPT_FREE = 1024**3
"""Bytes of the disk that unpacking leaves to everybody else."""

MAX_DEPTH = 2
"""How many times an archive may hold another one, such as a .gz in a .zip in a .tar.gz."""
_CHUNK = 1024 * 1024
_TOO_MANY = f"more than {MAX_MEMBERS} members; the rest was left out"

Unpacked = list[tuple[str, Path]]
Reasons = list[tuple[str, str]]


def _damage() -> tuple[type[Exception], ...]:
    """What a damaged archive raises. Most logs are none, so what reads archives is loaded where one is met."""
    import lzma
    import tarfile
    import zipfile

    return (OSError, EOFError, zlib.error, lzma.LZMAError, tarfile.TarError, zipfile.BadZipFile, ValueError)  # fmt: skip


def kind_of(head: bytes, name: str) -> str | None:
    """gzip, bzip2, xz, zstd, tar or zip by magic bytes; None for a plain file."""
    if head.startswith(b"\x1f\x8b"):
        return "gzip"
    if head.startswith(b"BZh"):
        return "bzip2"
    if head.startswith(b"\xfd7zXZ\x00"):
        return "xz"
    if head.startswith(b"\x28\xb5\x2f\xfd"):
        return "zstd"
    if head[257:262] == b"ustar":
        return "tar"
    if head.startswith(b"PK\x03\x04") and name.lower().endswith((".zip", ".evidence")):
        return "zip"
    return None


def unpack(
    path: Path, name: str, kind: str, spool: Path, budget: Budget | None = None
) -> tuple[Unpacked, Reasons]:
    """Plain files found in `path`, and what was left out with the reason.

    budget: what the whole incident may unpack; one of its own where None.

    Compressed files and archives inside an archive are unpacked too, MAX_DEPTH deep. What was read
    before damage or before a limit is kept.
    """
    found: Unpacked = []
    reasons: Reasons = []
    try:
        spool.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        return [], [
            (name, f"cannot be unpacked into {spool} ({error.strerror}); set FIRSTFAULT_DATA")
        ]
    budget = budget or Budget()
    budget.open(path.stat().st_size, shutil.disk_usage(spool).free)
    _unpack(path, name, kind, _Job(spool, budget, found, reasons), 0)
    return found, reasons


def _unpack(path: Path, name: str, kind: str, job: _Job, depth: int) -> None:
    try:
        if kind == "tar":
            with path.open("rb") as stream:
                _unpack_tar(stream, name, job, depth)
        elif kind == "zip":
            _unpack_zip(path, name, job, depth)
        else:
            _unpack_stream(path, name, kind, job, depth)
    except _TooLarge as error:
        job.reasons.append((name, str(error)))
    except _damage() as error:
        job.reasons.append(
            (name, f"damaged {kind} file ({error}); copy it again, or unpack what is left")
        )


class _TooLarge(Exception):
    """The content grows past what an incident may hold."""


@dataclass(frozen=True, slots=True)
class _Job:
    """One archive being unpacked, with everything nested in it."""

    spool: Path
    budget: Budget
    found: Unpacked
    reasons: Reasons

    def keep(self, name: str, path: Path, truncated: bool, depth: int) -> None:
        """Take a file that came out of an archive; unpack it if it is one itself."""
        if truncated:
            self.reasons.append((name, "damaged inside its archive: read only up to the damage"))
        with path.open("rb") as stream:
            head = stream.read(512)
        if not head:
            path.unlink()
            if not truncated:
                self.reasons.append((name, "empty file"))
            return
        kind = kind_of(head, name)
        if kind is None:
            self.budget.members += 1
            self.found.append((name, path))
        elif depth >= MAX_DEPTH:
            path.unlink()
            self.reasons.append((name, f"packed more than {MAX_DEPTH + 1} times; unpack it first"))
        else:
            _unpack(path, name, kind, self, depth + 1)
            path.unlink()


class Budget:
    """What all archives of one incident may unpack, against their size and the free disk."""

    def __init__(self) -> None:
        self.packed = 1
        self.unpacked = 0
        self.members = 0
        self._room = MAX_UNPACKED

    def open(self, packed: int, free: int) -> None:
        """One more archive of `packed` bytes, with `free` bytes left on the disk."""
        self.packed += packed
        self._room = min(MAX_UNPACKED, self.unpacked + max(0, free - KEPT_FREE))

    def spend(self, count: int) -> None:
        """Raises _TooLarge where `count` bytes more are too many."""
        self.unpacked += count
        if self.unpacked > MAX_UNPACKED:
            raise _TooLarge(
                f"unpacks to more than {MAX_UNPACKED >> 30} GiB with the rest of the incident; "
                "unpack it and name the logs"
            )
        if self.unpacked > self._room:
            raise _TooLarge(
                "unpacks to more than the disk of the spool holds; free some, or set FIRSTFAULT_DATA"
            )
        if self.unpacked > RATIO_FROM and self.unpacked / self.packed > MAX_RATIO:
            raise _TooLarge(
                f"unpacks to more than {MAX_RATIO} times its size, like an archive bomb; refused"
            )


def _open(path: Path, kind: str) -> IO[bytes]:
    if kind == "gzip":
        import gzip

        return gzip.open(path, "rb")  # type: ignore[return-value]
    if kind == "bzip2":
        import bz2

        return bz2.open(path, "rb")
    if kind == "xz":
        import lzma

        return lzma.open(path, "rb")
    import zstandard

    try:
        return zstandard.open(path, "rb")  # type: ignore[no-any-return]
    except zstandard.ZstdError as error:
        raise OSError(str(error)) from error


def _copy(source: IO[bytes], spool: Path, budget: Budget) -> tuple[Path, bool]:
    """Copy into a fresh spool file; the flag says that the source ended early (truncated)."""
    handle, name = tempfile.mkstemp(dir=spool, prefix="unpacked-")
    truncated = False
    with os.fdopen(handle, "wb") as target:
        try:
            # read1 gives what was decoded before the damage; read would give nothing
            read = getattr(source, "read1", source.read)
            while chunk := read(_CHUNK):
                budget.spend(len(chunk))
                target.write(chunk)
        except _TooLarge:
            target.close()
            os.unlink(name)
            raise
        except _damage() as error:
            if isinstance(error, OSError) and error.errno == errno.ENOSPC:
                target.close()
                os.unlink(name)
                raise _TooLarge(
                    f"no space left in {spool}; free some, or set FIRSTFAULT_DATA"
                ) from error
            truncated = True
        except Exception as error:
            if type(error).__name__ != "ZstdError":
                raise
            truncated = True
    return Path(name), truncated


def _unpack_stream(path: Path, name: str, kind: str, job: _Job, depth: int) -> None:
    with _open(path, kind) as source:
        target, truncated = _copy(source, job.spool, job.budget)
    if target.stat().st_size == 0:
        target.unlink()
        job.reasons.append((name, f"damaged or empty {kind} file"))
        return
    folder, slash, last = name.rpartition("/")
    inner = f"{folder}{slash}{last.rsplit('.', 1)[0] or last}"
    with target.open("rb") as stream:
        head = stream.read(512)
    if head[257:262] != b"ustar":
        if truncated:
            job.reasons.append((name, f"damaged {kind} file: read only up to the damage"))
        job.keep(inner, target, False, depth)
        return
    with target.open("rb") as stream:
        try:
            _unpack_tar(stream, inner, job, depth)
        finally:
            target.unlink()


def _unpack_tar(stream: IO[bytes], name: str, job: _Job, depth: int) -> None:
    import tarfile

    with tarfile.open(fileobj=stream, mode="r:") as tar:
        for count, member in enumerate(tar):
            label = f"{name}/{_label(member.name)}"
            if max(count, job.budget.members) >= MAX_MEMBERS:
                job.reasons.append((name, _TOO_MANY))
                return
            if not member.isfile():
                if not member.isdir():
                    job.reasons.append((label, "a link or device inside an archive"))
                continue
            source = tar.extractfile(member)
            if source is not None and member.size:
                target, truncated = _copy(source, job.spool, job.budget)
                job.keep(label, target, truncated or target.stat().st_size < member.size, depth)


def _unpack_zip(path: Path, name: str, job: _Job, depth: int) -> None:
    import zipfile

    with zipfile.ZipFile(path) as archive:
        for count, info in enumerate(archive.infolist()):
            if max(count, job.budget.members) >= MAX_MEMBERS:
                job.reasons.append((name, _TOO_MANY))
                return
            label = f"{name}/{_label(info.filename)}"
            if info.is_dir() or not info.file_size:
                continue
            if info.flag_bits & 1:
                job.reasons.append((label, "encrypted; unpack it with its password first"))
                continue
            try:
                with archive.open(info) as source:
                    target, truncated = _copy(source, job.spool, job.budget)
            except NotImplementedError as error:
                job.reasons.append((label, f"{error}; unpack it first"))
                continue
            except (zipfile.BadZipFile, zlib.error, OSError) as error:
                job.reasons.append((label, f"damaged inside its archive ({error})"))
                continue
            job.keep(label, target, truncated, depth)


def _label(member: str) -> str:
    """A member's name as a display label: no absolute or parent parts."""
    parts = [p for p in member.replace("\\", "/").split("/") if p not in ("", ".", "..")]
    return "/".join(parts)[:300] or "unnamed"
