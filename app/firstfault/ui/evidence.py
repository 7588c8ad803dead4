"""Which lines is the verdict read from? Log windows with line numbers and the cited line marked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

import streamlit as st

from firstfault.investigation.diagnosis import Citation, CitationKind, Diagnosis
from firstfault.service import Window
from firstfault.ui.door import read_windows
from firstfault.ui.marks import icon, link_mark, place_of
from firstfault.ui.words import ROLES, Look

MAX_SHOWN = 4
AROUND = 2
MAX_LINE = 1_200


def evidence_of(diagnosis: Diagnosis) -> tuple[Citation, ...]:
    """Log and tool citations, those of the verdict first, each place once."""
    quotes = [c for c in diagnosis.citations if c.kind is not CitationKind.PAGE]
    first = diagnosis.hypotheses[0].for_ if diagnosis.hypotheses else ()
    quotes.sort(key=lambda c: (c.n not in first, c.n))
    seen: set[tuple[str | None, int | None]] = set()
    out = []
    for citation in quotes:
        place = (citation.file, citation.line)
        if citation.line and place in seen:
            continue
        seen.add(place)
        out.append(citation)
    return tuple(out)


def show_evidence(incident: str, diagnosis: Diagnosis, last_turn: int) -> None:
    """The few windows that carry the verdict; cited lines close to each other share one."""
    found = evidence_of(diagnosis)
    chosen = found[:MAX_SHOWN]
    if not chosen:
        return
    citations = {c.n: c for c in diagnosis.citations}
    roles = role_by_place(diagnosis)
    places = tuple((c.file or "", c.line or 0) for c in chosen)
    windows = read_windows(incident, places, AROUND, last_turn)
    figures = [
        write_window(cited, window, citations, roles, brief=True)
        for cited, window in merge_windows(list(zip(chosen, windows, strict=True)))
    ]
    left = len(found) - len(chosen)
    note = f"{left} more quoted line{'s' if left > 1 else ''} under Sources" if left else ""
    st.html(
        f'<section class="ff" aria-label="Evidence">{"".join(figures)}'
        f'<p class="ff-foot">{note}</p></section>'
    )


def merge_windows(
    pairs: Sequence[tuple[Citation, Window | None]],
) -> list[tuple[tuple[Citation, ...], Window | None]]:
    """Windows of one file that touch become one; the order is that of their first citation."""
    out: list[tuple[tuple[Citation, ...], Window | None]] = []
    for citation, window in pairs:
        for at, (cited, other) in enumerate(out):
            if window is None or other is None or window.file != other.file:
                continue
            lines = dict(other.lines) | dict(window.lines)
            if len(lines) <= max(lines) - min(lines):
                continue
            merged = Window(other.file, other.cited, tuple(sorted(lines.items())))
            out[at] = ((*cited, citation), merged)
            break
        else:
            out.append(((citation,), window))
    return out


def role_by_place(diagnosis: Diagnosis) -> Mapping[tuple[str, int], Look]:
    """Part of each line in the chain of events."""
    return {(link.file or "", link.line): ROLES[link.role] for link in reversed(diagnosis.cascade)}


def write_window(
    cited: Sequence[Citation],
    window: Window | None,
    citations: Mapping[int, Citation],
    roles: Mapping[tuple[str, int], Look],
    brief: bool = False,
) -> str:
    """One window as HTML. brief: neighbours on one row each. No window: the quote alone.

    citations: those a mark in the gutter may open; empty inside the list of sources itself.
    """
    rows: Sequence[tuple[int, str]] = tuple((c.line or 0, c.quote) for c in cited)
    if window is not None:
        rows = window.lines
    numbers = {c.line or 0: c.n for c in cited}
    file = cited[0].file or ""
    first = roles.get((file, cited[0].line or 0))
    told = ""
    if first is not None:
        told = f'<span class="role ff-tone-{first.tone}">{icon(first.icon)} {first.word}</span>'
    body = ""
    for number, text in rows:
        at = numbers.get(number)
        look = roles.get((file, number)) if at is not None else None
        mark = link_mark(at, citations) if at is not None else ""
        body += _row(number, text, at is not None, mark, look)
    place = place_of(cited[0])
    if len(cited) > 1:
        place = f"{file}:{min(numbers)}–{max(numbers)}"
    digits = len(str(max(number for number, _ in rows)))
    label = escape(f"{place} with the lines around it", quote=True)
    return (
        f'<figure class="ff ff-window{" ff-brief" if brief else ""}"><figcaption>'
        f'<span class="where">{escape(place)}</span>{told}</figcaption>'
        f'<div class="ff-log" style="--digits: {digits}" tabindex="0" role="group" aria-label="{label}">{body}</div></figure>'
    )


def _row(number: int, text: str, cited: bool, mark: str, look: Look | None) -> str:
    shown = text if len(text) <= MAX_LINE else text[:MAX_LINE] + " … (line goes on)"
    said = '<span class="ff-hidden">cited line: </span>' if cited else ""
    tone = f" {look.tone}" if look is not None else ""
    return (
        f'<div class="ff-row{" cited" if cited else ""}{tone}"><span class="mk">{mark}</span>'
        f'<span class="no">{number or "–"}</span>'
        f'<span class="tx">{said}{escape(shown) or " "}</span></div>'
    )
