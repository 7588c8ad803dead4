"""What can be done with an incident as a whole? Title, share link, report, archive, delete."""

from __future__ import annotations

import re
from collections.abc import Callable
from html import escape
from typing import Any

import streamlit as st

from firstfault.errors import FirstfaultError
from firstfault.incidents.records import Incident
from firstfault.ui.door import service
from firstfault.ui.navigation import Place, View, set_place

FORMATS = (
    ("md", "Markdown", "text/markdown", "article"),
    ("html", "HTML", "text/html", "html"),
    ("docx", "Word", "application/vnd.openxmlformats-officedocument.wordprocessingml.document", "description"),
    ("pdf", "PDF", "application/pdf", "picture_as_pdf"),
)  # fmt: skip
MAX_TITLE = 110
_FILE = re.compile(r"\S*(?: and \d+ more)?")


def name_incident(incident: Incident) -> str:
    """Title for lists: what has only file names for a title goes by its cause."""
    title = incident.title.strip()
    if incident.root_cause and all(_FILE.fullmatch(part) for part in title.split(", ")):
        title = incident.root_cause[:1].upper() + incident.root_cause[1:]
    return title[:MAX_TITLE] or "Untitled"


def show_header(incident: Incident) -> None:
    """Title and actions in one row."""
    with st.container(
        key="incident-header", horizontal=True, vertical_alignment="center", gap="small"
    ):
        st.html(f'<h1 class="ff ff-name">{escape(incident.title)}</h1>', width="stretch")
        _show_report(incident)
        _show_share(incident)
        _show_more(incident)


def _show_report(incident: Incident) -> None:
    export: Callable[..., Any] | None = getattr(service(), "export", None)
    if export is None or incident.verdict is None:
        return
    with st.popover("Post-mortem", icon=":material/assignment:"):
        st.caption("A draft from the evidence. What it cannot know stays visibly blank.")
        for suffix, name, mime, symbol in FORMATS:
            st.download_button(
                name,
                data=_writer(export, incident.id, suffix),
                file_name=f"postmortem-{incident.id[:8]}.{suffix}",
                mime=mime,
                icon=f":material/{symbol}:",
                key=f"report-{suffix}",
                on_click="ignore",
                width="stretch",
            )


def _writer(export: Callable[..., Any], identity: str, suffix: str) -> Callable[[], bytes]:
    """Makes the file when it is asked for, not at every run of the page."""

    def write() -> bytes:
        made = export(identity, suffix)
        return made.encode() if isinstance(made, str) else bytes(made)

    return write


def _show_share(incident: Incident) -> None:
    with st.popover("Share", icon=":material/ios_share:"):
        st.caption(
            "Whoever can reach this server and has the link can read this incident. "
            "They cannot ask, add, archive or delete, and the link does not lead to this address."
        )
        if incident.share is None:
            st.button(
                "Make a read-only link",
                key="share-make",
                type="primary",
                on_click=_share,
                args=(incident.id,),
            )
            return
        st.code(f"{_address()}/?share={incident.share}", language=None, wrap_lines=True)
        st.button(
            "Withdraw the link",
            key="share-withdraw",
            icon=":material/link_off:",
            on_click=service().withdraw_share,
            args=(incident.id,),
        )


def _address() -> str:
    return (st.context.url or "").split("?")[0].split("#")[0].rstrip("/")


def _show_more(incident: Incident) -> None:
    with st.popover("More", icon=":material/more_horiz:"):
        title = st.text_input("Title", incident.title, key=f"title-{incident.id}", max_chars=200)
        if title.strip() and title != incident.title and st.button("Rename", key="rename"):
            service().rename(incident.id, title)
            st.rerun()
        st.button(
            "Diagnose again",
            icon=":material/replay:",
            key="again",
            width="stretch",
            help="After an update of the knowledge base, a stop or a failure",
            on_click=_diagnose_again,
            args=(incident.id,),
        )
        st.button(
            "Back to the list" if incident.archived else "Archive",
            icon=":material/archive:",
            key="archive",
            width="stretch",
            on_click=service().archive,
            args=(incident.id, not incident.archived),
        )
        if st.checkbox("I want to delete this incident and its evidence", key="delete-sure"):
            st.button(
                "Delete for good",
                icon=":material/delete_forever:",
                key="delete",
                width="stretch",
                on_click=_delete,
                args=(incident.id,),
            )


def _share(identity: str) -> None:
    service().share(identity)


def _diagnose_again(identity: str) -> None:
    service().diagnose_again(identity)


def _delete(identity: str) -> None:
    try:
        service().delete(identity)
    except FirstfaultError as error:
        st.session_state["notice"] = str(error)
        return
    st.session_state["notice"] = "The incident and its evidence are deleted."
    set_place(Place(View.INBOX))
