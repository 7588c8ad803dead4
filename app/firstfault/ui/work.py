"""What is being read, how far is it, and how does a run that was stopped go on?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape

import streamlit as st

from firstfault.access import Role
from firstfault.errors import FirstfaultError
from firstfault.incidents.events import Event, EventKind, Progress, Received, VerdictReached
from firstfault.incidents.records import EvidenceFile, Incident, IncidentState
from firstfault.investigation.diagnosis import Diagnosis
from firstfault.investigation.headline import say_plainly
from firstfault.investigation.partial import say_unread
from firstfault.reading import count_things
from firstfault.ui.door import service
from firstfault.ui.marks import icon, plain
from firstfault.ui.visitor import may, require
from firstfault_tools.log.finished import Finished

MOST_NAMED = 3
STEPS = {"read": "Unpacking", "examine": "Reading", "scan": "Read"}


def show_work(
    incident: Incident, events: Sequence[Event], evidence: Sequence[EvidenceFile], readonly: bool
) -> None:
    """Files, bytes and what was found so far, with a way to stop; after a stop, the ways on."""
    now = _last_step(events)
    told = f"{STEPS[now.step]} {now.detail}" if now is not None else "Waiting for a worker"
    if incident.state is IncidentState.STOPPED:
        show_stopped(incident, events, readonly)
        return
    if incident.state.is_final:
        return
    names = ", ".join(e.name for e in evidence[:MOST_NAMED])
    more = f" and {len(evidence) - MOST_NAMED} more" if len(evidence) > MOST_NAMED else ""
    # not as a context, which would mark it as done when it is left
    work = st.status(plain(told), expanded=True, state="running")
    if now is not None and now.share is not None:
        work.progress(min(1.0, now.share), plain(now.pace))
    work.write(plain(f"{names}{more}, {say_bytes(sum(e.size for e in evidence))} in all"))
    if now is not None and now.step == "scan":
        found = "; ".join(now.found) or "nothing that is known as a fault"
        work.write(plain(f"Found so far: {found}"))
    if not readonly:
        offer_stop(incident.id)


def offer_stop(identity: str, what: str = "Stop") -> None:
    """The button that ends what is open."""
    if st.button(what, icon=":material/stop_circle:", key="stop", shortcut="Escape"):
        require(Role.INVESTIGATE)
        service().stop(identity)
        st.rerun()


def show_stopped(incident: Incident, events: Sequence[Event], readonly: bool) -> None:
    """How far a reading came before it was stopped, what is kept of it, and the two ways on."""
    now = _last_step(events)
    came = f" It had come this far: {now.detail}." if now is not None else ""
    kept = service().read_so_far(incident.id)
    st.warning(plain(f"Stopped.{came} {say_kept(kept)}"), icon=":material/stop_circle:")
    if readonly or not may(Role.INVESTIGATE):
        return
    with st.container(key="ways-on", horizontal=True, gap="small"):
        _offer_going_on(incident.id, kept)
        if st.button(
            "Diagnose what was read",
            icon=":material/troubleshoot:",
            key="diagnose-read",
            disabled=not kept.size,
            help="A verdict on what was read to an end. Its receipt names what is left out, and it never says that "
            "the run is healthy. The rest can be read afterwards."
            if kept.size
            else "There is nothing yet to rest a verdict on",
        ):
            _begin(service().diagnose_read, incident.id)


def is_reading_stopped(incident: Incident, events: Sequence[Event]) -> bool:
    """The last that happened is that a reading was stopped before its verdict."""
    last = [e for e in events if e.turn == incident.last_turn]
    received = next((e.body for e in last if isinstance(e.body, Received)), None)
    kinds = {e.kind for e in last}
    stopped = EventKind.STOPPED in kinds and EventKind.VERDICT not in kinds
    return stopped and received is not None and received.turn.is_read


def offer_rest(incident: Incident, diagnosis: Diagnosis) -> None:
    """Beside a verdict on a part: what it does not cover, and the way to read the rest."""
    with st.container(key="ways-on", horizontal=True, vertical_alignment="center", gap="small"):
        st.html(f'<p class="ff ff-note">{icon("pie_chart")} {escape(say_unread(diagnosis.input))}</p>', width="content")  # fmt: skip
        if may(Role.INVESTIGATE):
            _offer_going_on(incident.id, service().read_so_far(incident.id))


def say_kept(kept: Finished) -> str:
    """What a stop left, in a sentence for a person who has to choose how to go on."""
    if not kept.size:
        return "Nothing was read to an end yet: what was given is kept, and going on begins at its first line."
    files = f", {count_things(kept.files, 'log')} of it to the end" if kept.files else ""
    return (
        f"Kept are {say_bytes(kept.size)} ({kept.lines:,} lines){files}. Going on takes them as they were found and "
        "reads the rest; the piece that was being read is read again from its start."
    )


def _offer_going_on(identity: str, kept: Finished) -> None:
    told = (
        f"Reads all but the {say_bytes(kept.size)} that are kept; a file that has changed since is read again"
        if kept.size
        else "Reads from the first line"
    )
    if st.button("Go on", icon=":material/play_arrow:", key="go-on", type="primary", help=told):
        _begin(service().go_on, identity)


def _begin(start: Callable[[str], int], identity: str) -> None:
    try:
        require(Role.INVESTIGATE)
        start(identity)
    except FirstfaultError as error:
        st.error(plain(str(error)), icon=":material/error:")
        return
    st.rerun()


def _last_step(events: Sequence[Event]) -> Progress | None:
    steps = [e.body for e in events if isinstance(e.body, Progress) and e.body.step in STEPS]
    return steps[-1] if steps else None


def say_bytes(size: float) -> str:
    """`2.4 MB`, in powers of ten."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


def say_change(events: Sequence[Event], turn: int) -> str:
    """What a turn changed of the verdict before it; '' where it reached none or there was none."""
    verdicts = [(e.turn, e.body.diagnosis) for e in events if isinstance(e.body, VerdictReached)]
    now = [d for t, d in verdicts if t == turn]
    before = [d for t, d in verdicts if t < turn]
    return compare_verdicts(before[-1], now[-1]) if now and before else ""


def compare_verdicts(before: Diagnosis, now: Diagnosis) -> str:
    """The differences in words, or that there are none."""
    rows = (
        ("verdict", before.verdict.value, now.verdict.value),
        ("cause", say_plainly(before)[0], say_plainly(now)[0]),
        ("rank", before.first_failing_rank, now.first_failing_rank),
        ("host", before.host, now.host),
        ("certainty", before.confidence.value, now.confidence.value),
    )
    changed = [f"{name} was {_none(a)}, now {_none(b)}" for name, a, b in rows if a != b]
    return f"Changed: {'; '.join(changed)}." if changed else "The same verdict as before."


def _none(value: object) -> str:
    return "none" if value is None else str(value)
