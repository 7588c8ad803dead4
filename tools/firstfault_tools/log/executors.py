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
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import field
from typing import Any

from firstfault_tools.dataclass import dataclass
from firstfault_tools.errors import InvalidParameter
from firstfault_tools.findings import Level
from firstfault_tools.log.digest import FileDigest, merge_parts
from firstfault_tools.log.narrowing import (
    NARROW_BYTES,
    WARM_NARROW_BYTES,
    index_patterns,
    read_telling_lines,
)
from firstfault_tools.log.plan import Part, pack_batches
from firstfault_tools.log.scan import scan_part
from firstfault_tools.log.signature import SignatureSet

log = logging.getLogger(__name__)

WORTH_A_POOL = 96 * 1024 * 1024
"""Below this many bytes one process is done before a pool has started."""

MOST_JOBS = 32
CONNECT_SECONDS = 15


TELLING = (Level.CAUSE, Level.FAILURE, Level.SYMPTOM)
MOST_FOUND = 3


@dataclass(frozen=True, slots=True)
class Scanning:
    """How far a scan is. Sizes in bytes; found: (title, lines) of the signatures so far that tell most."""

    done: int
    total: int
    lines: int
    found: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Workers:
    """jobs: processes, 0 to choose by size. cluster: address of a Dask scheduler, or None.

    tell: called when a batch is done, with how far the scan is.
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
    if workers.cluster is not None:
        outcomes = _on_cluster(batches, signatures, workers.cluster)
    else:
        jobs = workers.jobs or choose_jobs(sum(p.end - p.start for p in parts))
        jobs = min(jobs, len(batches))
        outcomes = _in_pool(batches, signatures, jobs) if jobs > 1 else _here(batches, signatures)
    return merge_outcomes(
        outcomes if workers.tell is None else _count(outcomes, batches, signatures, workers.tell)
    )


def _count(
    outcomes: Iterable[Sequence[Outcome]],
    batches: Sequence[Sequence[Part]],
    signatures: SignatureSet,
    tell: Callable[[Scanning], None],
) -> Iterator[Sequence[Outcome]]:
    """The outcomes as they come, each batch told when it is done."""
    sizes = [sum(p.end - p.start for p in batch) for batch in batches]
    done = lines = 0
    counts: Counter[int] = Counter()
    for size, outcome in zip(sizes, outcomes, strict=True):
        digests = [d for _, d in outcome if isinstance(d, FileDigest)]
        done += size
        lines += sum(d.lines_total for d in digests)
        for digest in digests:
            counts.update(digest.hit_counts)
        tell(Scanning(done, sum(sizes), lines, _name_found(counts, signatures)))
        yield outcome


def _name_found(counts: Counter[int], signatures: SignatureSet) -> tuple[tuple[str, int], ...]:
    """The deepest of what was found, the most frequent first; what is known to do no harm is left out."""
    found = [(signatures.signatures[index], count) for index, count in counts.items()]
    telling = [(s, count) for s, count in found if s.level in TELLING]
    telling.sort(key=lambda pair: (TELLING.index(pair[0].level), -pair[1]))
    return tuple((s.title, count) for s, count in telling[:MOST_FOUND])


def _fit_signatures(parts: Sequence[Part], signatures: SignatureSet) -> SignatureSet:
    """The signatures, less the patterns that logs as short as these cannot match."""
    total = sum(p.end - p.start for p in parts)
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


def scan_batch(batch: Sequence[Part], signatures: SignatureSet) -> list[Outcome]:
    """Scan the parts of one batch; adjacent parts of one log leave it merged."""
    out: list[Outcome] = []
    for part in batch:
        try:
            digest = scan_part(part, signatures)
        except OSError as error:
            out.append((part.name, f"cannot be read: {error.strerror or error}"))
            continue
        last = out[-1] if out else None
        if last is not None and last[0] == part.name and isinstance(last[1], FileDigest):
            out[-1] = (part.name, merge_parts(last[1], digest))
        else:
            out.append((part.name, digest))
    return out


def _here(batches: Iterable[Sequence[Part]], signatures: SignatureSet) -> Iterator[list[Outcome]]:
    for batch in batches:
        yield scan_batch(batch, signatures)


_worker_signatures: list[SignatureSet] = []
"""Set of patterns of a pool's worker, given once when it starts."""


def _start_worker(signatures: SignatureSet) -> None:
    _worker_signatures[:] = [signatures]


def _work(batch: Sequence[Part]) -> list[Outcome]:
    return scan_batch(batch, _worker_signatures[0])


def _in_pool(
    batches: Sequence[Sequence[Part]], signatures: SignatureSet, jobs: int
) -> Iterator[list[Outcome]]:
    import multiprocessing
    from concurrent.futures.process import BrokenProcessPool, ProcessPoolExecutor

    # a fork takes the compiled patterns along, but is safe only where no other thread runs
    alone = sys.platform == "linux" and threading.active_count() == 1
    if alone:
        signatures.match(b"")
        signatures.gates.gate()
    context = multiprocessing.get_context("fork" if alone else "spawn")
    done = 0
    try:
        with ProcessPoolExecutor(
            jobs, context, initializer=_start_worker, initargs=(signatures,)
        ) as pool:
            for outcome in pool.map(_work, batches):
                done += 1
                yield outcome
    except BrokenProcessPool:
        log.warning("a scanning process died; its part and the rest are scanned here")
        yield from _here(batches[done:], signatures)


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
