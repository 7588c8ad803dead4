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

MAX_SHOWN = 5
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
    """The three to five windows that carry the verdict."""
    chosen = evidence_of(diagnosis)[:MAX_SHOWN]
    if not chosen:
        return
    citations = {c.n: c for c in diagnosis.citations}
    roles = role_by_place(diagnosis)
    places = tuple((c.file or "", c.line or 0) for c in chosen)
    windows = read_windows(incident, places, AROUND, last_turn)
    figures = [
        write_window(c, w, citations, roles.get((c.file or "", c.line or 0)), brief=True)
        for c, w in zip(chosen, windows, strict=True)
    ]
    total = len(evidence_of(diagnosis))
    note = (
        f"{len(chosen)} of {total} quoted lines; the rest is under Sources"
        if total > len(chosen)
        else ""
    )
    st.html(
        f'<section class="ff" aria-label="Evidence"><h3 class="ff-title">Evidence<small>{note}</small></h3>'
        f'<div style="margin-top:.5rem">{"".join(figures)}</div></section>'
    )


def role_by_place(diagnosis: Diagnosis) -> Mapping[tuple[str, int], Look]:
    """Part of each line in the chain of events."""
    return {(link.file or "", link.line): ROLES[link.role] for link in reversed(diagnosis.cascade)}


def write_window(
    citation: Citation,
    window: Window | None,
    citations: Mapping[int, Citation],
    role: Look | None = None,
    brief: bool = False,
    scope: str = "src",
) -> str:
    """One window as HTML. brief: neighbours on one row each. No window: the quote alone."""
    rows: Sequence[tuple[int, str]] = ((citation.line or 0, citation.quote),)
    if window is not None:
        rows = window.lines
    place = escape(place_of(citation))
    told = (
        f'<span class="role ff-tone-{role.tone}">{icon(role.icon)} {role.word}</span>'
        if role
        else ""
    )
    body = "".join(_row(n, text, n == (citation.line or 0)) for n, text in rows)
    label = escape(f"{place_of(citation)} with the lines around it", quote=True)
    style = " ff-brief" if brief else ""
    return (
        f'<figure class="ff ff-window{style}"><figcaption>{link_mark(citation.n, citations, scope)}'
        f'<span class="where">{place}</span>{told}</figcaption>'
        f'<div class="ff-log" tabindex="0" role="group" aria-label="{label}">{body}</div></figure>'
    )


def _row(number: int, text: str, cited: bool) -> str:
    shown = text if len(text) <= MAX_LINE else text[:MAX_LINE] + " … (line goes on)"
    said = '<span class="ff-hidden">cited line: </span>' if cited else ""
    label = str(number) if number else "–"
    return (
        f'<div class="ff-row{" cited" if cited else ""}"><span class="no">{label}</span>'
        f'<span class="tx">{said}{escape(shown) or " "}</span></div>'
    )
