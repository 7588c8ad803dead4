"""Which lines beside the step lines do the metric verdicts need? Saves, resumes, overflows, workers."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.metrics.sources.tokens import to_number

_LATER = (
    *("checkpoint", "overflow", "workers", "warmup", "scratch", "resum", "restart"),
    *(
        "time (ms) |",
        " ....",
        "loss scale",
        "validation loss at",
        "running evaluation",
        "running validation",
        "global step to",
    ),
)
_SHAPELESS = expression(r"[-\d.+ ]+")


@dataclass(frozen=True, slots=True)
class EventRule:
    """word, any_of: plain words that must occur in the lower-case line before the pattern is tried."""

    kind: str
    word: str
    any_of: tuple[str, ...]
    pattern: re.Pattern[str]


@cache
def load_event_rules() -> tuple[EventRule, ...]:
    """The rules of events.json."""
    raw = json.loads((Path(__file__).parent / "events.json").read_text(encoding="utf-8"))
    return tuple(
        EventRule(r["kind"], r["word"], tuple(r.get("any", ())), expression(r["pattern"], short=0))
        for r in raw["events"]
    )


@cache
def _roots() -> tuple[str, ...]:
    """For each rule its word's longest part without what a line's shape leaves out."""
    words = {max(_SHAPELESS.split(r.word), key=len) for r in load_event_rules()}
    return tuple(w for w in words if w and not any(o in w for o in words if o not in ("", w)))


def may_hold_event(lower: str) -> bool:
    """Some rule's word occurs, so that a line of the same shape might be an event."""
    return " ..." in lower or any(root in lower for root in _roots())


def matters_later(lower: str) -> bool:
    """A line after the first step is worth a look for events."""
    return any(word in lower for word in _LATER)


def choose_rules(lower: str) -> tuple[EventRule, ...]:
    """Rules that a line of this line's shape may fit, whatever its numbers and blanks."""
    shape = _SHAPELESS.sub("", lower)

    def fits(word: str) -> bool:
        return _SHAPELESS.sub("", word) in shape

    return tuple(
        rule
        for rule in load_event_rules()
        if fits(rule.word) and (not rule.any_of or any(map(fits, rule.any_of)))
    )


def read_events(
    text: str, lower: str, rules: Sequence[EventRule] | None = None
) -> Iterator[tuple[str, dict[str, float]]]:
    """(kind, numbers) of every event rule that the line fits. rules: those of its shape, None for all."""
    for rule in load_event_rules() if rules is None else rules:
        if rule.word not in lower or (rule.any_of and not any(w in lower for w in rule.any_of)):
            continue
        found = rule.pattern.search(text)
        if found is None:
            continue
        values = {}
        for name, value in found.groupdict().items():
            if value is None:
                continue
            try:
                values[name] = to_number(value.rstrip("."))
            except ValueError:
                continue
        yield rule.kind, values
