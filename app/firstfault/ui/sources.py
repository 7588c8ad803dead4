"""What exactly does a number stand for? Every citation with its log window or its page passage.

A mark is a link into this list: the browser opens the fold it leads to, with mouse, touch and keyboard
alike, without asking the server.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from html import escape

import streamlit as st

from firstfault.investigation.diagnosis import Citation, CitationKind
from firstfault.service import PagePassage, Window
from firstfault.ui.door import read_passage, read_windows
from firstfault.ui.evidence import write_window
from firstfault.ui.marks import icon, render_markdown
from firstfault.ui.words import Look

AROUND = 8
MAX_SNIPPET = 90
MANY_LINES = 400_000
"""Above this, windows of sources are not read ahead: the quote stands alone."""


def show_sources(
    incident: str,
    citations: Sequence[Citation],
    last_turn: int,
    lines_total: int = 0,
    roles: Mapping[tuple[str, int], Look] | None = None,
    scope: str = "src",
    title: str = "Sources",
) -> None:
    """The numbered list."""
    if not citations:
        return
    logs = [c for c in citations if c.kind is not CitationKind.PAGE]
    places = tuple((c.file or "", c.line or 0) for c in logs)
    windows: list[Window | None] = [None] * len(logs)
    if lines_total <= MANY_LINES:
        windows = read_windows(incident, places, AROUND, last_turn)
    found = {c.n: w for c, w in zip(logs, windows, strict=True)}
    items = [_source(c, found.get(c.n), roles or {}, scope) for c in citations]
    head = (
        f'<h3 class="ff-title">{escape(title)}'
        "<small>your files and the knowledge base, word for word</small></h3>"
    )
    st.html(
        f'<section class="ff" aria-label="{escape(title or "Sources", quote=True)}">{head if title else ""}'
        f'<div style="margin-top:.4rem">{"".join(items)}</div></section>'
    )


def _source(
    citation: Citation,
    window: Window | None,
    roles: Mapping[tuple[str, int], Look],
    scope: str,
) -> str:
    if citation.kind is CitationKind.PAGE:
        passage = read_passage(citation.page or "", citation.heading or "")
        title = passage.title if passage else citation.page or ""
        at = f"{escape(title)} › {escape(citation.heading or 'Summary')}"
        if citation.heading in (None, "", title):
            at = escape(title)
        what, symbol = "knowledge page", "menu_book"
        body = _passage(citation, passage)
    else:
        at = f"<code>{escape(citation.file or '')}{f':{citation.line}' if citation.line else ''}</code>"
        what, symbol = (
            ("your log" if citation.kind is CitationKind.LOG else "tool result"),
            "description",
        )
        body = write_window((citation,), window, {}, roles)
    quote = " ".join(citation.quote.split())
    return (
        f'<details class="ff-src"><summary><span class="n">{citation.n}</span><span class="at">{at} '
        f'<span class="snip">{escape(quote[:MAX_SNIPPET])}{"…" if len(quote) > MAX_SNIPPET else ""}</span></span>'
        f'<span class="what">{icon(symbol)} {what}</span></summary>'
        f'<div class="body" id="{scope}-{citation.n}">{body}</div></details>'
    )


def _passage(citation: Citation, passage: PagePassage | None) -> str:
    link = ""
    if citation.url and citation.url.startswith("https://"):
        url = escape(citation.url, quote=True)
        link = f'Stands on <a href="{url}" target="_blank" rel="noopener noreferrer">{escape(citation.url)}</a>'
    if passage is None:
        return f'<div class="ff-passage"><p>{escape(citation.quote)}</p></div><p class="ff-foot">{link}</p>'
    shown = _highlight(render_markdown(passage.text, {}), citation.quote)
    checked = f"Checked {escape(passage.checked)}. " if passage.checked else ""
    return f'<div class="ff-passage">{shown}</div><p class="ff-foot">{checked}{link}</p>'


def _highlight(rendered: str, quote: str) -> str:
    """Mark the quoted words inside rendered HTML, whatever inline tags and breaks lie between."""
    words = [
        # the renderer writes a quotation mark as an entity
        re.escape(escape(w, quote=False)).replace('"', '(?:"|&quot;)')
        for w in re.sub(r"[`*_]", " ", quote).split()
    ]
    if not words:
        return rendered
    gap = r"(?:\s|</?(?:code|em|strong)>)*"
    match = re.search(gap.join(words), rendered)
    if match is None or "<p>" in match[0] or "<li>" in match[0]:
        return rendered
    inner = match[0]
    if inner.count("<") != inner.count(">") or inner.count("<code>") != inner.count("</code>"):
        return rendered
    return rendered[: match.start()] + f"<mark>{inner}</mark>" + rendered[match.end() :]
