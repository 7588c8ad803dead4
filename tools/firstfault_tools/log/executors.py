"""Who scans the parts of the logs? This process, a pool of processes or a Dask cluster: same result.

A worker that dies costs time, never a part: the pool's rest is scanned here, a cluster gives the
part to another worker. What a cluster's worker cannot read, such as what was unpacked on this
machine, is scanned here, too.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any

from firstfault_tools.dataclass import dataclass
from firstfault_tools.errors import InvalidParameter
from firstfault_tools.log.digest import FileDigest, merge_parts
from firstfault_tools.log.narrowing import (
    NARROW_BYTES,
    WARM_NARROW_BYTES,
    index_patterns,
    read_telling_lines,
)
from firstfault_tools.log.plan import Part, pack_batches
from firstfault_tools.log.progress import TELL_SECONDS, BatchReached, Scanning, Teller
from firstfault_tools.log.scan import scan_part
from firstfault_tools.log.signature import SignatureSet

if TYPE_CHECKING:
    from concurrent.futures import Future

log = logging.getLogger(__name__)

WORTH_A_POOL = 96 * 1024 * 1024
"""Below this many bytes one process is done before a pool has started."""

MOST_JOBS = 32
CONNECT_SECONDS = 15


@dataclass(frozen=True, slots=True)
class Workers:
    """jobs: processes, 0 to choose by size. cluster: address of a Dask scheduler, or None.

    tell: called with how far the scan is, several times a second; by a cluster when a batch is done.
    """

    jobs: int = 0
    cluster: str | None = None
    tell: Callable[[Scanning], None] | None = None


@dataclass(frozen=True, slots=True)
class Scanned:
    """Digests by file in the order of the logs, and why a file could not be read."""

    digests: dict[str, FileDigest] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)


Outcome = tuple[str, FileDigest | str]
"""(file, its digest or the reason why there is none)."""


def scan_logs(parts: Sequence[Part], signatures: SignatureSet, workers: Workers) -> Scanned:
    """Scan all parts with the workers at hand and merge them file by file."""
    batches = pack_batches(parts)
    signatures = _fit_signatures(parts, signatures)
    teller = workers.tell and Teller(size_of(parts), signatures, workers.tell)
    outcomes: Iterable[Sequence[Outcome]]
    jobs = min(workers.jobs or choose_jobs(size_of(parts)), len(batches))
    if workers.cluster is not None:
        outcomes = _on_cluster(batches, signatures, workers.cluster)
    elif jobs > 1:
        outcomes = _in_pool(batches, signatures, jobs, teller)
    else:
        outcomes = _here(batches, signatures, teller)
    return merge_outcomes(outcomes if teller is None else _count(outcomes, batches, teller))


def _count(
    outcomes: Iterable[Sequence[Outcome]], batches: Sequence[Sequence[Part]], teller: Teller
) -> Iterator[Sequence[Outcome]]:
    """The outcomes as they come, each batch told when it is done."""
    for batch, outcome in zip(batches, outcomes, strict=True):
        teller.finish(size_of(batch), [d for _, d in outcome if isinstance(d, FileDigest)])
        yield outcome


def size_of(parts: Iterable[Part]) -> int:
    """Bytes of the parts."""
    return sum(p.end - p.start for p in parts)


def _fit_signatures(parts: Sequence[Part], signatures: SignatureSet) -> SignatureSet:
    """The signatures, less the patterns that logs as short as these cannot match."""
    total = size_of(parts)
    if total > (WARM_NARROW_BYTES if signatures.is_compiled else NARROW_BYTES):
        return signatures
    try:
        telling = read_telling_lines(parts)
    except OSError:  # said by name where the log is scanned
        return signatures
    if telling is None:
        return signatures
    return signatures.narrow(index_patterns(signatures.patterns).find_possible(telling))


def choose_jobs(total: int) -> int:
    """Processes that pay for `total` bytes."""
    if total < WORTH_A_POOL:
        return 1
    cores = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    return max(1, min(cores, MOST_JOBS))


def merge_outcomes(outcomes: Iterable[Sequence[Outcome]]) -> Scanned:
    """One digest a file. Outcomes come in the order of the parts."""
    scanned = Scanned()
    for batch in outcomes:
        for file, outcome in batch:
            if isinstance(outcome, str):
                scanned.failed[file] = outcome
                scanned.digests.pop(file, None)
            elif file not in scanned.failed:
                known = scanned.digests.get(file)
                scanned.digests[file] = outcome if known is None else merge_parts(known, outcome)
    return scanned


def scan_batch(
    batch: Sequence[Part], signatures: SignatureSet, reached: BatchReached | None = None
) -> list[Outcome]:
    """Scan the parts of one batch; adjacent parts of one log leave it merged. reached: told of the batch as it goes on."""
    out: list[Outcome] = []
    size = lines = 0
    counts: Counter[int] = Counter()

    def tell(more: int, of_lines: int, of_counts: Mapping[int, int]) -> None:
        assert reached is not None
        reached(size + more, lines + of_lines, (counts, of_counts))

    for part in batch:
        try:
            digest = scan_part(part, signatures, tell if reached is not None else None)
        except OSError as error:
            out.append((part.name, f"cannot be read: {error.strerror or error}"))
            continue
        if reached is not None:
            size, lines = size + part.end - part.start, lines + digest.lines_total
            counts.update(digest.hit_counts)
        last = out[-1] if out else None
        if last is not None and last[0] == part.name and isinstance(last[1], FileDigest):
            out[-1] = (part.name, merge_parts(last[1], digest))
        else:
            out.append((part.name, digest))
    return out


def _here(
    batches: Iterable[Sequence[Part]], signatures: SignatureSet, teller: Teller | None = None
) -> Iterator[list[Outcome]]:
    for batch in batches:
        yield scan_batch(batch, signatures, teller.reach if teller is not None else None)


_worker_signatures: list[SignatureSet] = []
"""Set of patterns of a pool's worker, given once when it starts."""
_worker_counts: list[Any] = []
"""Bytes and lines that all workers of the pool have scanned; empty where nobody asks."""


