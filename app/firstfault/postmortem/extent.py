"""Since when, how long and how much, before anybody asks for a report: the measures that every first answer shows.

The same functions fill the report, so that card, page and report never differ.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from firstfault.investigation.diagnosis import Diagnosis, Extent, LostTime
from firstfault.postmortem.evidence import Artefacts, Book, timed_steps
from firstfault.postmortem.impact import GivenFigures, measure_impact
from firstfault.postmortem.lost_work import RunRecord
from firstfault.postmortem.pace import read_pace
from firstfault.postmortem.report import LossKind
from firstfault.postmortem.since import find_since
from firstfault_tools.averages import median
from firstfault_tools.findings import Category, Verdict

MOST_BYTES = 4 * 1024 * 1024
"""Of all logs together: reading more would keep the first answer waiting."""

LEAST_SILENCE_S = 60.0
"""Seconds between two lines from which on a silence is told; most step and heartbeat lines come faster."""

SILENT_GAPS = 5.0
"""Times the usual distance between lines from which on it is a silence and not merely slow."""

MOST_SILENCES = 32


def add_extent(diagnosis: Diagnosis, files: Mapping[str, Path]) -> Diagnosis:
    """The diagnosis with the times of its chain and its extent; itself where nothing failed or there is too much to read."""
    first = diagnosis.first_line
    if first is None or diagnosis.verdict is Verdict.HEALTHY or _size(files) > MOST_BYTES:
        return diagnosis
    artefacts = Artefacts(files, diagnosis.citations)
    chain = []
    for link in diagnosis.cascade:
        at, about = artefacts.time_at(link.file or "", link.line, link.text)
        chain.append(replace(link, at=at, about=about))
    diagnosis = replace(diagnosis, cascade=tuple(chain))
    pace = read_pace(timed_steps(artefacts), artefacts.lines)
    record = RunRecord(diagnosis, artefacts)
    impact = measure_impact(GivenFigures(), record, pace, Book())
    stood = [x for x in impact.losses if x.kind is not LossKind.REPEATED]
    since, about = find_since(diagnosis, artefacts, stood)
    losses = tuple(LostTime(x.kind.value, x.start, x.end, x.gpu_hours) for x in impact.losses)
    extent = Extent(
        (first.file, first.line),
        since,
        about,
        impact.gpus,
        losses,
        find_silences(artefacts),
        _name_return(record),
    )
    return replace(diagnosis, extent=extent)


def _name_return(record: RunRecord) -> str:
    """The newest checkpoint that is whole by the log, `step 4000`; '' where none is told, and where the saved files or
    the numbers in them are what is at fault."""
    if record.diagnosis.category in (Category.CHECKPOINT, Category.NUMERICAL):
        return ""
    saved = record.resume_from
    return "" if saved is None else saved.name


def find_silences(artefacts: Artefacts) -> tuple[tuple[float, float], ...]:
    """(start, end) of the stretches in which no log holds a line, in order; the longest where there are many."""
    times = sorted({x.time for x in artefacts.lines if x.time is not None})
    gaps = [(b - a, a, b) for a, b in pairwise(times)]
    least = least_silence([g[0] for g in gaps], 2)
    longest = sorted((g for g in gaps if g[0] >= least), reverse=True)[:MOST_SILENCES]
    return tuple(sorted((a, b) for _, a, b in longest))


def least_silence(gaps: Sequence[float], few: int) -> float:
    """Seconds from which on nothing written is a silence, by the usual gap of two lines where there are more than few."""
    return max(LEAST_SILENCE_S, SILENT_GAPS * median(gaps)) if len(gaps) > few else LEAST_SILENCE_S


def is_small(files: Mapping[str, Path]) -> bool:
    """All of it can be measured before the first answer."""
    return _size(files) <= MOST_BYTES


def _size(files: Mapping[str, Path]) -> int:
    """Bytes of all files; of one that is gone or in an object store, more than can be read."""
    if not all(isinstance(path, Path) for path in files.values()):
        return MOST_BYTES + 1
    try:
        return sum(path.stat().st_size for path in files.values())
    except OSError:
        return MOST_BYTES + 1
