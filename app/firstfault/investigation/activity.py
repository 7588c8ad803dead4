"""What was the run doing when it was struck: writing a checkpoint, reading data, evaluating, compiling?

Read from the stack of the exception that the verdict rests on, else from a file that its line names. A verdict that
only names a resource ("disk full") is half an answer: whose work it stopped tells where to look. The activities
are data: activities.json.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from firstfault.investigation.examination import Examination
from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Category, Finding
from firstfault_tools.log.traceback import Traceback

TABLE = Path(__file__).with_name("activities.json")
_TOLD = (Category.CHECKPOINT, Category.DATA, Category.SCHEDULER, Category.NUMERICAL, Category.PERFORMANCE)  # fmt: skip
"""Categories whose titles say what was done, or which strike no single piece of work."""


@dataclass(frozen=True, slots=True)
class Activity:
    """words: the activity, as it follows `while`. frame: of `path name`; file: of a path in the line; known: words of a title that says it."""

    words: str
    frame: re.Pattern[str]
    file: re.Pattern[str] | None
    known: re.Pattern[str]


@cache
def _activities() -> tuple[Activity, ...]:
    rows = json.loads(TABLE.read_text(encoding="utf-8"))["activities"]
    return tuple(
        Activity(
            row["words"],
            expression(row["frame"]),
            expression(row["file"]) if row.get("file") else None,
            expression(row["known"], re.IGNORECASE),
        )
        for row in rows
    )


def name_activity(examination: Examination, finding: Finding) -> str:
    """`while it was writing a checkpoint`, where that is seen and the title does not say so; else empty."""
    if finding.category in _TOLD or not finding.evidence or not finding.evidence[0].line:
        return ""
    place = finding.evidence[0]
    raised = _find_raised(examination.logs.tracebacks, place.file, place.line)
    frames = [f"{f.path} {f.name}" for f in reversed(raised.frames)] if raised is not None else []
    found = _read(frames, place.text[:2000])
    if found is None or found.known.search(finding.title):
        return ""
    return f"while it was {found.words}"


def _read(frames: Iterable[str], line: str) -> Activity | None:
    for frame in frames:
        for activity in _activities():
            if activity.frame.search(frame):
                return activity
    return next((a for a in _activities() if a.file is not None and a.file.search(line)), None)


def _find_raised(tracebacks: Iterable[Traceback], file: str, line: int) -> Traceback | None:
    """The exception whose line, or one of whose stack's lines, a finding quotes."""
    own = (t for t in tracebacks if t.line.file == file and t.start <= line <= t.line.number)
    return next(own, None)
