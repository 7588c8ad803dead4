"""Which rank did not report while the others waited in a collective, and what was it at work on?"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import islice

from firstfault_tools.causality.incident import LogIncident
from firstfault_tools.causality.odd_ranks.last_words import NOISE, last_words, read_doing
from firstfault_tools.causality.odd_ranks.standings import (
    RankState,
    describe_divergence,
    describe_state,
    make_readable,
    say_waited,
)
from firstfault_tools.causality.progress import Progress, ProgressReader
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Category, Finding, Level
from firstfault_tools.log.digest import Line
from firstfault_tools.log.place import name_ranks
from firstfault_tools.log.scan import make_line

PAGE_NEVER_ENTERED = "collective-divergence"
PAGE_BUSY = "rank-zero-work"
PAGE_ALL_WAIT = "collective-timeout"
MOST_RANKS = 4096
"""Ranks of a world of which each may be named as missing."""
_WORDS_DATA = expression(
    r"(?i)\bindex|dataset|tokeni|preprocess|shuffl|read|download|cache|map\b|sampl|load|data|collect|shard"
)
ANNOUNCED_LINES = 12
MOST_HEARD = 8
"""Ranks that spoke and did not report, at most, of an excerpt."""
_WORDS_EVALUATION = expression(
    r"(?i)\bpredict|\bplot|\binference\b|\bevaluat|\bgenerat(?:e|ing|ion)\b"
)
_WORDS_CHECKPOINT = expression(r"(?i)checkpoint|sav(?:e|ing)|state_dict|export|convert")


def find_missing(
    incident: LogIncident, group: str, states: dict[int, RankState], waiting: list[RankState]
) -> Finding | None:
    """The rank that was at work alone, else those that never entered what the others wait in."""
    missing = _list_missing(incident, states) if _is_default(group) else []
    busy = _find_busy(incident, missing, waiting)
    if busy is not None:
        return busy
    said: list[Line] = []
    if len(missing) > max(1, len(states) // 2):
        missing, said = _hear_troubled(incident, states, waiting)
    if not missing:
        return None
    rank = missing[0] if len(missing) == 1 else None
    words = last_words(incident, missing[0], waiting[0].report.line) if rank is not None else []
    words = words or said
    what = (
        f"{name_ranks(missing)} did not report and never entered {describe_state(waiting[0])}, in which "
        f"{name_ranks(sorted(s.rank for s in waiting))} waited{say_waited(waiting)}"
    )
    announced = None
    if rank == 0 and not words:
        announced = _said_by_main(incident, waiting[0].report.line)
    if announced is not None:
        return _tell_main(what, announced, waiting)
    return describe_divergence(
        "collective.missing",
        what,
        Level.FAILURE,
        rank,
        [waiting[0].report.line, *words],
        PAGE_NEVER_ENTERED,
        words,
    )


def _is_default(group: str) -> bool:
    """The group of all ranks."""
    return group in ("", "0") or "default" in group


def _list_missing(incident: LogIncident, reported: Collection[int]) -> list[int]:
    """Ranks of the world, as far as it is known, that did not report."""
    known = set(incident.ranks_seen)
    if len(reported) >= 3:
        known |= set(range(max(reported) + 1))
    if incident.world_size is not None and incident.world_size <= MOST_RANKS:
        known |= set(range(incident.world_size))
    return sorted(known - set(reported))


def _hear_troubled(
    incident: LogIncident, reported: Collection[int], waiting: Sequence[RankState]
) -> tuple[list[int], list[Line]]:
    """Of an excerpt: those of the ranks that speak at all which did not report, where all tell of one trouble."""
    heard = sorted(incident.ranks_seen - set(reported))
    digest = incident.digest_of(waiting[0].report.line.file)
    number, text = digest.kept[-1]
    last = make_line(digest.file, number + 1, text, digest.year)
    told = [last_words(incident, rank, last) for rank in heard[:MOST_HEARD]]
    doings = {d.name if w and (d := read_doing(w)) is not None else None for w in told}
    alike = len(doings) == 1 and None not in doings and len(heard) <= MOST_HEARD
    return (heard, told[0]) if alike else ([], [])


def _tell_main(what: str, announced: Line, waiting: Sequence[RankState]) -> Finding:
    """Rank 0 is missing, and a line without a rank announced some work before."""
    what += f"; the last thing announced before: {make_readable(announced)!r}"
    work: Category | None = _class_of_work(announced.text)
    rank: int | None = 0
    page = PAGE_BUSY
    if work is Category.CHECKPOINT and _belongs_to_step(waiting[0]):
        work, rank, page = None, None, PAGE_ALL_WAIT
        what += (
            ". They were already in the next step: whether rank 0 hung while it wrote (storage), failed there or ended "
            "elsewhere is not in these logs"
        )
    lines = [waiting[0].report.line, announced]
    return describe_divergence(
        "collective.missing", what, Level.FAILURE, rank, lines, page, [], work
    )


def _find_busy(
    incident: LogIncident, missing: Sequence[int], waiting: list[RankState]
) -> Finding | None:
    """The missing rank that still counted when the others gave up."""
    busy = _busy_progress(incident, missing, waiting)
    if busy is None:
        return None
    rank = _rank_of_busy(incident, busy, waiting)
    if len(missing) > 1 and rank not in missing:
        return None
    if rank is None and len(missing) == 1:
        rank = missing[0]
    return _busy_finding(incident, rank, busy, waiting)


def _belongs_to_step(state: RankState) -> bool:
    """A reduction of many values: gradients or a metric. A save gathers, broadcasts or waits at a barrier of one value."""
    return "REDUCE" in (state.op or "") and (state.numel or 0) > 1


def _said_by_main(incident: LogIncident, before: Line) -> Line | None:
    """The last thing that a line without a rank announces shortly before the others gave up: the main process logs so."""
    for line in incident.lines_before(before, ANNOUNCED_LINES):
        if NOISE.search(line.text) or line.place.rank is not None or "%|" in line.text:
            continue
        if _WORDS_CHECKPOINT.search(line.text) or _WORDS_EVALUATION.search(line.text):
            return line
    return None


def _class_of_work(text: str) -> Category:
    if _WORDS_CHECKPOINT.search(text):
        return Category.CHECKPOINT
    if _WORDS_DATA.search(text) and not _WORDS_EVALUATION.search(text):
        return Category.DATA
    return Category.CODE_BUG


def _busy_progress(
    incident: LogIncident, missing: Sequence[int], waiting: list[RankState]
) -> Progress | None:
    """Last sign that somebody who is no waiting rank was still counting when the others timed out."""
    waiting_ranks = {s.rank for s in waiting}
    first = min((s.report.line for s in waiting), key=lambda line: (line.number, line.file))
    reader = incident.progress[first.file]
    found: Progress | None = None
    for progress in reader.after(first.number):
        rank = reader.line(progress).place.rank
        if rank is not None and (rank in waiting_ranks or rank not in missing):
            continue
        if progress.counter != progress.total and (
            rank is not None
            or progress.left_s is not None
            or _counted_before(reader, first, progress)
        ):
            found = progress
    if found is not None and found.training and found.left_s is None:
        trained = any(p.training for p in reader.before(first.number))
        return None if trained else found
    return found


def _counted_before(reader: ProgressReader, first: Line, progress: Progress) -> bool:
    """The same count, lower, stood in the log before the others timed out."""
    return any(
        p.total == progress.total and (p.counter or 0) < (progress.counter or 0)
        for p in islice(reader.before(first.number), 200)
    )


def _rank_of_busy(incident: LogIncident, busy: Progress, waiting: list[RankState]) -> int | None:
    return incident.progress[waiting[0].report.line.file].line(busy).place.rank


def _busy_finding(
    incident: LogIncident, rank: int | None, busy: Progress, waiting: list[RankState]
) -> Finding:
    line = incident.progress[waiting[0].report.line.file].line(busy)
    said = make_readable(line)
    context = _task_before(incident, busy, line.file)
    about = f"{said} {context[0].text if context else ''}"
    category = _class_of_work(about)
    timeout_ms = max((s.report.timeout_ms or 0 for s in waiting), default=0)
    needs = ""
    if busy.elapsed_s is not None and busy.left_s is not None:
        needs = f" (about {(busy.elapsed_s + busy.left_s) / 60:.0f} min in all)"
    limit = f" of {timeout_ms / 60000:.0f} min ({timeout_ms} ms)" if timeout_ms else ""
    who = f"rank {rank}" if rank is not None else "one rank"
    announced = f" (begun with: {make_readable(context[0])})" if context else ""
    return describe_divergence(
        "collective.rank_busy",
        f"{who} was still working alone{needs} when the collective timeout{limit} of the other ranks "
        f"ran out: {said}{announced}. {who.capitalize()} is alive and making progress; the others waited in "
        f"{describe_state(waiting[0])}",
        Level.CAUSE,
        None,
        [line, *(c for c in context), waiting[0].report.line],
        PAGE_BUSY,
        [],
        category,
        facts={"busy_rank": rank, "timeout_ms": timeout_ms},
    )


def _task_before(incident: LogIncident, busy: Progress, file: str) -> list[Line]:
    """The line that announced what the busy rank is doing."""
    own = incident.progress[file].line(busy)
    for line in incident.lines_before(own, 400):
        if NOISE.search(line.text) or "%|" in line.text or "%  |" in line.text:
            continue
        if line.place.rank not in (None, own.place.rank):
            continue
        if "WorkNCCL" in line.text or "what():" in line.text or "terminate called" in line.text:
            continue
        return [line]
    return []
