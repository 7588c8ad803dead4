"""What does a run's own log of events hold: what happened when, and when did it fail?

One JSON object a line, as many training scripts write them: `timestamp` (seconds, milliseconds or ISO 8601)
and `event_type` (or `type`, `event`, `kind`). An event that is called a failure, crash, error or OOM is one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime

from firstfault_tools.dataclass import dataclass
from firstfault_tools.errors import UnreadableArtefact
from firstfault_tools.expressions import expression

KINDS, TIMES = ("event_type", "type", "event", "kind"), ("timestamp", "time_s", "time", "ts")
MAX_EVENTS = 1_000_000
MILLISECONDS_FROM = 1e11
"""A time above it is in milliseconds: in seconds it would lie beyond the year 5000."""
_FAILURE = expression(r"(?i)fail|crash|error|oom|abort|killed")


@dataclass(frozen=True, slots=True)
class EventLog:
    """events: (kind, seconds) of all that is no failure. failures: seconds. left_out: lines without kind or time."""

    events: tuple[tuple[str, float], ...]
    failures: tuple[float, ...]
    left_out: int


def read_event_log(text: str, name: str) -> EventLog:
    """Events in the order of the file. Raises UnreadableArtefact where no line is one."""
    events, failures, left_out = list[tuple[str, float]](), list[float](), 0
    for line in text.splitlines()[:MAX_EVENTS]:
        if not line.strip():
            continue
        found = _read_event(line)
        if found is None:
            left_out += 1
        elif _FAILURE.search(found[0]):
            failures.append(found[1])
        else:
            events.append(found)
    if not events and not failures:
        raise UnreadableArtefact(
            f"{name}: no event in it; needed is a JSON object a line with event_type and timestamp"
        )
    return EventLog(tuple(events), tuple(sorted(failures)), left_out)


def _read_event(line: str) -> tuple[str, float] | None:
    try:
        item = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(item, Mapping):
        return None
    kind = next((item[k] for k in KINDS if isinstance(item.get(k), str)), None)
    time = next((t for k in TIMES if (t := _seconds(item.get(k))) is not None), None)
    return None if kind is None or time is None else (kind[:100], time)


def _seconds(raw: object) -> float | None:
    if isinstance(raw, bool):
        return None
    if isinstance(raw, int | float):
        value = float(raw)
    elif isinstance(raw, str):
        try:
            value = datetime.fromisoformat(raw[:40].replace("Z", "+00:00")).timestamp()
        except (ValueError, OverflowError):
            return None
    else:
        return None
    if value != value or abs(value) > 1e15:
        return None
    return value / 1000 if abs(value) > MILLISECONDS_FROM else value