def _start_worker(signatures: SignatureSet, counts: Any = None) -> None:
    _worker_signatures[:] = [signatures]
    _worker_counts[:] = [] if counts is None else [counts]


def _work(batch: Sequence[Part]) -> list[Outcome]:
    if not _worker_counts:
        return scan_batch(batch, _worker_signatures[0])
    told = (0, 0)

    def add(size: int, lines: int, _: Sequence[Mapping[int, int]]) -> None:
        nonlocal told
        with _worker_counts[0].get_lock():
            _worker_counts[0][0] += size - told[0]
            _worker_counts[0][1] += lines - told[1]
        told = (size, lines)

    return scan_batch(batch, _worker_signatures[0], add)


def _in_pool(
    batches: Sequence[Sequence[Part]], signatures: SignatureSet, jobs: int, teller: Teller | None = None,
) -> Iterator[list[Outcome]]:  # fmt: skip
    import multiprocessing
    from concurrent.futures.process import BrokenProcessPool, ProcessPoolExecutor

    # a fork takes the compiled patterns along, but is safe only where no other thread runs
    alone = sys.platform == "linux" and threading.active_count() == 1
    if alone:
        signatures.match(b"")
        signatures.gates.gate()
    context = multiprocessing.get_context("fork" if alone else "spawn")
    counts = context.Array("q", 2) if teller is not None else None
    done = 0
    try:
        with ProcessPoolExecutor(
            jobs, context, initializer=_start_worker, initargs=(signatures, counts)
        ) as pool:
            futures = [pool.submit(_work, batch) for batch in batches]
            try:
                for future in futures:
                    _await(future, teller, counts)
                    outcome = future.result()
                    done += 1
                    yield outcome
            finally:
                for future in futures:
                    future.cancel()
    except BrokenProcessPool:
        log.warning("a scanning process died; its part and the rest are scanned here")
        yield from _here(batches[done:], signatures, teller)


def _await(future: Future[list[Outcome]], teller: Teller | None, counts: Any) -> None:
    """Wait for a batch; meanwhile tell how far all workers of the pool are."""
    if teller is None:
        return
    from concurrent.futures import wait

    while not wait((future,), TELL_SECONDS).done:
        size, lines = counts
        teller.reach(max(0, size - teller.done), max(0, lines - teller.lines), ())


def _on_cluster(
    batches: Sequence[Sequence[Part]], signatures: SignatureSet, address: str
) -> Iterator[list[Outcome]]:
    """Outcomes from a Dask cluster, in order. A lost worker's batches are computed again."""
    try:
        from distributed import Client
    except ImportError as error:
        raise InvalidParameter(
            "cluster", "needs the package `distributed`: pip install 'firstfault[cluster]'"
        ) from error
    try:
        open_client: Any = Client
        client = open_client(address, timeout=CONNECT_SECONDS, set_as_default=False)
    except (OSError, ValueError) as error:
        raise InvalidParameter(
            "cluster", f"no Dask scheduler answers at {address}; start one with `dask scheduler`"
        ) from error
    with client:
        known = client.scatter(signatures, broadcast=True)
        futures = [
            client.submit(scan_batch, batch, known, pure=False, retries=3) for batch in batches
        ]
        said = False
        for index, future in enumerate(futures):
            outcome = future.result()
            futures[index] = None
            future.release()
            unread = [(file, why) for file, why in outcome if isinstance(why, str)]
            if unread:
                if not said:
                    log.warning(
                        "a worker: %s %s; what workers cannot read is scanned here", *unread[0]
                    )
                    said = True
                outcome = scan_batch(batches[index], signatures)
            yield outcome
