"""How are the logs of an incident cut into parts, and how much may each part keep?

The plan depends on the logs alone, never on who scans them: one process, a pool and a cluster read
the same parts and so come to the same result.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from firstfault_tools.dataclass import dataclass
from firstfault_tools.log.clock import find_year

COMPLETE_BYTES = 24 * 1024 * 1024
"""Incidents up to this size are kept line by line."""

PART_BYTES = 48 * 1024 * 1024
BATCH_BYTES = 24 * 1024 * 1024
HEAD_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class Budget:
    """What one log may keep. complete: every line; else head, tail and windows, in bytes each.

    hits: lines kept per signature, besides the first of every rank.
    """

    complete: bool = True
    head: int = 512 * 1024
    tail: int = 1024 * 1024
    windows: int = 8 * 1024 * 1024
    hits: int = 96


@dataclass(frozen=True, slots=True)
class Part:
    """One piece of one log: bytes `start` to `end`, beginning and ending at the next line start."""

    name: str
    path: Path
    start: int
    end: int
    size: int
    year: int
    wrapped: bool
    budget: Budget


def share_budget(size: int, total: int, files: int) -> Budget:
    """Budget of a log of `size` bytes in an incident of `files` logs and `total` bytes."""
    share = COMPLETE_BYTES // max(files, 1)
    if total <= COMPLETE_BYTES or size <= max(share, 16 * 1024):
        return Budget()
    return Budget(
        complete=False,
        head=min(512 * 1024, max(6 * 1024, share // 4)),
        tail=min(1024 * 1024, max(12 * 1024, share // 2)),
        windows=min(8 * 1024 * 1024, max(16 * 1024, 2 * share)),
        hits=max(4, min(96, 4096 // max(files, 1))),
    )


@dataclass(frozen=True, slots=True)
class LogFile:
    """One log before it is scanned. year completes stamps without one; wrapped: lines of JSON."""

    name: str
    path: Path
    size: int
    year: int
    wrapped: bool


def describe_log(name: str, path: Path, head: bytes) -> LogFile:
    """What the plan needs to know of a log. head: its first bytes. Raises OSError."""
    text = head.decode("utf-8", errors="replace")
    year = find_year(text) or datetime.now(UTC).year
    return LogFile(name, path, path.stat().st_size, year, text.lstrip().startswith("{"))


def cut_log(log: LogFile, budget: Budget) -> tuple[Part, ...]:
    """Parts of one log, in order."""
    return tuple(
        Part(
            log.name, log.path, start, min(start + PART_BYTES, log.size), log.size, log.year,
            log.wrapped, budget,
        )
        for start in range(0, max(log.size, 1), PART_BYTES)
    )  # fmt: skip


def pack_batches(parts: Iterable[Part]) -> list[tuple[Part, ...]]:
    """Parts in order, small ones together, so that a batch is worth a worker's while."""
    out: list[tuple[Part, ...]] = []
    batch: list[Part] = []
    held = 0
    for part in parts:
        batch.append(part)
        held += part.end - part.start
        if held >= BATCH_BYTES:
            out.append(tuple(batch))
            batch, held = [], 0
    return [*out, tuple(batch)] if batch else out


def plan_logs(logs: Sequence[LogFile]) -> list[Part]:
    """Parts of all logs of an incident, in order."""
    total = sum(log.size for log in logs)
    return [part for log in logs for part in cut_log(log, share_budget(log.size, total, len(logs)))]
