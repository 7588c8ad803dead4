"""How often did it happen, since when, and how long each time? Lines like the first one, with what ended each.

Counting what a question names works alike: the lines that hold its words, in bursts.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from firstfault.conversation.evidence import Line
from firstfault.conversation.facts import Facts
from firstfault.conversation.run_answers import at_line, clock
from firstfault.conversation.words import plain_words
from firstfault.knowledge_base.tokens import tokenize
from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Verdict

_STAMP = expression(
    r"\b\d{4}-\d\d-\d\d\b|\b(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) {1,2}\d{1,2}\b|\b\d{1,2}:\d\d:\d\d(?:[.,]\d{1,9})?|\b[EWIF]\d{4}\b|\[ *\d{1,9}\.\d{3,6}\]"
)
_NUMBER = expression(r"(?<![\w.:-])\d+(?:\.\d+)?(?![\w:-])")
_IDENTIFIER = expression(r"\b(?=\w*[a-z])(?=\w*\d)[\w.:-]{3,40}\b")
_OVER = expression(
    r"(?i)\blink up\b|\bup\b|\bactive\b|\bok\b|recover|restored|reconnect|came back|succeeded|normal"
)
BURST_S = 600.0
"""Seconds without a like line, after which the next ones are another burst."""
MOST_SAID = 6
NEAR_END = 400
"""Lines below an event among which its end is looked for."""


@dataclass(frozen=True, slots=True)
class Event:
    """One line that tells of it. time: seconds since the epoch, None where not told; seconds: until it was over, with the line that says so."""

    line: Line
    time: float | None
    seconds: float | None = None
    over: Line | None = None


def shape_of_line(text: str) -> str:
    """A line without its times."""
    return " ".join(_STAMP.sub("", text).split())


def find_like(f: Facts, first: Line) -> list[Line]:
    """Lines that say the same of the same thing, the first one among them; numbers may differ where no line is the same but for its time."""
    same = shape_of_line(first.text)
    found = [x for x in f.evidence.lines if shape_of_line(x.text) == same]
    if len(found) > 1:
        return found
    loose = _NUMBER.sub("#", same)
    return [x for x in f.evidence.lines if _NUMBER.sub("#", shape_of_line(x.text)) == loose]


def read_events(f: Facts, lines: Sequence[Line]) -> list[Event]:
    """The lines as events, each with its end where a later line of the same thing tells it."""
    every = f.evidence.lines
    place = {(x.file, x.number): i for i, x in enumerate(every)}
    out = []
    for line in lines:
        at = _time_of(f, line)
        names = set(_IDENTIFIER.findall(_STAMP.sub("", line.text)))
        start = place.get((line.file, line.number), len(every))
        over = _find_end(names, every[start + 1 : start + NEAR_END])
        end = _time_of(f, over) if over is not None else None
        lasted = end - at if end is not None and at is not None and end >= at else None
        out.append(Event(line, at, lasted, over if lasted is not None else None))
    return out


def _find_end(names: set[str], lines: Sequence[Line]) -> Line | None:
    """The first line that says that the same thing is over."""
    for line in lines:
        if (
            _OVER.search(line.text)
            and names
            and names <= set(_IDENTIFIER.findall(_STAMP.sub("", line.text)))
        ):
            return line
    return None


def _time_of(f: Facts, line: Line) -> float | None:
    return f.record.artefacts.time_at(line.file, line.number, line.text)[0]


def _say_event(f: Facts, event: Event) -> str:
    mark = at_line(f, event.line.file, event.line.number, event.line.text)
    when = clock(event.time) if event.time is not None else "no time"
    if event.seconds is None or event.over is None:
        return f"{when} ({mark})"
    return f"{when} for {event.seconds:.0f} s ({mark}, over at {at_line(f, event.over.file, event.over.number, event.over.text)})"


def tell_repeats(f: Facts) -> str:
    """Since when, how often and how long each time the first fault struck."""
    first = f.first_line
    if first is None or f.diagnosis.verdict is not Verdict.FAULT:
        return ""
    events = read_events(f, find_like(f, first))
    if not events:
        return ""
    head = events[0]
    since = f"since {clock(head.time)} UTC" if head.time is not None else "no line gives a time"
    shown = "; ".join(_say_event(f, e) for e in events[:MOST_SAID])
    more = f"; and {len(events) - MOST_SAID} more" if len(events) > MOST_SAID else ""
    many = f"{len(events)} times" if len(events) > 1 else "Once"
    return f"{many} by what was read, {since}{f.where}: {shown}{more}.{_say_survived(f, events)}"


def _say_survived(f: Facts, events: Sequence[Event]) -> str:
    """That training went on after the shorter ones, and what the last one had that they had not."""
    last = f.record.last_step
    timed = [e for e in events if e.time is not None]
    if last is None or last.time is None or len(timed) < 2:
        return ""
    survived = [e for e in timed[:-1] if e.time is not None and e.time < (_newest_step(f) or 0.0)]
    final = timed[-1]
    if not survived or all(e.seconds is None for e in survived):
        return ""
    longest = max(e.seconds or 0.0 for e in survived)
    lasted = f", the last one {final.seconds:.0f} s" if final.seconds is not None else ""
    went = "the first" if len(survived) == 1 else f"the first {len(survived)}"
    return f" Training went on after {went} (at most {longest:.0f} s){lasted}.{_say_window(f)}"


def _newest_step(f: Facts) -> float | None:
    return max((s.time for s in f.record.steps if s.time is not None), default=None)


_TIMEOUT = expression(r"(?i)\bNCCL_IB_TIMEOUT\b[^\d\n]{0,30}(\d{1,2})\b")
_RETRIES = expression(r"(?i)\bNCCL_IB_RETRY_CNT\b[^\d\n]{0,30}(\d{1,2})\b")
_TICK = 4.096e-6
DEFAULT_RETRIES = 7


def _say_window(f: Facts) -> str:
    """How long an RDMA connection holds out, by the settings that the lines print; '' where they print none."""
    timeout = f.evidence.find(_TIMEOUT, 1)
    retries = f.evidence.find(_RETRIES, 1)
    if not timeout:
        return ""
    line, found = timeout[0]
    count = int(retries[0][1][1]) if retries else DEFAULT_RETRIES
    one = _TICK * 2 ** int(found[1])
    return (
        f" An RDMA connection holds out {one:.1f} s x {count} retries = about {one * count:.0f} s with NCCL_IB_TIMEOUT={found[1]} "
        f"({f.at(line)}): a shorter break is ridden through, a longer one ends in IBV_WC_RETRY_EXC_ERR, which NCCL does not survive, "
        "though the link comes back later."
    )


_WORD = expression(r"[A-Za-z]{4,}")
STEM = 5
"""Letters that two forms of a word share ("skipped", "Skipping")."""


def tell_count(f: Facts) -> str:
    """How many lines hold what is asked for, burst by burst; '' where none does."""
    words = [w.lower() for w in _WORD.findall(f.text)]
    stop = plain_words() | _COMMON
    stems = {
        w[:STEM] for w in words if w not in stop and tokenize(w) and not set(tokenize(w)) <= stop
    }
    lines = f.evidence.lines
    held = Counter(s for s in stems for x in lines if s in x.text.lower())
    rare = {s for s in stems if 0 < held[s] <= max(3, len(lines) // 2)}
    if not rare:
        return ""
    scored = [(sum(1 for s in rare if s in x.text.lower()), x) for x in lines]
    best = max(n for n, _ in scored)
    shapes = Counter(_kind(x) for n, x in scored if n == best)
    main = [x for n, x in scored if n == best and _kind(x) in {s for s, _ in shapes.most_common(3)}]
    bursts = _bursts(f, [x for x in main if x.step is None] or main)
    if not bursts:
        return ""
    many = sum(map(len, bursts))
    rows = "; ".join(_say_burst(f, b) for b in bursts[:MOST_SAID])
    what = ", ".join(sorted({w for w in words if w[:STEM] in rare}))
    early = len(bursts) > 1 and _ASKS_SAME.search(f.text) is not None and _went_on(f, bursts[0])
    word = "No, by what was read: the first ones passed by themselves. " if early else ""
    return f"{word}{many} lines tell of it ({what}): {rows}. The first fault: {f.cause} {f.main}."


_COMMON = frozenset(
    [
        "already",
        "same",
        "problem",
        "times",
        "time",
        "many",
        "often",
        "step",
        "steps",
        "start",
        "very",
        "ends",
        "lines",
        "there",
        "were",
        "happened",
        "happen",
        "last",
        "first",
        "gets",
        "total",
    ]
)


def _kind(line: Line) -> str:
    return re.sub(r"\d+", "#", shape_of_line(line.text))[:60]


def _bursts(f: Facts, lines: Sequence[Line]) -> list[list[Event]]:
    out: list[list[Event]] = []
    for line in lines:
        event = Event(line, _time_of(f, line))
        before = out[-1][-1].time if out else None
        if before is None or (event.time is not None and event.time - before > BURST_S):
            out.append([event])
        else:
            out[-1].append(event)
    return out


_ASKS_SAME = expression(r"(?i)\bsame\b|\balready\b|\bat the (?:very )?(?:start|beginning)\b")


def _went_on(f: Facts, burst: Sequence[Event]) -> bool:
    """Steps were logged long after the burst, so it stopped nothing."""
    at = burst[-1].time
    later = [
        s.time for s in f.record.steps if s.time is not None and at is not None and s.time > at
    ]
    return bool(later) and at is not None and max(later) - at > BURST_S


def _say_burst(f: Facts, burst: Sequence[Event]) -> str:
    first, last = burst[0], burst[-1]
    mark = at_line(f, first.line.file, first.line.number, first.line.text)
    if first.time is None or last.time is None:
        return f"{len(burst)} from {mark} on"
    span = f"at {clock(first.time)}" if len(burst) == 1 else f"from {clock(first.time)} to {clock(last.time)}"  # fmt: skip
    on = f", and training went on afterwards (to step {f.record.last_step.step})" if f.record.last_step is not None and _went_on(f, burst) else ""  # fmt: skip
    return f"{len(burst)} {span} ({mark}){on}"
