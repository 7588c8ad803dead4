"""What stands in a fold, before it is opened? Its name, and in a few words what of this incident is in it."""

from __future__ import annotations

from firstfault.investigation.diagnosis import Diagnosis
from firstfault.ui.details import group_events, longest_silence, order_events
from firstfault.ui.evidence import evidence_of
from firstfault.ui.marks import place_of, plain
from firstfault.ui.spans import say_span
from firstfault_tools.findings import Verdict


def name_fold(name: str, content: str = "") -> str:
    """The label of a fold, as Markdown: the style sheet makes what is emphasised quieter than the name."""
    return f"{name} *{plain(content)}*" if content else name


def say_evidence(diagnosis: Diagnosis) -> str:
    """`log.txt:3 and 4 more quoted lines`."""
    quotes = evidence_of(diagnosis)
    if not quotes:
        return ""
    more = len(quotes) - 1
    return place_of(quotes[0]) + (f" and {more} more quoted line{'s' if more > 1 else ''}" if more else "")  # fmt: skip


def say_timeline(diagnosis: Diagnosis) -> str:
    """`5 kinds of events, 10 min 1 s of silence between them`."""
    events = group_events(order_events(diagnosis))
    if not events:
        return ""
    said = f"{len(events)} event{'s' if len(events) > 1 else ''}"
    quiet = longest_silence(diagnosis, events)
    return f"{said}, {say_span(quiet)} of silence" if quiet else said


def say_rivals(diagnosis: Diagnosis) -> str:
    """`1 other explanation weighed`; nothing of a healthy run, which needs none."""
    rivals = len(diagnosis.hypotheses) - 1
    if rivals < 1 or diagnosis.verdict is Verdict.HEALTHY:
        return ""
    return f"{rivals} other explanation{'s' if rivals > 1 else ''} weighed"
