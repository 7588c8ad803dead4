"""How much of the time went to saves, evaluation or start-up? By the seconds that their own lines print."""

from __future__ import annotations

from datetime import datetime
from itertools import pairwise
from statistics import median

from firstfault.conversation.evidence import Line
from firstfault.conversation.facts import Facts
from firstfault.conversation.run_answers import at_event
from firstfault.conversation.telling import Telling
from firstfault_tools.checkpoint.saves import SaveState
from firstfault_tools.expressions import expression

_WORK = (
    ("checkpoints", expression(r"(?i)\bcheckpoint|\bckpt|\bsav(?:e|es|ing)\b"), expression(r"(?i)\b(?:checkpoint|ckpt)\b[^\n]{0,80}\b(?:saved|complete|written|done)\b")),
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
        if found:
            parts.append(_say(f, name, found, end - begin))
        else:
            lacking.append(name)
    if not parts:
        return ""
    rest = f" No line prints how long {' and '.join(lacking)} took." if lacking else ""
    span = f" The log spans {(end - begin) / 60:.0f} min."
    return f"{'; '.join(parts)}.{span}{rest}"


def _say(f: Facts, name: str, found: list[tuple[float, Line]], whole: float) -> str:
    seconds = sum(s for s, _ in found)
    told = " + ".join(f"{s:g}" for s, _ in found[:6]) + (" + ..." if len(found) > 6 else "")
    share = f", {100 * seconds / whole:.1f} % of the time" if whole > 0 else ""
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
