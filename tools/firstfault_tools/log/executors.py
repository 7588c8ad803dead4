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
from firstfault_tools.log.digest import FileDigest, Outcome, merge_parts
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

    from firstfault_tools.log.finished import FinishedBatches

log = logging.getLogger(__name__)

WORTH_A_POOL = 96 * 1024 * 1024
"""Below this many bytes one process is done before a pool has started."""

MOST_JOBS = 32
CONNECT_SECONDS = 15


@dataclass(frozen=True, slots=True)
class Workers:
    """jobs: processes, 0 to choose by size. cluster: address of a Dask scheduler, or None.

    tell: called with how far the scan is, several times a second; by a cluster when a batch is done.
    kept: where finished batches are kept, and found instead of being scanned; a cluster keeps none.
    finished_only: nothing is scanned; what is kept is all there is.
    """

    jobs: int = 0
    cluster: str | None = None
    tell: Callable[[Scanning], None] | None = None
    kept: FinishedBatches | None = None
    finished_only: bool = False


@dataclass(frozen=True, slots=True)
class Scanned:
    """Digests by file in the order of the logs, and why a file could not be read, or not to its end."""

    digests: dict[str, FileDigest] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)


def scan_logs(parts: Sequence[Part], signatures: SignatureSet, workers: Workers) -> Scanned:
    """Scan all parts with the workers at hand and merge them file by file."""
    batches, total = pack_batches(parts), size_of(parts)
    kept = workers.kept if workers.kept is not None and total >= workers.kept.least else None
    if workers.finished_only:
        return _take_finished(batches, kept)
    signatures = _fit_signatures(parts, signatures)
    teller = workers.tell and Teller(total, len({p.name for p in parts}), signatures, workers.tell)
    outcomes: Iterable[Sequence[Outcome]]
    jobs = min(workers.jobs or choose_jobs(total), len(batches))
    if workers.cluster is not None:
        outcomes = _on_cluster(batches, signatures, workers.cluster)
    elif jobs > 1:
        outcomes = _in_pool(batches, signatures, jobs, teller, kept)
    else:
        outcomes = _here(batches, signatures, teller, kept)
    return merge_outcomes(outcomes if teller is None else _count(outcomes, batches, teller))


def _take_finished(batches: Sequence[Sequence[Part]], kept: FinishedBatches | None) -> Scanned:
    """What an earlier reading finished, and why the rest is left out."""
    # only asked for where a reading was stopped
    from firstfault_tools.log.finished import merge_finished

    return Scanned(*merge_finished(batches, kept))


def _count(
    outcomes: Iterable[Sequence[Outcome]], batches: Sequence[Sequence[Part]], teller: Teller
) -> Iterator[Sequence[Outcome]]:
    """The outcomes as they come, each batch told when it is done."""
    for batch, outcome in zip(batches, outcomes, strict=True):
        digests = [d for _, d in outcome if isinstance(d, FileDigest)]
        teller.finish(size_of(batch), digests, sum(p.end >= p.size for p in batch))
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


def find_or_scan(
    batch: Sequence[Part],
    signatures: SignatureSet,
    reached: BatchReached | None = None,
    kept: FinishedBatches | None = None,
) -> list[Outcome]:
    """What a batch gave to a reading that was stopped, else what it gives now, which is kept."""
    known = kept.find(batch) if kept is not None else None
    if known is None:
        outcome = scan_batch(batch, signatures, reached)
        if kept is not None:
            kept.keep(batch, outcome)
        return outcome
    if reached is not None:
        digests = [d for _, d in known if isinstance(d, FileDigest)]
        hits = [d.hit_counts for d in digests]
        reached(size_of(batch), sum(d.lines_total for d in digests), hits)
    return known


def _here(
    batches: Iterable[Sequence[Part]],
    signatures: SignatureSet,
    teller: Teller | None = None,
    kept: FinishedBatches | None = None,
) -> Iterator[list[Outcome]]:
    for batch in batches:
        yield find_or_scan(batch, signatures, teller.reach if teller is not None else None, kept)


_worker_signatures: list[SignatureSet] = []
"""Set of patterns of a pool's worker, given once when it starts."""
_worker_counts: list[Any] = []
"""Bytes and lines that all workers of the pool have scanned; empty where nobody asks."""
_worker_kept: list[FinishedBatches | None] = [None]
"""Where the pool's workers keep what they finish."""


def _start_worker(
    signatures: SignatureSet, counts: Any = None, kept: FinishedBatches | None = None
) -> None:
    _worker_signatures[:] = [signatures]
    _worker_counts[:] = [] if counts is None else [counts]
    _worker_kept[:] = [kept]


def _work(batch: Sequence[Part]) -> list[Outcome]:
    if not _worker_counts:
        return find_or_scan(batch, _worker_signatures[0], None, _worker_kept[0])
    told = (0, 0)

    def add(size: int, lines: int, _: Sequence[Mapping[int, int]]) -> None:
        nonlocal told
        with _worker_counts[0].get_lock():
            _worker_counts[0][0] += size - told[0]
            _worker_counts[0][1] += lines - told[1]
        told = (size, lines)

    return find_or_scan(batch, _worker_signatures[0], add, _worker_kept[0])


def _in_pool(
    batches: Sequence[Sequence[Part]],
    signatures: SignatureSet,
    jobs: int,
    teller: Teller | None = None,
    kept: FinishedBatches | None = None,
) -> Iterator[list[Outcome]]:
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
            jobs, context, initializer=_start_worker, initargs=(signatures, counts, kept)
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
        yield from _here(batches[done:], signatures, teller, kept)


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
