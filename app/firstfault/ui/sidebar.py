"""Which incidents are there? Search, open, archive, delete; and the way to the other page."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import streamlit as st

from firstfault.incidents.records import Incident, IncidentState
from firstfault.investigation.headline import RULED_OUT
from firstfault.ui.door import service
from firstfault.ui.incident_header import name_incident
from firstfault.ui.knowledge import open_knowledge
from firstfault.ui.marks import plain
from firstfault.ui.model_dialog import show_model_button
from firstfault.ui.navigation import Place, View, set_place
from firstfault.ui.theme import write_brand
from firstfault.ui.visitor import show_visitor
from firstfault.ui.words import VERDICTS, Look

MAX_LISTED = 60
STATES = {
    IncidentState.QUEUED: Look("schedule", "Waiting", "plain"),
    IncidentState.RUNNING: Look("progress_activity", "Reading", "plain"),
    IncidentState.DONE: Look("chat", "Answered", "plain"),
    IncidentState.FAILED: Look("report", "Could not analyse", "warn"),
    IncidentState.STOPPED: Look("stop_circle", "Stopped", "plain"),
}

RULED = Look("rule", "Ruled out by a check", "unknown")


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
            type="primary" if place.view is View.WHAT_IF else "secondary",
            on_click=set_place,
            args=(Place(View.WHAT_IF),),
        )
        st.button(
            "Knowledge",
            icon=":material/menu_book:",
            key="knowledge-link",
            width="stretch",
            on_click=open_knowledge,
        )
        show_model_button()
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
        _show_list(found, place)
        show_visitor()


def _show_list(found: Sequence[Incident], place: Place) -> None:
    """Incidents by day, questions without evidence apart below them."""
    asked = [i for i in found if i.verdict is None and i.state is IncidentState.DONE]
    groups = [(_say_day(i), i) for i in found if i not in asked]
    groups += [("Questions", i) for i in asked]
    last = ""
    for group, incident in groups:
        if group != last:
            st.html(f'<p class="ff ff-day">{group}</p>')
            last = group
        _show_row(incident, incident.id == place.id)


def _say_day(incident: Incident) -> str:
    """Today, Yesterday, or the date (UTC)."""
    day, today = datetime.fromtimestamp(incident.created, UTC).date(), datetime.now(UTC).date()
    ago = (today - day).days
    return {0: "Today", 1: "Yesterday"}.get(ago, f"{day:%d %B %Y}")


def _say_opened(incident: Incident) -> str:
    """When on its day (UTC): it stands at the end of the row, and tells incidents of one name apart."""
    return f"{datetime.fromtimestamp(incident.created, UTC):%H:%M}"


def _look_of(incident: Incident) -> Look:
    """Icon, word and tone of how an incident stands."""
    if incident.verdict is None:
        return STATES[incident.state]
    return RULED if incident.title.startswith(RULED_OUT) else VERDICTS[incident.verdict]


def _show_row(incident: Incident, current: bool) -> None:
    look = _look_of(incident)
    st.button(
        f"**{plain(name_incident(incident))}** *{_say_opened(incident)}*",
        icon=f":material/{look.icon}:",
        key=f"open-{'current-' if current else ''}{look.tone}-{incident.id}",
        help=f"{look.word}, opened {datetime.fromtimestamp(incident.created, UTC):%d %B %Y %H:%M} UTC. "
        f"{plain((incident.root_cause or '')[:240])}",
        width="stretch",
        on_click=set_place,
        args=(Place(View.INCIDENT, incident.id),),
    )
