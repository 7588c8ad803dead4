"""What does somebody with a share link see? The answer, and nothing that changes it."""

from __future__ import annotations

import streamlit as st

from firstfault.ui.conversation import show_conversation
from firstfault.ui.door import service
from firstfault.ui.incident_header import name_incident, write_title
from firstfault.ui.incident_view import show_answer
from firstfault.ui.navigation import Place, View, name_tab
from firstfault.ui.snapshot import read_snapshot
from firstfault.ui.theme import write_brand


def show_shared(token: str) -> None:
    """The read-only view."""
    incident = service().shared(token)
    name_tab(Place(View.SHARED, token), name_incident(incident))
    snapshot = read_snapshot(incident)
    st.html(write_brand())
    st.html(
        write_title(incident, snapshot.diagnosis)
        + '<p class="ff ff-muted">Read-only link. Whoever has it can read this incident.</p>'
    )
    show_answer(snapshot, readonly=True)()
    show_conversation(snapshot, readonly=True)
