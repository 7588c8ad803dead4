"""Which incidents are there? Search, open, archive, delete; and the way to the other page."""

from __future__ import annotations

import re
from collections import Counter
from datetime import UTC, datetime

import streamlit as st

from firstfault.incidents.records import Incident
from firstfault.ui.door import service
from firstfault.ui.incident_header import name_incident
from firstfault.ui.navigation import Place, View, set_place
from firstfault.ui.theme import write_brand
from firstfault.ui.visitor import show_visitor
from firstfault.ui.words import STATES, VERDICTS

MAX_LISTED = 60


def show_sidebar(place: Place) -> None:
    """The list beside every page."""
    with st.sidebar:
        st.html(write_brand())
        st.button(
            "New incident",
            icon=":material/add:",
            key="new",
            width="stretch",
            type="primary" if place.view is View.INBOX else "secondary",
            on_click=set_place,
            args=(Place(View.INBOX),),
        )
        st.button(
            "What if",
            icon=":material/tune:",
            key="what-if-link",
            width="stretch",
            on_click=set_place,
            args=(Place(View.WHAT_IF),),
        )
        query = st.text_input(
            "Search incidents",
            placeholder="Search incidents",
            label_visibility="collapsed",
            icon=":material/search:",
            key="search",
        )
        archived = st.toggle("Archived", key="archived")
        found = service().incidents(query, archived, MAX_LISTED)
        if not found:
            st.caption("Nothing found." if query else "No incidents yet.")
        names = Counter(name_incident(incident) for incident in found)
        for incident in found:
            name = name_incident(incident)
            if names[name] > 1:
                name = f"{_say_opened(incident)} {name}"
            _show_row(incident, name, incident.id == place.id)
        show_visitor()


def _say_opened(incident: Incident) -> str:
    """When, as short as it tells incidents of one name apart."""
    opened, now = datetime.fromtimestamp(incident.created, UTC), datetime.now(UTC)
    return f"{opened:%H:%M}" if opened.date() == now.date() else f"{opened:%d %b %H:%M}"


def _show_row(incident: Incident, name: str, current: bool) -> None:
    look = VERDICTS[incident.verdict] if incident.verdict else STATES[incident.state]
    st.button(
        _plain(name),
        icon=f":material/{look.icon}:",
        key=f"open-{'current-' if current else ''}{incident.id}",
        help=f"{look.word}, opened {datetime.fromtimestamp(incident.created, UTC):%d %B %Y %H:%M} UTC. "
        f"{incident.root_cause or ''}"[:300],
        width="stretch",
        on_click=set_place,
        args=(Place(View.INCIDENT, incident.id),),
    )


def _plain(text: str) -> str:
    """Text that a label shows as it is: labels read Markdown."""
    return re.sub(r"([\\`*_\[\]$:<>~#|])", r"\\\1", text)
