"""When did it begin, by the deciding line and those of its chain alone?

What the rest of the logs tells of it is in the diagnosis's extent; this is what stands where that was not measured.
"""

from __future__ import annotations

from datetime import UTC, datetime

from firstfault.investigation.diagnosis import Diagnosis
from firstfault.investigation.waits import wait_in
from firstfault_tools.log.clock import read_time

ACCOUNTED = "slurm."
"""Kinds that rest on a row of a job's account, which holds its start before its end."""


def time_of_fault(diagnosis: Diagnosis) -> tuple[float | None, bool]:
    """(seconds since the epoch, whether only about then): as measured, else of the deciding line, else of its chain."""
    extent, span, first = diagnosis.timed, diagnosis.input.time_range, diagnosis.first_line
    if extent is not None and extent.since is not None:
        return extent.since, extent.about
    if span is None or first is None:
        return None, False
    year = int(span[0][:4])
    if (at := read_time(first.text, year)) is not None:
        return own_time(diagnosis, at), False
    # a watchdog nearby reports what began when its wait did
    near = [
        (abs(link.line - first.line), at - wait_in(link.text))
        for link in diagnosis.cascade
        if link.file == first.file and (at := read_time(link.text, year)) is not None
    ]
    return (min(near)[1], True) if near else (None, False)


def own_time(diagnosis: Diagnosis, at: float) -> float:
    """When that began which the deciding line, stamped `at`, tells: before its wait; of an accounted job its end."""
    first = diagnosis.first_line
    if first is None or not (diagnosis.signature or "").startswith(ACCOUNTED):
        return at - read_wait(diagnosis)
    year = datetime.fromtimestamp(at, UTC).year
    cells = first.text.replace("|", " ").split()
    return max((t for cell in cells if (t := read_time(cell, year)) is not None), default=at)


def read_wait(diagnosis: Diagnosis) -> float:
    """Seconds for which the deciding line says that it has waited when it was written; 0 where it says none."""
    return wait_in(diagnosis.first_line.text) if diagnosis.first_line is not None else 0.0
