"""What does the knowledge base say? Search, and whole pages read in place; in a dialog beside an incident."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import streamlit as st

from firstfault.errors import FirstfaultError
from firstfault.investigation.diagnosis import Citation, CitationKind
from firstfault.ui.door import service
from firstfault.ui.marks import plain, render_markdown, split_fences
from firstfault.ui.words import name_category
from firstfault_tools.knowledge.page import Page

MOST_FOUND = 8
MOST_OFFERED = 3
MAX_SNIPPET = 160


_OPEN = "knowledge-open"


def open_knowledge(page: str = "") -> None:
    """Open the dialog; for callbacks. page: the one to begin with."""
    st.session_state[_OPEN] = page


def show_open_knowledge() -> None:
    """The dialog, while it is open: the page runs again when something arrives, and it must not close then."""
    if _OPEN in st.session_state:
        _read_knowledge(st.session_state[_OPEN])


def _close() -> None:
    st.session_state.pop(_OPEN, None)


@st.dialog("Knowledge base", width="large", on_dismiss=_close)
def _read_knowledge(page: str) -> None:
    """Search above, one page below. page: the one to begin with."""
    query = st.text_input(
        "Search the knowledge base",
        placeholder="an error message, an option, a symptom",
        icon=":material/search:",
        key="knowledge-query",
    )
    chosen = page
    if query.strip():
        chosen = _choose(query.strip()) or page
    if chosen:
        show_page(chosen)
    elif not query.strip():
        st.caption(
            f"{len(service().workspace.knowledge.pages)} pages, each with its public sources."
        )


def _choose(query: str) -> str:
    """The page to read out of those that were found; '' where none was."""
    try:
        with st.spinner("Searching"):
            found = service().search(query, MOST_FOUND)
    except FirstfaultError as error:
        st.error(plain(str(error)), icon=":material/error:")
        return ""
    pages = list(dict.fromkeys(f.page for f in found))
    if not pages:
        st.caption("Nothing found.")
        return ""
    titles = {f.page: f.title for f in found}
    picked = st.pills(
        "Pages found", pages, default=pages[0], format_func=lambda p: plain(titles.get(str(p), "")), key="knowledge-found"
    )  # fmt: skip
    return str(picked or pages[0])


def show_page(identity: str) -> None:
    """One page whole, its commands to be copied."""
    page = service().workspace.knowledge.pages.get(identity)
    if page is None:
        st.warning(f"There is no page {plain(identity)} any more.", icon=":material/search_off:")
        return
    st.html(
        f'<article class="ff"><h2 class="ff-name">{escape(page.title)}</h2>'
        f'<p class="ff-foot">{escape(name_category(page.category))}. Checked {escape(page.checked)}, '
        f"{escape(page.versions)}</p></article>"
    )
    for section in page.sections:
        if section.heading:
            st.html(f'<h3 class="ff ff-title">{escape(section.heading)}</h3>')
        for text, is_command in split_fences(_outdent(section.text)):
            if is_command:
                st.code(text, language=None, wrap_lines=True)
            else:
                st.html(f'<div class="ff ff-prose">{render_markdown(text, {})}</div>')
    _show_sources(page)


def _outdent(text: str) -> str:
    """Fences within list items stand at the margin, so that their commands can be copied."""
    out, fenced = [], False
    for line in text.split("\n"):
        bare = line.strip()
        if bare.startswith("```"):
            fenced = not fenced
            out.append(bare)
        else:
            out.append(line.removeprefix("  ") if fenced else line)
    return "\n".join(out)


def _show_sources(page: Page) -> None:
    links = [s for s in page.sources if s.startswith("https://")]
    if not links:
        return
    items = "".join(
        f'<li><a href="{escape(url, quote=True)}" target="_blank" rel="noopener noreferrer">{escape(url)}</a></li>'
        for url in links
    )
    st.html(f'<div class="ff ff-prose"><h3 class="ff-title">Sources</h3><ul>{items}</ul></div>')


def offer_pages(citations: Sequence[Citation], scope: str) -> None:
    """Buttons that open the cited pages whole, without leaving the incident."""
    pages = service().workspace.knowledge.pages
    cited = dict.fromkeys(
        c.page for c in citations if c.kind is CitationKind.PAGE and c.page in pages
    )
    with st.container(horizontal=True, gap="small", key=f"pages-{scope}"):
        for identity in list(cited)[:MOST_OFFERED]:
            if identity is not None:
                st.button(
                    f"Read the page: {plain(pages[identity].title)}",
                    icon=":material/menu_book:",
                    key=f"page-{scope}-{identity}",
                    type="tertiary",
                    on_click=open_knowledge,
                    args=(identity,),
                )
