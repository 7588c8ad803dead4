"""What does one incident show, and in which order? Receipt, phases, verdict, evidence, next, fixes."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import streamlit as st

from firstfault.errors import FirstfaultError
from firstfault.incidents.events import Event, Failed, PhaseReached, Progress, ReceiptWritten
from firstfault.incidents.events import EventKind as Kind
from firstfault.incidents.records import Incident
from firstfault.investigation.diagnosis import Diagnosis, Phase
from firstfault.ui.details import show_details
from firstfault.ui.door import service
from firstfault.ui.evidence import role_by_place, show_evidence
from firstfault.ui.fixes import show_fixes
from firstfault.ui.hypotheses import show_disproof, show_hypotheses
from firstfault.ui.next_step import show_next_step
from firstfault.ui.phases import write_phases
from firstfault.ui.receipt import show_receipt
from firstfault.ui.sources import show_sources
from firstfault.ui.verdict_card import write_verdict


def show_incident(incident: Incident, events: Sequence[Event]) -> None:
    """Everything of an incident above its conversation."""
    diagnosis = service().diagnosis(incident.id)
    running = not incident.state.is_final
    st.html(
        f'<h1 class="ff" style="font-size:1.05rem;font-weight:600">{escape(incident.title)}</h1>'
    )
    if diagnosis is None:
        _show_without_verdict(incident, events, running)
        return
    show_receipt(diagnosis.input)
    st.html(write_phases(diagnosis.phases))
    show_diagnosis(incident, diagnosis)


def show_diagnosis(incident: Incident, diagnosis: Diagnosis) -> None:
    """The answer, in the order a tired person needs it."""
    st.html(write_verdict(diagnosis))
    show_evidence(incident.id, diagnosis, incident.last_turn)
    show_next_step(diagnosis)
    show_fixes(diagnosis)
    show_disproof(diagnosis)
    show_hypotheses(diagnosis)
    show_sources(
        incident.id,
        diagnosis.citations,
        incident.last_turn,
        diagnosis.input.lines_total,
        role_by_place(diagnosis),
    )
    show_details(diagnosis)


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
    if running or diagnosing or phases:
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
