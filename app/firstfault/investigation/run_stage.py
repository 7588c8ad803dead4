"""When in the run did it end: before the first step, in the first ones, or after hours?

The stage tells the class of a fault before its cause is known (seed 002, the first five minutes): at the start
set-up fails, in the first steps memory reaches its peak and code runs for the first time, and what comes after
hours has passed both.
"""

from __future__ import annotations

from firstfault.investigation.diagnosis import STEPS_GO_ON
from firstfault.investigation.examination import Examination
from firstfault_tools.causality.progress import Progress, ProgressReader
from firstfault_tools.findings import Finding
from firstfault_tools.roles import Role

FIRST_STEPS = 10
"""Steps in which every size, kernel and buffer is met for the first time."""
AT_START = "No step stands before it in what was read: it came while the run was starting up, where set-up, paths, versions and the meeting of ranks fail"


def say_when(examination: Examination, finding: Finding) -> str:
    """A sentence without its full stop; '' where what was read does not tell."""
    place = finding.evidence[0] if finding.evidence else None
    if place is None or finding.category in STEPS_GO_ON:
        return ""
    own = examination.logs.progress.get(place.file)
    if own is not None and (last := _last(own, place.line)) is not None:
        return _say(own, last, place.time)
    others = [
        (reader, last)
        for file, reader in examination.logs.progress.items()
        if file != place.file and (last := reader.last_training()) is not None
    ]
    if others:
        reader, last = max(others, key=lambda x: x[1].counter or 0)
        return _say(reader, last, place.time)
    if own is None or own.trained():
        return ""
    return AT_START if examination.logs.role_of(place.file) is Role.RUN else ""


def _last(reader: ProgressReader, line: int) -> Progress | None:
    return next((p for p in reader.before(line) if p.training and p.counter is not None), None)


def _say(reader: ProgressReader, last: Progress, until: float | None) -> str:
    if "epoch" in (low := last.text.lower()) and "step" not in low and "it" not in low:
        return ""  # its counter is that of epochs
    ended = last.counter or 0
    if ended <= FIRST_STEPS:
        return f"It came in the first steps, at step {ended}, where memory reaches its peak and code runs for the first time"
    first = next((p for p in reader.after(0) if p.training and p.counter is not None), last)
    start = reader.line(first).time
    # an excerpt begins somewhere: hours are counted from a first step alone
    hours = ""
    if (first.counter or 0) <= FIRST_STEPS and start is not None and until is not None:
        hours = f" ({_duration(until - start)})" if until > start else ""
    return f"It came after step {ended:,}{hours}, so start-up and the first steps had gone well"


def _duration(seconds: float) -> str:
    """`1 h 37 min`, `12 min`, `40 s`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, left = divmod(minutes, 60)
    if hours >= 48:
        return f"{hours / 24:.1f} days"
    if hours:
        return f"{hours} h {left} min"
    return f"{minutes} min" if minutes else f"{rest} s"
