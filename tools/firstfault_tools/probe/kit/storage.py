"""How fast can this node read its data, and feed batches to a training step?"""

from __future__ import annotations

import os
import tempfile
import time
from typing import Any

from .record import make_record

BLOCK = 4 * 1024 * 1024
FILE_BYTES = 512 * 1024 * 1024
READ_LIMIT_BYTES = 2 * 1024**3


def _drop_cache(descriptor: int) -> bool:
    """Ask the kernel to forget this one file's pages; other files keep theirs."""
    if not hasattr(os, "posix_fadvise"):
        return False
    try:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    except OSError:
        return False
    return True


def _read(path: str, limit: int, limit_s: float) -> tuple[int, float, bool]:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        dropped = _drop_cache(descriptor)
        done = 0
        begin = time.perf_counter()
        while done < limit and time.perf_counter() - begin < limit_s:
            piece = os.read(descriptor, BLOCK)
            if not piece:
                break
            done += len(piece)
        return done, time.perf_counter() - begin, dropped
    finally:
        os.close(descriptor)


def _list_files(folder: str, wanted: int) -> list[str]:
    found: list[str] = []
    total = 0
    for place, _folders, names in os.walk(folder):
        for name in sorted(names):
            path = os.path.join(place, name)
            if os.path.isfile(path) and not os.path.islink(path):
                found.append(path)
                total += os.path.getsize(path)
            if total >= wanted or len(found) >= 10000:
                return found
    return found


def measure_storage(data_path: str | None, limit_s: float = 8.0) -> list[dict[str, Any]]:
    """Read rate of the data folder, or write and read rate of a scratch file that is removed again."""
    if data_path:
        return [_measure_folder(data_path, limit_s)]
    folder = tempfile.gettempdir()
    stats = os.statvfs(folder)
    if stats.f_bavail * stats.f_frsize < 4 * FILE_BYTES:
        reason = f"not available here: {folder} has less than {4 * FILE_BYTES >> 20} MiB free"
        return [make_record("storage", "unavailable", reason=reason)]
    block = os.urandom(BLOCK)
    with tempfile.NamedTemporaryFile(prefix="firstfault-probe-") as scratch:
        begin = time.perf_counter()
        written = 0
        while written < FILE_BYTES and time.perf_counter() - begin < limit_s / 2:
            scratch.write(block)
            written += len(block)
        scratch.flush()
        os.fsync(scratch.fileno())
        write_s = time.perf_counter() - begin
        size, read_s, dropped = _read(scratch.name, written, limit_s / 2)
    values = {
        "path": folder,
        "bytes": written,
        "write_mbs": round(written / write_s / 1e6, 1),
        "read_mbs": round(size / max(read_s, 1e-9) / 1e6, 1),
        "cache_dropped": dropped,
    }
    return [make_record("storage", values=values, elapsed_s=write_s + read_s)]


def _measure_folder(folder: str, limit_s: float) -> dict[str, Any]:
    try:
        files = [folder] if os.path.isfile(folder) else _list_files(folder, READ_LIMIT_BYTES)
        total, spent, opened, dropped = 0, 0.0, 0, True
        for path in files:
            size, seconds, forgot = _read(path, READ_LIMIT_BYTES - total, limit_s - spent)
            total, spent, opened = total + size, spent + seconds, opened + 1
            dropped = dropped and forgot
            if spent >= limit_s or total >= READ_LIMIT_BYTES:
                break
    except OSError as error:
        return make_record("storage", "failed", reason=f"{folder}: {error.strerror}")
    if not total:
        return make_record(
            "storage", "unavailable", reason=f"not available here: {folder} is empty"
        )
    values = {
        "path": folder,
        "bytes": total,
        "files": opened,
        "read_mbs": round(total / max(spent, 1e-9) / 1e6, 1),
        "cache_dropped": dropped,
    }
    return make_record("storage", values=values, elapsed_s=spent)


class TokenBlocks:
    """A data set of random token blocks, made without touching the disk."""

    def __init__(self, count: int, length: int) -> None:
        self.count, self.length = count, length

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        import torch

        generator = torch.Generator().manual_seed(index)
        return torch.randint(0, 32000, (self.length,), generator=generator)


def measure_loader(workers: int = 4, batches: int = 100) -> dict[str, Any]:
    """Batches a second of torch's own loader with worker processes: worker start, shared memory, CPU."""
    try:
        from torch.utils.data import DataLoader
    except ImportError:
        return make_record("loader", "unavailable", reason="not available here: no torch")
    batch = 8
    workers = max(1, min(workers, (os.cpu_count() or 1) - 1))
    loader: Any = DataLoader(
        TokenBlocks(batch * batches, 8192),
        batch_size=batch,
        num_workers=workers,
        timeout=20,
    )
    begin = time.perf_counter()
    first_s, got = 0.0, 0
    try:
        for _batch in loader:
            got += 1
            if got == 1:
                first_s = time.perf_counter() - begin
    except RuntimeError as error:
        return make_record("loader", "failed", reason=str(error)[:300])
    spent = time.perf_counter() - begin
    values = {
        "workers": workers,
        "batch_size": batch,
        "first_batch_s": round(first_s, 3),
        "rate_batches_per_s": round((got - 1) / max(spent - first_s, 1e-9), 1),
    }
    return make_record("loader", values=values, elapsed_s=spent)
