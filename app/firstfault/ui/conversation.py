"""What was asked and answered after the verdict? Turns, the box for more, and following along."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import streamlit as st

from firstfault.access import Role
from firstfault.conversation.incident import suggest
from firstfault.conversation.what_if import link_what_if
from firstfault.errors import FirstfaultError
from firstfault.incidents.events import (
    AnswerPart,
    Event,
    EventKind,
    Failed,
    Progress,
    Received,
)
from firstfault.incidents.records import Incident, TurnKind
from firstfault.ui.door import next_key, service, spend_key
from firstfault.ui.inbox import read_inputs
from firstfault.ui.knowledge import offer_pages
from firstfault.ui.marks import icon, plain, render_markdown, split_fences
from firstfault.ui.snapshot import Snapshot
from firstfault.ui.sources import show_sources
from firstfault.ui.visitor import may, require
from firstfault.ui.walk import show_walk
from firstfault.ui.work import STEPS, is_reading_stopped, offer_stop, say_change, show_stopped

FAST, SLOW = 0.4, 4.0
MAX_CHIPS = 4
APPROVALS = ("/approve", "approve")


def show_conversation(snapshot: Snapshot, readonly: bool = False) -> None:
    """Turns after the first, and the box."""
    incident, events = snapshot.incident, snapshot.events
    with st.container(key="turns"):
        for number in range(1, incident.last_turn + 1):
            if number > 1 or (_has_answer(events) and snapshot.diagnosis is None):
                _show_turn(snapshot, number)
        # where there is no verdict yet, above the turns
        if is_reading_stopped(incident, events) and snapshot.diagnosis:
            show_stopped(incident, events, readonly)
    if not readonly:
        _show_box(snapshot)
    # after the box: a page that runs again because a worker wrote something must have taken what was sent
    watch(incident.id, incident.last_event, FAST if not incident.state.is_final else SLOW)


def show_opening(snapshot: Snapshot) -> None:
    """Directly under the card: the question that came with the evidence, with its answer."""
    with st.container(key="opening"):
        if _has_answer(snapshot.events):
            _show_turn(snapshot, 1)


def _has_answer(events: Sequence[Event]) -> bool:
    """The first message had a question of its own, and it is answered."""
    return any(e.turn == 1 and e.kind is EventKind.ANSWER for e in events)


def _show_box(snapshot: Snapshot) -> None:
    incident = snapshot.incident
    with st.container(key="ask", gap="small"):
        with st.container(key="beside-box", gap="small"):
            if incident.state.is_final:
                _show_choices(incident, snapshot.events)
                _show_suggestions(snapshot)
            elif what := _name_stop(snapshot):
                offer_stop(incident.id, what)
        given = st.chat_input(
            "Ask, or add more evidence   ( / )",
            accept_file="multiple",
            key="follow-up",
        )
    _listen_for_slash()
    if given is not None:
        _take(incident.id, given)


def _name_stop(snapshot: Snapshot) -> str:
    """What can still be stopped here; '' where nothing can, or where the work itself shows the button."""
    if snapshot.is_read:
        return ""
    events = snapshot.events
    closed = {e.turn for e in events if e.is_closing}
    judged = {e.turn for e in events if e.kind is EventKind.VERDICT}
    if any(t not in closed | judged for t in range(1, snapshot.incident.last_turn + 1)):
        return "Stop"
    # the verdict stands; a model may still have something to say about it
    return "Stop the model" if service().answerer.explains else ""


def _listen_for_slash() -> None:
    """`/` puts the cursor into the box, unless somebody is typing. Nothing from outside is in the script."""
    st.html(
        """<script>
        if (!window.firstfaultSlash) {
          window.firstfaultSlash = true;
          document.addEventListener('keydown', event => {
            const at = document.activeElement;
            if (event.key !== '/' || event.ctrlKey || event.metaKey || event.altKey) return;
            if (at && (/^(INPUT|TEXTAREA|SELECT)$/.test(at.tagName) || at.isContentEditable)) return;
            const box = document.querySelector('[data-testid="stChatInputTextArea"]');
            if (box) { event.preventDefault(); box.focus(); }
          });
        }
        </script>""",
        unsafe_allow_javascript=True,
    )


def watch(identity: str, seen: int, every: float) -> None:
    """Run the page again when somebody, or a worker, has added to the incident."""

    @st.fragment(run_every=every)
    def look() -> None:
        try:
            now = service().incident(identity).last_event
        except FirstfaultError:
            return
        if now != seen:
            st.rerun()

    look()


def _take(identity: str, given: object) -> None:
    text = getattr(given, "text", "") or ""
    if text.strip().lower() in APPROVALS:
        _say(identity, text.strip(), Role.APPROVE)
        return
    new = read_inputs(text, getattr(given, "files", ()))
    purpose = f"turn-{identity}"
    try:
        require(Role.INVESTIGATE)
        if new.inputs:
            said = f"{new.inputs!r} {new.question}"
            service().add_evidence(identity, new.inputs, new.question, key=next_key(purpose, said))
        else:
            turn = service().ask(identity, new.question, key=next_key(purpose, new.question))
            st.session_state["jump"] = f"turn-{turn}"
    except FirstfaultError as error:
        st.error(plain(str(error)), icon=":material/error:")
        return
    spend_key(purpose)
    st.rerun()


def _say(identity: str, word: str, needed: Role) -> None:
    """Say a fixed word for the person, as typing it would."""
    purpose = f"turn-{identity}"
    try:
        require(needed)
        turn = service().ask(identity, word, key=next_key(purpose, word))
    except FirstfaultError as error:
        st.error(plain(str(error)), icon=":material/error:")
        return
    st.session_state["jump"] = f"turn-{turn}"
    spend_key(purpose)
    st.rerun()


def _show_choices(incident: Incident, events: Sequence[Event]) -> None:
    """Buttons where a model waits for a person: to be sent something, or to run a probe."""
    last = [e.body for e in events if e.turn == incident.last_turn]
    steps = {b.step for b in last if isinstance(b, Progress)}
    asked = next((b.text for b in last if isinstance(b, Received)), "").strip().lower()
    with st.container(horizontal=True, gap="small", key="choices"):
        if "consent" in steps or asked == "/preview":
            if asked != "/preview" and st.button(
                "See what would be sent", icon=":material/visibility:", key="preview"
            ):
                _say(incident.id, "/preview", Role.INVESTIGATE)
            if st.button("Send it to the model", icon=":material/send:", key="send"):
                _say(incident.id, "/send", Role.INVESTIGATE)
        if "approval" in steps:
            if may(Role.APPROVE) and st.button(
                "Run the probe", icon=":material/play_arrow:", key="approve", type="primary"
            ):
                _say(incident.id, "/approve", Role.APPROVE)
            if st.button("Go on without it", icon=":material/close:", key="reject"):
                _say(incident.id, "/reject", Role.INVESTIGATE)


def _show_suggestions(snapshot: Snapshot) -> None:
    """The open question with its answers, or else questions that can be asked next, as buttons."""
    question, chips = _choose_chips(snapshot)
    with st.container(key="asks"):
        if question:
            st.html(f'<p class="ff ff-foot">{icon("help")} {escape(question)}</p>')
    with st.container(horizontal=True, gap="small", key="suggestions"):
        for number, text in enumerate(chips):
            if st.button(text, key=f"chip-{snapshot.incident.last_turn}-{number}"):
                _say(snapshot.incident.id, text, Role.INVESTIGATE)


def _choose_chips(snapshot: Snapshot) -> tuple[str, tuple[str, ...]]:
    """The question that the buttons answer, '' where they are questions themselves, and the buttons.

    A person who has only just read the verdict asks; who talks with the page is asked.
    """
    diagnosis, turns = snapshot.diagnosis, snapshot.incident.last_turn
    parts = [e.body for e in snapshot.events if isinstance(e.body, AnswerPart)]
    walk = parts[-1].walk if parts else None
    told = diagnosis is None or (bool(parts) and parts[-1].kind.startswith("walk."))
    if told and walk is not None and walk.question and walk.options and turns > 1:
        return walk.question, walk.options
    if diagnosis is not None and turns == 1:
        return "", suggest(diagnosis, "")
    return "", parts[-1].suggestions[:MAX_CHIPS] if parts else ()


def _show_turn(snapshot: Snapshot, number: int) -> None:
    events = [e for e in snapshot.events if e.turn == number]
    received = next((e.body for e in events if isinstance(e.body, Received)), None)
    if received is not None:
        st.html(_write_received(received, number, say_change(snapshot.events, number)))
    parts = [e.body for e in events if isinstance(e.body, AnswerPart)]
    last = max((p.attempt for p in parts), default=1)
    for index, part in enumerate(p for p in parts if p.attempt == last):
        _show_part(snapshot, part, f"t{number}p{index}", number == snapshot.incident.last_turn)
    for event in events:
        _show_notice(event)
    _jump_to(number)
    if not any(e.is_closing for e in events):
        _show_working(snapshot, events)
    elif st.session_state.get("jump") == f"turn-{number}":
        del st.session_state["jump"]


def _show_notice(event: Event) -> None:
    """A failure, or what the model says of itself and of its cost."""
    if isinstance(event.body, Failed):
        st.error(plain(event.body.message), icon=":material/report:")
    elif isinstance(event.body, Progress) and event.body.step in ("model", "cost"):
        st.html(f'<p class="ff ff-foot">{icon("smart_toy")} {escape(event.body.detail)}</p>')


def _show_working(snapshot: Snapshot, events: Sequence[Event]) -> None:
    """What a turn that is not answered yet is at."""
    steps = [e.body for e in events if isinstance(e.body, Progress)]
    if not steps:
        if events:
            st.caption("Waiting for a worker")
        return
    last = steps[-1]
    if last.step in STEPS and snapshot.diagnosis is None:
        return  # told above, with how far it is
    st.caption(plain(f"Working: {last.detail or last.step}"))


def _jump_to(turn: int) -> None:
    """Bring a turn that was just asked, or just answered, into view. Once."""
    if st.session_state.get("jump") != f"turn-{turn}":
        return
    # the id is a number of ours; nothing that a person or a log wrote is in the script
    st.html(
        f"<script>document.getElementById('turn-{turn:d}')?.scrollIntoView({{block: 'start'}})</script>",
        unsafe_allow_javascript=True,
    )


def _write_received(received: Received, number: int, change: str) -> str:
    names = ", ".join(escape(i.name) for i in received.inputs[:5])
    told = {
        TurnKind.REPORT: "",
        TurnKind.QUESTION: "",
        TurnKind.EVIDENCE: f"added {names}; everything above was read again together",
        TurnKind.AGAIN: "asked for the diagnosis once more",
        TurnKind.GO_ON: "had the reading go on from where it was stopped",
        TurnKind.READ: "asked for a verdict on what was read so far",
    }[received.turn]
    text = escape(received.text)
    changed = (
        f'<p class="ff-change">{icon("compare_arrows")} {escape(change)}</p>' if change else ""
    )
    return f'<div class="ff ff-turn" id="turn-{number}">{text}<small>{told}</small>{changed}</div>'


def _show_part(snapshot: Snapshot, part: AnswerPart, scope: str, latest: bool) -> None:
    incident = snapshot.incident
    citations = {c.n: c for c in part.citations}
    if part.source == "model":
        st.html(
            f'<p class="ff ff-foot">{icon("fact_check")} Worded by a model, checked against the evidence</p>'
        )
    for text, is_command in split_fences(part.text):
        if is_command:
            st.code(text, language=None, wrap_lines=True)
        else:
            st.html(
                f'<div class="ff ff-prose ff-answer">{render_markdown(text, citations, scope)}</div>'
            )
    if link := link_what_if(part.tool):
        st.link_button(
            "Open in What if",
            link,
            help="The same calculation with settings to change, in a new tab",
            key=f"what-if-{scope}",
            icon=":material/calculate:",
        )
    under_card = scope.startswith("t1p") and snapshot.diagnosis is not None
    if part.walk is not None and not under_card:
        show_walk(part.walk, latest)
    if part.citations:
        many = len(part.citations)
        with st.expander(f"{many} source{'s' if many > 1 else ''}", icon=":material/format_quote:"):
            show_sources(incident.id, part.citations, incident.last_turn, scope=scope, title="")
            offer_pages(part.citations, scope)
