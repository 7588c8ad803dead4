"""What is inside a compressed file or archive? Unpacked into the spool, within limits.

Member names are labels, never paths to write to; links and devices are skipped; sizes are counted
while unpacking, since headers lie.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import tarfile
import tempfile
import zipfile
import zlib
from pathlib import Path
from typing import IO

MAX_UNPACKED = 8 * 1024**3
MAX_RATIO = 2000
RATIO_FROM = 64 * 1024**2
MAX_MEMBERS = 20_000
_CHUNK = 1024 * 1024

Unpacked = list[tuple[str, Path]]
Reasons = list[tuple[str, str]]


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


def unpack(path: Path, name: str, kind: str, spool: Path) -> tuple[Unpacked, Reasons]:
    """Plain files found in `path`, and what was left out with the reason."""
    spool.mkdir(parents=True, exist_ok=True, mode=0o700)
    budget = _Budget(path.stat().st_size)
    try:
        if kind == "tar":
            with path.open("rb") as stream:
                return _unpack_tar(stream, name, spool, budget)
        if kind == "zip":
            return _unpack_zip(path, name, spool, budget)
        return _unpack_stream(path, name, kind, spool, budget)
    except _TooLarge as error:
        return [], [(name, str(error))]
    except (OSError, EOFError, zlib.error, lzma.LZMAError, tarfile.TarError, zipfile.BadZipFile, ValueError) as error:  # fmt: skip
        return [], [(name, f"damaged {kind} file ({error}); copy it again, or unpack what is left")]


class _TooLarge(Exception):
    """The content grows past what an incident may hold."""


class _Budget:
    def __init__(self, packed: int) -> None:
        self.packed = max(packed, 1)
        self.unpacked = 0

    def spend(self, count: int) -> None:
        self.unpacked += count
        if self.unpacked > MAX_UNPACKED:
            raise _TooLarge(
                f"unpacks to more than {MAX_UNPACKED >> 30} GiB; unpack it and name the logs"
            )
        if self.unpacked > RATIO_FROM and self.unpacked / self.packed > MAX_RATIO:
            raise _TooLarge(
                f"unpacks to more than {MAX_RATIO} times its size, like an archive bomb; refused"
            )


def _open(path: Path, kind: str) -> IO[bytes]:
    if kind == "gzip":
        return gzip.open(path, "rb")  # type: ignore[return-value]
    if kind == "bzip2":
        return bz2.open(path, "rb")
    if kind == "xz":
        return lzma.open(path, "rb")
    import zstandard

    try:
        return zstandard.open(path, "rb")  # type: ignore[no-any-return]
    except zstandard.ZstdError as error:
        raise OSError(str(error)) from error


def _copy(source: IO[bytes], spool: Path, budget: _Budget) -> tuple[Path, bool]:
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
        except (OSError, EOFError, zlib.error, lzma.LZMAError):
            truncated = True
        except Exception as error:
            if type(error).__name__ != "ZstdError":
                raise
            truncated = True
    return Path(name), truncated


def _unpack_stream(
    path: Path, name: str, kind: str, spool: Path, budget: _Budget
) -> tuple[Unpacked, Reasons]:
    with _open(path, kind) as source:
        target, truncated = _copy(source, spool, budget)
    inner = name.rsplit(".", 1)[0] if "." in name else name
    reasons = [(name, f"damaged {kind} file: read only up to the damage")] if truncated else []
    with target.open("rb") as stream:
        head = stream.read(512)
        if head[257:262] == b"ustar":
            stream.seek(0)
            return _unpack_tar(stream, inner, spool, budget)
    if target.stat().st_size == 0:
        return [], [(name, f"damaged or empty {kind} file")]
    return [(inner, target)], reasons


def _unpack_tar(
    stream: IO[bytes], name: str, spool: Path, budget: _Budget
) -> tuple[Unpacked, Reasons]:
    out: Unpacked = []
    reasons: Reasons = []
    with tarfile.open(fileobj=stream, mode="r:") as tar:
        for member in tar:
            label = f"{name}/{_label(member.name)}"
            if len(out) >= MAX_MEMBERS:
                reasons.append((name, f"more than {MAX_MEMBERS} members; the rest was left out"))
                break
            if not member.isfile():
                if not member.isdir():
                    reasons.append((label, "a link or device inside an archive"))
                continue
            source = tar.extractfile(member)
            if source is not None and member.size:
                out.append((label, _copy(source, spool, budget)[0]))
    return out, reasons


def _unpack_zip(path: Path, name: str, spool: Path, budget: _Budget) -> tuple[Unpacked, Reasons]:
    out: Unpacked = []
    reasons: Reasons = []
    with zipfile.ZipFile(path) as archive:
        for info in archive.infolist()[:MAX_MEMBERS]:
            label = f"{name}/{_label(info.filename)}"
            if info.is_dir() or not info.file_size:
                continue
            if info.flag_bits & 1:
                reasons.append((label, "encrypted; unpack it with its password first"))
                continue
            with archive.open(info) as source:
                out.append((label, _copy(source, spool, budget)[0]))
    return out, reasons


def _label(member: str) -> str:
    """A member's name as a display label: no absolute or parent parts."""
    parts = [p for p in member.replace("\\", "/").split("/") if p not in ("", ".", "..")]
    return "/".join(parts)[:300] or "unnamed"
