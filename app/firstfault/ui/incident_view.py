"""What does one incident show, and in which order? The card first; what supports it folds below."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from html import escape
from typing import TypeAlias

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from firstfault.access import Role
from firstfault.conversation.board import RULED_OUT
from firstfault.incidents.events import (
    AnswerPart,
    Event,
    Failed,
    PhaseReached,
    Progress,
    ReceiptWritten,
    RelatedFound,
    VerdictReached,
    WalkShown,
)
from firstfault.incidents.events import EventKind as Kind
from firstfault.incidents.records import Incident, IncidentState, TurnKind
from firstfault.investigation.diagnosis import Diagnosis, Phase
from firstfault.investigation.headline import capitalise, shorten_clause
from firstfault.investigation.next_action import Action, choose_next
from firstfault.investigation.partial import is_partial
from firstfault.ui.card import make_card
from firstfault.ui.conversation import show_opening
from firstfault.ui.details import show_details, show_events
from firstfault.ui.door import one_at_a_time, service
from firstfault.ui.evidence import role_by_place, show_evidence
from firstfault.ui.experiments import show_experiments
from firstfault.ui.feedback_form import show_feedback
from firstfault.ui.figures import show_curves, show_memory, show_timeline, tells_by_curve
from firstfault.ui.fixes import show_fixes
from firstfault.ui.folds import name_fold, say_evidence, say_rivals, say_timeline
from firstfault.ui.hypotheses import show_why
from firstfault.ui.incident_header import show_header, tell_again
from firstfault.ui.knowledge import offer_pages
from firstfault.ui.marks import icon, plain
from firstfault.ui.navigation import Place, View, set_place
from firstfault.ui.next_step import show_collecting
from firstfault.ui.phases import say_phases, write_opened, write_phases
from firstfault.ui.receipt import show_receipt, show_skipped
from firstfault.ui.snapshot import Snapshot
from firstfault.ui.sources import show_sources
from firstfault.ui.verdict_card import show_card
from firstfault.ui.visitor import may
from firstfault.ui.work import is_reading_stopped, offer_rest, show_work

MOST_RELATED = 3

Box: TypeAlias = DeltaGenerator
Rest = Callable[[], None]
"""Draws what reads whole logs, when all that is urgent is on the page."""


def show_incident(snapshot: Snapshot) -> Rest:
    """Everything of an incident above its conversation; the figures are drawn by what is returned."""
    incident = snapshot.incident
    show_header(incident, snapshot.diagnosis)
    tell_again(incident, snapshot.events)
    draw_figures = show_answer(snapshot)
    if incident.verdict is not None and incident.state.is_final and may(Role.INVESTIGATE):
        show_feedback(incident)
    return draw_figures


def show_answer(snapshot: Snapshot, readonly: bool = False) -> Rest:
    """The card, and folds for all that supports it; or how far the worker is."""
    incident, events, diagnosis = snapshot.incident, snapshot.events, snapshot.diagnosis
    # a room of its own, which is empty at once when there is a verdict: no Stop stands beside one
    room = st.empty()
    if diagnosis is None:
        with room.container():
            _show_without_verdict(snapshot, readonly)
        return lambda: None
    asked = next((t.text for t in service().turns(incident.id) if t.kind is TurnKind.REPORT), "")
    card = make_card(diagnosis, service().workspace.knowledge.pages, asked)
    # in a place of its own: the card below stays where it is when this comes or goes
    with st.container(key="left-out", gap="small"):
        show_skipped(diagnosis.input)
        waits = incident.state.is_final and not is_reading_stopped(incident, events)
        if is_partial(diagnosis.input) and waits and not readonly:
            offer_rest(incident, diagnosis)
    walk = _walk_now(events)
    if walk is not None and walk.ruled_out is not None:
        # what was ruled out is neither mended nor checked next
        ruled = [row.root_cause for row in walk.board if row.state == RULED_OUT]
        card = replace(
            card, action=choose_next(diagnosis, service().workspace.knowledge.pages, ruled)
        )
    show_card(diagnosis, card, walk.ruled_out if walk is not None else None)
    show_opening(snapshot)
    with one_at_a_time():
        beside, below = _show_folds(incident, events, diagnosis, card.action)

    def draw_figures() -> None:
        with one_at_a_time():
            _draw_figures(incident, diagnosis, beside, below)

    return draw_figures


def _draw_figures(incident: Incident, diagnosis: Diagnosis, beside: Box, below: Box) -> None:
    by_curve = tells_by_curve(diagnosis)
    with beside:
        if by_curve:
            show_curves(incident.id, diagnosis, incident.last_turn)
        show_memory(diagnosis)
    with below:
        linked = show_timeline(incident.id, diagnosis, incident.last_turn)
        show_events(diagnosis)
        if not (by_curve or linked):
            show_curves(incident.id, diagnosis, incident.last_turn)


def _show_folds(
    incident: Incident, events: Sequence[Event], diagnosis: Diagnosis, action: Action | None
) -> tuple[Box, Box]:
    """All that supports the card; where its figures are drawn: beside the evidence, and below the timeline."""
    _show_related(incident, events)
    walk = _walk_now(events)
    # what is folded stands close together, so that more of it is in sight
    with st.container(key="folds", gap="xsmall"):
        _show_phases(walk.phases if walk is not None else diagnosis.phases, diagnosis)
        with st.expander(
            name_fold("Evidence", say_evidence(diagnosis)), icon=":material/find_in_page:"
        ):
            show_evidence(incident.id, diagnosis, incident.last_turn)
            # figures read whole logs: their place is kept, and filled when all that is urgent is drawn
            beside = st.container(key="figures")
        with st.expander(
            name_fold("Timeline", say_timeline(diagnosis)), icon=":material/timeline:"
        ):
            below = st.container(key="more-figures")
        with st.expander(name_fold("Why", say_rivals(diagnosis)), icon=":material/psychology_alt:"):
            show_why(diagnosis)
        if diagnosis.fixes or diagnosis.next_artefacts:
            count = len(diagnosis.fixes)
            name = f"All fixes ({count})" if count else "What else to collect"
            with st.expander(name, icon=":material/build:"):
                show_fixes(diagnosis, action)
                show_collecting(diagnosis, action)
        show_experiments(incident, diagnosis)
        with st.expander(f"Sources ({len(diagnosis.citations)})", icon=":material/format_quote:"):
            _show_sources(incident, diagnosis)
        show_details(diagnosis)
    return beside, below


def _show_phases(phases: Sequence[Phase], diagnosis: Diagnosis) -> None:
    said = say_phases(phases).removeprefix("Phases: ")
    with st.expander(name_fold("Phases", said), icon=":material/checklist:"):
        st.html(write_opened(phases, diagnosis))


def _show_sources(incident: Incident, diagnosis: Diagnosis) -> None:
    show_sources(
        incident.id,
        diagnosis.citations,
        incident.last_turn,
        diagnosis.input.lines_total,
        role_by_place(diagnosis),
        title="",
    )
    offer_pages(diagnosis.citations, "main")


def _show_related(incident: Incident, events: Sequence[Event]) -> None:
    found = [e.body for e in events if isinstance(e.body, RelatedFound)]
    # an empty place, too: what is opened below must not close when a neighbour is found
    with st.container(key="related", horizontal=True, vertical_alignment="center", gap="small"):
        if not found:
            return
        st.html(
            f'<p class="ff ff-note">{icon("history")} {escape(found[-1].summary)}</p>',
            width="content",
        )
        for other in found[-1].incidents[:MOST_RELATED]:
            st.button(
                f"Open that of {datetime.fromtimestamp(other.created, UTC):%d %b, %H:%M}",
                help=plain(shorten_clause(capitalise(other.root_cause or other.title))),
                key=f"related-{other.id}",
                type="tertiary",
                icon=":material/arrow_forward:",
                on_click=set_place,
                args=(Place(View.INCIDENT, other.id),),
            )


def _walk_now(events: Sequence[Event]) -> WalkShown | None:
    """Where the conversation left it; None where it has not moved anything since the verdict."""
    for event in reversed(events):
        if isinstance(event.body, VerdictReached):
            return None
        if isinstance(event.body, AnswerPart) and event.body.walk is not None:
            return event.body.walk
    return None


def _show_without_verdict(snapshot: Snapshot, readonly: bool) -> None:
    incident, events, evidence = snapshot.incident, snapshot.events, snapshot.evidence
    running = not incident.state.is_final
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
    stopped = incident.state is IncidentState.STOPPED
    if evidence and (phases or running or diagnosing or stopped):
        if running:
            st.html(write_phases(phases, running))
        show_work(incident, events, evidence, readonly)
    for event in events:
        if event.kind is Kind.ERROR and isinstance(event.body, Failed):
            st.error(plain(event.body.message), icon=":material/report:")
