"""What does the browser show? Reads the address, draws one view. All work is done by workers."""

from __future__ import annotations

import streamlit as st

from firstfault.access import Role
from firstfault.errors import FirstfaultError, IncidentNotFound
from firstfault.ui.conversation import show_conversation
from firstfault.ui.door import service
from firstfault.ui.inbox import show_inbox
from firstfault.ui.incident_header import name_incident, offer_undo
from firstfault.ui.incident_view import show_incident
from firstfault.ui.knowledge import show_open_knowledge
from firstfault.ui.marks import plain
from firstfault.ui.navigation import Place, View, name_tab, read_place, set_place, tab_title
from firstfault.ui.share_view import show_shared
from firstfault.ui.sidebar import show_sidebar
from firstfault.ui.snapshot import read_snapshot
from firstfault.ui.theme import logo_file, style_sheet
from firstfault.ui.visitor import may, meet_visitor, show_sign_in
from firstfault.ui.what_if import show_what_if


def main() -> None:
    """Draw the page once."""
    place = read_place()
    st.set_page_config(
        page_title=tab_title(place), page_icon=str(logo_file()), layout="wide",
        initial_sidebar_state="auto",  # open beside the answer, never above it on a phone
    )  # fmt: skip
    st.html(style_sheet(st.context.theme.type or "light"))
    try:
        _admit(place)
        show_open_knowledge()
    except IncidentNotFound:
        st.warning(
            "There is no such incident: it was deleted, or the link is incomplete.",
            icon=":material/search_off:",
        )
        st.button("New incident", on_click=set_place, args=(Place(View.INBOX),), key="gone-new")
    except FirstfaultError as error:
        st.error(plain(str(error)), icon=":material/error:")


def _admit(place: Place) -> None:
    """Share links need no sign-in: their token is the permission, and they only read."""
    if place.view is View.SHARED:
        show_shared(place.id)
        return
    if meet_visitor() is None:
        show_sign_in()
        return
    show_sidebar(place)
    if notice := st.session_state.pop("notice", ""):
        st.toast(plain(notice))
    with st.container(key="notices"):
        offer_undo()
    _show(place)


def _show(place: Place) -> None:
    if place.view is View.INCIDENT:
        incident = service().incident(place.id)
        name_tab(place, name_incident(incident))
        snapshot = read_snapshot(incident)
        # each part stands in its own place: what grows above the box must not make a new box of it,
        # which would lose what a person is typing, and the focus
        with st.container(key="incident"):
            draw_figures = show_incident(snapshot)
        show_conversation(snapshot, readonly=not may(Role.INVESTIGATE))
        draw_figures()
    elif place.view is View.WHAT_IF:
        name_tab(place, "What if")
        show_what_if()
    elif may(Role.INVESTIGATE):
        show_inbox()
    else:
        st.info("Open an incident from the list.", icon=":material/visibility:")
