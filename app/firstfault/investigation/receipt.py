"""What was read? The receipt of an examination: files, lines, ranks, time range, secrets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime

from firstfault.investigation.diagnosis import InputReceipt, SkippedInput
from firstfault.investigation.examination import Examination
from firstfault_tools.log.clock import read_time


def write_receipt(examination: Examination, skipped: Sequence[SkippedInput]) -> InputReceipt:
    """Receipt of one examination; `skipped` are the inputs that intake left out."""
    digests = examination.logs.digests
    counts: Counter[str] = Counter()
    for digest in digests:
        counts.update(digest.redactions)
    world = examination.logs.world_size
    ranks = sorted(examination.logs.ranks_seen)
    return InputReceipt(
        files=examination.files,
        lines_total=sum(d.lines_total for d in digests),
        lines_read=sum(d.lines_total for d in digests),
        skipped=(*skipped, *examination.skipped),
        ranks_seen=tuple(ranks),
        world_size=max(world, max(ranks, default=-1) + 1) if world else None,
        time_range=_time_range(examination),
        redactions=dict(sorted(counts.items())),
    )


def _time_range(examination: Examination) -> tuple[str, str] | None:
    times: list[float] = []
    for digest in examination.logs.digests:
        head = (read_time(text, digest.year) for _, text in digest.kept[:200])
        tail = (read_time(text, digest.year) for _, text in reversed(digest.kept[-200:]))
        for stamps in (head, tail):
            first = next((t for t in stamps if t is not None), None)
            if first is not None:
                times.append(first)
    if not times:
        return None
    return _iso(min(times)), _iso(max(times))


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
