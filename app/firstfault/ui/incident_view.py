"""What does one incident show, and in which order? Receipt, phases, verdict, evidence, next, fixes."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import streamlit as st

from firstfault.access import Role
from firstfault.errors import FirstfaultError
from firstfault.incidents.events import (
    Event,
    Failed,
    PhaseReached,
    Progress,
    ReceiptWritten,
    RelatedFound,
)
from firstfault.incidents.events import EventKind as Kind
from firstfault.incidents.records import Incident
from firstfault.investigation.diagnosis import Phase
from firstfault.ui.details import show_details
from firstfault.ui.door import service
from firstfault.ui.evidence import role_by_place, show_evidence
from firstfault.ui.feedback_form import show_feedback
from firstfault.ui.figures import show_curves, show_lanes, show_memory, tells_by_curve
from firstfault.ui.fixes import show_fixes
from firstfault.ui.hypotheses import show_disproof, show_hypotheses
from firstfault.ui.incident_header import show_header
from firstfault.ui.marks import icon
from firstfault.ui.next_step import show_next_step
from firstfault.ui.phases import write_phases
from firstfault.ui.receipt import show_receipt
from firstfault.ui.sources import show_sources
from firstfault.ui.verdict_card import write_verdict
from firstfault.ui.visitor import may


def show_incident(incident: Incident, events: Sequence[Event]) -> None:
    """Everything of an incident above its conversation."""
    show_header(incident)
    show_answer(incident, events)
    if incident.verdict is not None and incident.state.is_final and may(Role.INVESTIGATE):
        show_feedback(incident)


def show_answer(incident: Incident, events: Sequence[Event]) -> None:
    """Receipt, phases and verdict, or how far the worker is."""
    diagnosis = service().diagnosis(incident.id)
    if diagnosis is None:
        _show_without_verdict(incident, events, not incident.state.is_final)
        return
    show_receipt(diagnosis.input)
    st.html(write_phases(diagnosis.phases))
    st.html(write_verdict(diagnosis))
    _show_related(incident, events)
    show_evidence(incident.id, diagnosis, incident.last_turn)
    # figures read whole logs: their place is kept, and filled when all that is urgent is drawn
    above = st.container(key="figures")
    show_next_step(diagnosis)
    show_fixes(diagnosis)
    show_disproof(diagnosis)
    show_hypotheses(diagnosis)
    below = st.container(key="more-figures")
    show_sources(
        incident.id,
        diagnosis.citations,
        incident.last_turn,
        diagnosis.input.lines_total,
        role_by_place(diagnosis),
    )
    show_details(diagnosis)
    with above if tells_by_curve(diagnosis) else below:
        show_curves(incident.id, diagnosis, incident.last_turn)
    with above:
        show_lanes(incident.id, diagnosis, incident.last_turn)
        show_memory(diagnosis)


def _show_related(incident: Incident, events: Sequence[Event]) -> None:
    found = [e.body for e in events if isinstance(e.body, RelatedFound)]
    if not found:
        return
    with st.container(key="related"):
        st.html(f'<p class="ff ff-note">{icon("history")} {escape(found[-1].summary)}</p>')


def _show_without_verdict(incident: Incident, events: Sequence[Event], running: bool) -> None:
    receipt = next((e.body for e in reversed(events) if isinstance(e.body, ReceiptWritten)), None)
    if receipt is not None:
        show_receipt(receipt.receipt)
    phases = [
        Phase(e.body.phase, e.body.status, e.body.summary)
        for e in events
        if isinstance(e.body, PhaseReached)
    ]
    diagnosing = any(isinstance(e.body, Progress) and e.body.step != "answer" for e in events)
    # a question without evidence is answered, not diagnosed
    if phases or ((running or diagnosing) and service().evidence(incident.id)):
        st.html(write_phases(phases, running))
    for event in events:
        if event.kind is Kind.ERROR and isinstance(event.body, Failed):
            st.error(event.body.message, icon=":material/report:")


def read_incident_events(identity: str) -> tuple[Event, ...]:
    """All events; empty where the incident is gone."""
    try:
        return service().events(identity)
    except FirstfaultError:
        return ()
