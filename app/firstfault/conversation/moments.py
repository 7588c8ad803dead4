"""When was it, and how long did it take? By the times that the lines print."""

from __future__ import annotations

import re
import time
from datetime import datetime

from firstfault.conversation.evidence import Line
from firstfault.conversation.facts import Facts
from firstfault.conversation.run_answers import tell_onset
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Verdict

_ASKS_END = expression(r"(?i)\b(?:end(?:ed)?|stop(?:ped)?|last|finish\w*|die[ds]?|over)\b")
_ASKS_BEGIN = expression(r"(?i)\b(?:job|run|training|log)s?\b[^?\n]{0,12}\b(?:start|begin|began)")
_RAN = expression(r"(?i)\b(?:run|ran|alive|up|survive|go|going|train\w*)\b")


def say_moment(seconds: float) -> str:
    """Date and time of day, UTC."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(seconds))


def tell_when(f: Facts) -> str:
    """When the first fault, the start or the end is in the log."""
    window = f.diagnosis.input.time_range
    span = f" The logs run from {window[0]} to {window[1]} (UTC)." if window else ""
    if window and _ASKS_BEGIN.search(f.text):
        return f"At {window[0]} (UTC) the logs begin; they end at {window[1]}."
    if (told := tell_onset(f)) and not _ASKS_END.search(f.text):
        return told
    line = f.first_line
    seen = f.evidence.time_of(line, f.year) if line is not None else None
    if line is not None and seen is not None:
        return (
            f"At {say_moment(seen)} the first fault is in the log, {f.at(line)}: {f.cause}.{span}"
        )
    links = [Line(x.file, x.line, x.text) for x in f.diagnosis.cascade if x.file and x.line]
    timed = [(t, x) for x in links if (t := f.evidence.time_of(x, f.year)) is not None]
    if timed:
        first, line = min(timed, key=lambda p: p[0])
        return f"The first failure with a time is at {say_moment(first)}, {f.at(line)}; the line of the cause itself has none.{span}"
    if line is None:
        return f"The line of the fault has no time.{span}" if span else ""
    return f"The line of the fault, {f.at(line)}, has no time of its own{_timed_beside(f, line)}.{span} {f.cause}."


def _timed_beside(f: Facts, line: Line) -> str:
    """The nearest lines with a time or a step, before and after a line that has none."""
    own = [x for x in f.evidence.lines if x.file == line.file]
    timed = [(x, at) for x in own if (at := f.evidence.time_of(x, f.year)) is not None]
    before = [p for p in timed if p[0].number < line.number][-1:]
    after = [p for p in timed if p[0].number > line.number][:1]
    parts = [f"after {say_moment(at)} ({f.at(x)})" for x, at in before] + [f"before {say_moment(at)} ({f.at(x)})" for x, at in after]  # fmt: skip
    return f": it was written {' and '.join(parts)}" if parts else ""


_HUNG = expression(
    r"(?i)\bhang|\bhung|\bstuck|\bidle|\bsat\b|\bstood|\bstand|\bdoing nothing|\bwait"
)
_SPAN = expression(
    r"(?i)\b(?:between|from|after)\b[^?\n]{0,60}\b(?:and|to|until|till)\b|\buntil\b[^?\n]{0,30}\b(?:end|kill|stop|die|abort|over)|\bnotice|\bdetect"
)


def _between(f: Facts) -> str:
    """How long it stood still, or how long from the first fault to the end of the job; '' where another span is asked for."""
    idle, fault, end = f.record.idle, f.record.fault_time, f.record.ended
    untimed = fault is None
    if fault is None:
        fault = f.record.first_told
    if _HUNG.search(f.text) and idle is not None:
        ends = f", {f.at(Line(idle.ends.file, idle.ends.line, idle.ends.text))}" if idle.ends is not None else ""  # fmt: skip
        gpus = f.diagnosis.input.world_size
        hours = f", {idle.seconds * gpus / 3600:,.1f} GPU-hours on {gpus} GPUs" if gpus else ""
        until = f"to the end of the job at {say_moment(idle.end)} (UTC){ends}{hours}"
        return f"{_span(idle.seconds)}: from the end of useful work at {say_moment(idle.start)} {until}. {f.cause} {f.main}."
    if not _SPAN.search(f.text) or fault is None or end is None or end < fault:
        return ""
    first = f.first_line
    what = (
        "the first failure with a time (the line of the cause itself has none)"
        if untimed
        else "the first fault"
    )
    mark = f" ({f.at(first)})" if first is not None and not untimed else ""
    return f"{_span(end - fault)}: from {what} at {say_moment(fault)}{mark} to the end of the job at {say_moment(end)} (UTC)."


def _span(seconds: float) -> str:
    return (
        f"{seconds:.0f} s"
        if seconds < 120
        else f"{seconds / 60:.1f} min"
        if seconds < 7_200
        else f"{seconds / 3600:.1f} h"
    )


def tell_duration(f: Facts) -> str:
    """How long the run went on, or how long it stood still."""
    window = f.diagnosis.input.time_range
    if window is None:
        return ""
    begin, end = (datetime.fromisoformat(t).timestamp() for t in window)
    if f.diagnosis.verdict is Verdict.FAULT and (told := _between(f)):
        return told
    last = next(
        (t for line in reversed(f.evidence.stepped) if (t := f.evidence.time_of(line, f.year))),
        None,
    )
    if _RAN.search(f.text) and not re.search(r"(?i)\bhang|\bhung|\bstuck|\bidle", f.text):
        line = f.first_line
        at = f.evidence.time_of(line, f.year) if line is not None else None
        until = at if at is not None and begin < at <= end else last or end
        end_of = "the fault at" if f.diagnosis.verdict is Verdict.FAULT else "the last line at"
        until = until if f.diagnosis.verdict is Verdict.FAULT else end
        return f"{(until - begin) / 60:.1f} minutes of it are in what was read: from {say_moment(begin)} to {end_of} {say_moment(until)} (UTC)."
    if last is not None and end - last > 1:
        return (
            f"{(end - last) / 60:.1f} minutes passed between the last reported step ({say_moment(last)}) and the last "
            f"line ({say_moment(end)}); the logs span {(end - begin) / 60:.1f} minutes in all."
        )
    return f"{(end - begin) / 60:.1f} minutes lie between the first and the last line that was read, {window[0]} to {window[1]} (UTC)."


def tell_started(f: Facts) -> str:
    """Whether any step was trained, and how far it came."""
    steps = f.record.steps
    if not steps:
        return f"No: no step line is in what was read, so it came while the run was starting up. {f.cause} {f.main}."
    first, last = steps[0], max(steps, key=lambda s: s.step)
    marks = [f.at(Line(x.file, x.line, x.text)) for x in (first, last)]
    return f"Yes: the first logged step is {first.step} ({marks[0]}), the last {last.step} ({marks[1]})."


def tell_by_itself(f: Facts) -> str:
    """Whether waiting helps; '' for a run in which nothing failed."""
    if f.diagnosis.verdict is not Verdict.FAULT:
        return ""
    fix = f.diagnosis.fixes[:1]
    do = f" What helps: {fix[0].text} {f.sources.marks(fix[0].citations, f.diagnosis)}" if fix else ""  # fmt: skip
    return (
        f"No, not by waiting: nothing that was read takes the cause away. {f.cause} {f.main}.{do}"
    )
