"""What is being read, how far is it, and how does a run that was stopped go on?"""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from firstfault.access import Role
from firstfault.errors import FirstfaultError
from firstfault.incidents.events import Event, Progress, VerdictReached
from firstfault.incidents.records import EvidenceFile, Incident, IncidentState
from firstfault.investigation.diagnosis import Diagnosis
from firstfault.investigation.headline import say_plainly
from firstfault.ui.door import service
from firstfault.ui.marks import plain
from firstfault.ui.visitor import may, require

MOST_NAMED = 3
STEPS = {"read": "Unpacking", "examine": "Reading", "scan": "Read"}


def show_work(
    incident: Incident, events: Sequence[Event], evidence: Sequence[EvidenceFile]
) -> None:
    """Files, bytes and what was found so far; after a stop, the way on."""
    steps = [e.body for e in events if isinstance(e.body, Progress) and e.body.step in STEPS]
    now = steps[-1] if steps else None
    told = f"{STEPS[now.step]} {now.detail}" if now is not None else "Waiting for a worker"
    if incident.state is IncidentState.STOPPED:
        so_far = f" It had come this far: {now.detail}." if now is not None else ""
        told = f"Stopped.{so_far} The input is kept; reading it again begins at its first line."
        st.warning(plain(told), icon=":material/stop_circle:")
        if may(Role.INVESTIGATE) and st.button(
            "Read it again from the start",
            icon=":material/play_arrow:",
            key="go-on",
            type="primary",
        ):
            _go_on(incident.id)
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


def _go_on(identity: str) -> None:
    require(Role.INVESTIGATE)
    try:
        service().diagnose_again(identity)
    except FirstfaultError as error:
        st.error(plain(str(error)), icon=":material/error:")
        return
    st.rerun()


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
