"""What else is known? Events in order, tool results and the raw diagnosis."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from html import escape
from itertools import pairwise

import streamlit as st

from firstfault.investigation.diagnosis import ChainLink, ChainRole, Diagnosis
from firstfault.postmortem.extent import LEAST_SILENCE_S
from firstfault.postmortem.timeline import say_alike, shape_of
from firstfault.ui.marks import icon
from firstfault.ui.spans import say_span
from firstfault.ui.words import ROLES, Look
from firstfault_tools.dataclass import dataclass
from firstfault_tools.log.clock import NO_YEAR, read_time
from firstfault_tools.log.place import name_ranks
from firstfault_tools.log.prefix import read_prefix

MAX_ROWS = 200
MOST_LINE = 400
BEFORE = Look("history", "before it", "plain")
"""Part of a line that was written before the first fault: it cannot follow from it."""


@dataclass(frozen=True, slots=True)
class Event:
    """Lines of one kind and part: the first of them with its time, and all their ranks and places.

    about: the line prints no time; that of its neighbour stands for it.
    """

    at: float | None
    about: bool
    look: Look
    links: tuple[ChainLink, ...]


def show_details(diagnosis: Diagnosis) -> None:
    """What machines read, in one fold."""
    with st.expander("Raw *diagnosis as JSON, tool results*", icon=":material/data_object:"):
        text = json.dumps(diagnosis.to_json(), ensure_ascii=False, indent=1)
        st.download_button(
            "Download JSON", text, "diagnosis.json", "application/json", on_click="ignore"
        )
        if diagnosis.tools:
            st.json(dict(diagnosis.tools), expanded=1)
        st.code(text[:60_000], language="json", height=360)


def show_events(diagnosis: Diagnosis) -> None:
    """The chain of events as a table."""
    if diagnosis.cascade:
        st.html(write_chain(diagnosis))


def write_chain(diagnosis: Diagnosis) -> str:
    """Time, ranks, part and line of every event, in order of time; long silences are rows of their own."""
    rows, before = [], None
    for event in group_events(order_events(diagnosis))[:MAX_ROWS]:
        at = event.at
        if at is not None and before is not None and (quiet := _silence_in(diagnosis, before, at)):
            rows.append(
                f'<tr class="gap"><td colspan="5">{icon("more_vert")} {say_span(quiet)} of silence</td></tr>'
            )
        before = at if at is not None else before
        rows.append(_write_row(event))
    return (
        '<table class="ff ff-table ff-events"><thead><tr><th class="num">UTC</th><th class="num">Rank</th><th>Part</th>'
        f"<th>Line</th><th>Where</th></tr></thead><tbody>{''.join(rows)}</tbody></table>"
    )


def longest_silence(diagnosis: Diagnosis, events: Sequence[Event]) -> float:
    """Seconds of the longest silence between two events that follow each other; 0 where there is none."""
    times = [e.at for e in events if e.at is not None]
    return max((_silence_in(diagnosis, a, b) for a, b in pairwise(times)), default=0.0)


def _silence_in(diagnosis: Diagnosis, start: float, end: float) -> float:
    """Seconds of the longest stretch between two events in which no log holds a line; 0 where there is none."""
    silences = diagnosis.measured.silences if diagnosis.measured is not None else ()
    within = (min(b, end) - max(a, start) for a, b in silences)
    return max((s for s in within if s >= LEAST_SILENCE_S), default=0.0)


def _write_row(event: Event) -> str:
    first, alike = event.links[0], say_alike(event.links).strip(" ()")
    time = f"{datetime.fromtimestamp(event.at, UTC):%H:%M:%S}" if event.at is not None else "–"
    if event.about and event.at is not None:
        time = f'<span title="by a line near it; the line prints no time">~{time}</span>'
    ranks = name_ranks(sorted({k.rank for k in event.links if k.rank is not None}))
    place = f"{first.file}:{first.line}" if first.line else str(first.file)
    more = f' <span class="ff-muted">{alike}</span>' if alike else ""
    return (
        f'<tr><td class="num">{time}</td><td class="num ranks">{ranks.removeprefix("ranks ").removeprefix("rank ")}</td>'
        f'<td><span class="ff-tag ff-tone-{event.look.tone}">{icon(event.look.icon)} {event.look.word}</span></td>'
        f'<td class="mono">{escape(_say_line(first))}{more}</td><td class="mono place">{escape(place)}</td></tr>'
    )


def order_events(diagnosis: Diagnosis) -> Sequence[tuple[float | None, bool, ChainLink]]:
    """(time, whether it is a neighbour's, line) of each line of the chain once, by time; else by file and line."""
    found = {(k.file, k.line): k for k in reversed(diagnosis.cascade)}
    if diagnosis.measured is None:
        found = _stamp(found, diagnosis.input.time_range)
    events = [(k.at, k.about, k) for k in found.values()]
    return sorted(events, key=lambda e: (e[0] is None, e[0] or 0.0, e[2].file or "", e[2].line))


_Links = dict[tuple[str | None, int], ChainLink]


def _stamp(found: _Links, span: tuple[str, str] | None) -> _Links:
    """The lines with the times that they print themselves, where nothing else was read for them."""
    year = int(span[0][:4]) if span else NO_YEAR
    return {
        place: replace(k, at=read_time(k.text, year) if span else None)
        for place, k in found.items()
    }


def group_events(
    ordered: Sequence[tuple[float | None, bool, ChainLink]],
) -> Sequence[Event]:
    """Lines of one kind and part as one event, at the place of the first of them."""
    first = next((n for n, e in enumerate(ordered) if e[2].role is ChainRole.INITIATING), 0)
    groups: dict[tuple[str, str], list[tuple[float | None, bool, ChainLink]]] = {}
    # what was collected at some time, such as counters of a switch, shows what began before
    dated = bool(ordered) and not ordered[first][1]
    for number, event in enumerate(ordered):
        link = event[2]
        look = ROLES[link.role]
        if dated and number < first and link.role is ChainRole.CASCADE:
            look = BEFORE
        groups.setdefault((look.word, shape_of(link.text)), []).append(event)
    looks = {look.word: look for look in (*ROLES.values(), BEFORE)}
    return [
        Event(rows[0][0], rows[0][1], looks[word], tuple(row[2] for row in rows))
        for (word, _), rows in groups.items()
    ]


def _say_line(link: ChainLink) -> str:
    """The message without its prefixes, which the row shows anyway."""
    text = link.text[read_prefix(link.text)[1] :].strip() or link.text
    flat = " ".join(text.split())
    return flat if len(flat) <= MOST_LINE else flat[:MOST_LINE].rsplit(" ", 1)[0] + " …"
