"""How much of the time went to saves, evaluation or start-up? By the seconds that their own lines print."""

from __future__ import annotations

from datetime import datetime
from itertools import pairwise

from firstfault.conversation.evidence import Line
from firstfault.conversation.facts import Facts
from firstfault.conversation.run_answers import at_event
from firstfault.conversation.telling import Telling
from firstfault_tools.averages import median
from firstfault_tools.checkpoint.saves import SaveState
from firstfault_tools.expressions import expression

_WORK = (
    ("checkpoints", expression(r"(?i)\bcheckpoint|\bckpt|\bsav(?:e|es|ing)\b"), expression(r"(?i)\b(?:checkpoint|ckpt)\b[^\n]{0,80}\b(?:saved|complete|written|done)\b|"
        r"\b(?:finished|took|done)\b[^\n]{0,24}\bsav(?:ing|e)\b|\bsav(?:ed|ing)\b[^\n]{0,60}\b(?:finished|took|done|in \d)")),
    ("evaluation", expression(r"(?i)\beval|\bvalidation"), expression(r"(?i)\b(?:eval\w*|validation)\b")),
    ("compilation", expression(r"(?i)\bcompil"), expression(r"(?i)\bcompil\w+")),
)  # fmt: skip
_TOOK = expression(
    r"(?i)(?:\bin|\btook|[,(]|\btime[ =:]{1,2})\s?(\d{1,6}(?:\.\d{1,3})?) ?s(?:ec(?:onds?)?)?\b(?!/)"
)


def tell_share(f: Facts) -> str:
    """Seconds and share of the whole for each kind of work that the question names; '' where no line prints any."""
    window = f.diagnosis.input.time_range
    if window is None:
        return ""
    begin, end = (datetime.fromisoformat(t).timestamp() for t in window)
    parts, lacking = [], []
    for name, asks, told in _WORK:
        if not asks.search(f.text):
            continue
        found = [(float(m[1]), x) for x in f.evidence.lines if told.search(x.text) and (m := _TOOK.search(x.text)) is not None]  # fmt: skip
        if not found and name == "checkpoints":
            found = _saves(f)
        if found:
            parts.append(_say(f, name, found, end - begin))
        else:
            lacking.append(name)
    if not parts:
        return ""
    rest = f" No line prints how long {' and '.join(lacking)} took." if lacking else ""
    span = f" The log spans {(end - begin) / 60:.0f} min."
    return f"{'; '.join(parts)}.{span}{rest}"


def _saves(f: Facts) -> list[tuple[float, Line]]:
    """Seconds from the line that begins a save to the one that says that it is whole."""
    out: list[tuple[float, Line]] = []
    begun: dict[str, float] = {}
    for e in f.record.checkpoints.events:
        if e.state is SaveState.BEGUN and e.time is not None:
            begun.setdefault(e.name, e.time)
        if e.state is SaveState.SAVED and e.time is not None and e.name in begun:
            out.append((e.time - begun.pop(e.name), Line(e.file, e.line, e.text)))
    return [p for p in out if p[0] > 0]


def _say(f: Facts, name: str, found: list[tuple[float, Line]], whole: float) -> str:
    seconds = sum(s for s, _ in found)
    told = " + ".join(f"{s:g}" for s, _ in found[:6]) + (" + ..." if len(found) > 6 else "")
    share = f", {100 * seconds / whole:.1f} % of the time" if whole > 0 else ""
    if len(found) > 1:
        share += f", {median(s for s, _ in found):.3g} s each (median)"
    return f"{name[:1].upper()}{name[1:]}: {told} = {seconds:.0f} s{share} (last at {f.at(found[-1][1])})"


def tell_save_pace(t: Telling) -> str:
    """How far apart the saves were, by steps and by time; '' where fewer than two are told."""
    saved = [e for e in t.record.checkpoints.events if e.state in (SaveState.SAVED, SaveState.LOADED)]  # fmt: skip
    steps = sorted({e.step for e in saved if e.step is not None})
    times = sorted({e.time for e in saved if e.time is not None})
    every = [f"{median(b - a for a, b in pairwise(steps)):.0f} steps"] if len(steps) > 1 else []
    every += [f"{median(b - a for a, b in pairwise(times)) / 60:.0f} min"] if len(times) > 1 else []
    if not every:
        return ""
    return f"Every {', '.join(every)}, by the {len(steps or times)} checkpoints that the log names, the last {at_event(t, saved[-1])}."


_EVERY = expression(r"(?i)\bevery (\d{1,6}) (?:steps|iterations)\b")


def tell_save_more(f: Facts) -> str:
    """What another interval of saves would have left to repeat, and what it costs; '' where no line tells the pace."""
    named, last, best, lost = _EVERY.search(f.text), f.record.last_step, f.record.resume_from, f.record.repeated  # fmt: skip
    if named is None or last is None or best is None or best.step is None or lost is None:
        return ""
    every, steps = int(named[1]), last.step - best.step
    if steps <= 0 or every <= 0:
        return ""
    pace = lost.seconds / steps
    head = "Yes, for what has to be repeated" if every < steps else "No, nothing less would have to be repeated"  # fmt: skip
    return (
        f"{head}: at most {every:,} steps ({every * pace / 60:.0f} min) instead of {steps:,} ({lost.seconds / 60:.0f} min), if the saves in between "
        f"had come whole.{_price_of_saves(f, every * pace)} It would not have removed the cause: {f.cause} {f.main}."
    )


def _price_of_saves(f: Facts, interval: float) -> str:
    """Share of the time that saves take at an interval in seconds; '' where no line tells how long one is."""
    events = [e for e in f.record.checkpoints.events if e.state is SaveState.SAVED]
    told = next(((float(m[1]), e) for e in reversed(events) if (m := _TOOK.search(e.text)) is not None), None)  # fmt: skip
    if told is None:
        return ""
    return f" A save takes {told[0]:g} s ({at_event(f, told[1])}), which is {100 * told[0] / (told[0] + interval):.1f} % of the time at that interval."
