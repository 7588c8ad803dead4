"""Which folder holds the vectors of exactly this knowledge? Written once, under a lock, then only read.

The page, its workers and commands open the embedded store at the same time, also from two versions of the
program. Chroma's embedded store is for one process (its documentation, "Chroma clients": several processes
want a server): two that wrote into one folder left a graph that ended every later process with a
segmentation fault. So each state of the knowledge has a folder of its own, which gets its name when it is
whole, and nobody writes into it after that.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from firstfault.knowledge_base.store import (
    EF_SEARCH,
    GRAPH,
    Entry,
    Progress,
    VectorStore,
    open_embedded,
    open_server,
    server_address,
)
from firstfault.knowledge_base.vectors import Embedder

DAYS_KEPT = 14
"""A folder that nobody opened for so long is deleted: it can be made again at any time."""


def open_vectors(
    folder: Path,
    embedder: str,
    entries: Sequence[Entry],
    embed: Callable[[], Embedder],
    ready: Callable[[], Mapping[str, list[float]]],
    progress: Progress | None = None,
) -> VectorStore:
    """Vectors of `entries`: those of a server where one is named, else of a snapshot below `folder`.

    Where `folder` cannot be written they are kept in memory, for this process alone.
    """
    if server_address() or not _make_writable(folder):
        client = open_server(server_address()) if server_address() else open_embedded(None)
        store = VectorStore(client, embedder)
        store.update(entries, embed, ready, progress)
        return store
    target = folder / name_state(entries, embedder)
    if not target.is_dir():
        with _locked(folder):
            if not target.is_dir():
                _write(target, embedder, entries, embed, ready, progress)
                _delete_unused(folder, target)
    os.utime(target)
    return VectorStore(open_embedded(target), embedder)


def name_state(entries: Sequence[Entry], embedder: str) -> str:
    """16 hex digits that name these entries, their embedder and how their graph is made."""
    digest = hashlib.sha256(repr((embedder, EF_SEARCH, sorted(GRAPH.items()))).encode())
    for entry in entries:
        digest.update("\x1f".join((entry.id, entry.page, entry.kind, entry.text)).encode())
    return digest.hexdigest()[:16]


def _write(
    target: Path,
    embedder: str,
    entries: Sequence[Entry],
    embed: Callable[[], Embedder],
    ready: Callable[[], Mapping[str, list[float]]],
    progress: Progress | None,
) -> None:
    """Make the snapshot beside its place, from the newest other one, and give it its name when whole."""
    work = Path(tempfile.mkdtemp(prefix=".making-", dir=target.parent))
    try:
        inner = work / "store"
        newest = max(_snapshots(target.parent), key=_used_at, default=None)
        if newest is not None:
            shutil.copytree(newest, inner)
        client = open_embedded(inner)
        try:
            VectorStore(client, embedder).update(entries, embed, ready, progress)
        finally:
            client.close()
        inner.rename(target)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _delete_unused(folder: Path, kept: Path) -> None:
    oldest = time.time() - DAYS_KEPT * 86_400
    for found in folder.iterdir():
        if found.is_dir() and found != kept and _used_at(found) < oldest:
            shutil.rmtree(found, ignore_errors=True)


def _snapshots(folder: Path) -> list[Path]:
    return [p for p in folder.iterdir() if p.is_dir() and not p.name.startswith(".")]


def _used_at(folder: Path) -> float:
    try:
        return folder.stat().st_mtime
    except OSError:
        return 0.0


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """One process writes below `folder`; the lock goes with the process, however it ends."""
    with (folder / "writing.lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _make_writable(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(folder, os.W_OK)
