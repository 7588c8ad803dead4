"""What can be done with an incident as a whole? Title, share link, report, archive, delete."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from textwrap import shorten

import streamlit as st

from firstfault.access import Role
from firstfault.errors import FirstfaultError
from firstfault.incidents.events import Event
from firstfault.incidents.records import Incident
from firstfault.investigation.diagnosis import Diagnosis
from firstfault.investigation.headline import capitalise, say_plainly, shorten_clause
from firstfault.ui.door import service
from firstfault.ui.marks import plain
from firstfault.ui.navigation import Place, View, set_place
from firstfault.ui.receipt import write_receipt
from firstfault.ui.report_menu import show_report_menu
from firstfault.ui.visitor import may, require
from firstfault.ui.work import say_change
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Verdict

MAX_TITLE = 110
MENUS = "menus-done"
AGAIN = "again-asked"
"""Of the session: how many menus did what they were asked, and the turn of a diagnosis that was asked for again."""
AS_SAID = 60
"""Characters by which a title and the card's sentence are the same."""

_FILE = expression(r"\S*(?: and \d+ more)?")


def name_incident(incident: Incident) -> str:
    """The fault as a title, on the page and in lists; a person's own title where there is one."""
    title = incident.title.strip()
    cause = (incident.root_cause or "").removeprefix("Not decided: ")
    is_file = all(_FILE.fullmatch(part) for part in title.split(", "))
    if cause and (is_file or title[:32].lower() == (incident.root_cause or "")[:32].lower()):
        return capitalise(shorten_clause(cause, MAX_TITLE))
    return shorten(title, MAX_TITLE, placeholder=" …") if title else "Untitled"


def write_title(incident: Incident, diagnosis: Diagnosis | None) -> str:
    """Title and what was read, as HTML. The card says the fault: a title that is the same is not shown twice."""
    name = name_incident(incident)
    said = diagnosis is not None and name[:AS_SAID] == say_plainly(diagnosis)[0][:AS_SAID]
    title = f'<h1 class="ff ff-name{" ff-hidden" if said else ""}">{escape(name)}</h1>'
    return title + (write_receipt(diagnosis.input) if diagnosis is not None else "")


def show_header(incident: Incident, diagnosis: Diagnosis | None) -> None:
    """Title, what was read, and actions in one row."""
    with st.container(
        key="incident-header", horizontal=True, vertical_alignment="center", gap="small"
    ):
        st.html(write_title(incident, diagnosis), width="stretch")
        # its place is kept before there is a verdict: a menu beside it must not close when one arrives
        with st.container(key="report-place", width="content"):
            if incident.verdict not in (None, Verdict.HEALTHY):
                show_report_menu(incident)
        if may(Role.INVESTIGATE):
            _show_share(incident)
            _show_more(incident)


def _show_share(incident: Incident) -> None:
    with st.popover("Share", icon=":material/ios_share:", key="share"):
        st.caption(
            "Whoever can reach this server and has the link can read this incident. "
            "They cannot ask, add, archive or delete, and the link does not lead to this address."
        )
        if incident.share is None:
            st.button(
                "Make a read-only link",
                key="share-make",
                type="primary",
                on_click=_share,
                args=(incident.id,),
            )
            return
        st.code(f"{_address()}/?share={incident.share}", language=None, wrap_lines=True)
        st.button(
            "Withdraw the link",
            key="share-withdraw",
            icon=":material/link_off:",
            on_click=_withdraw,
            args=(incident.id,),
        )


def _address() -> str:
    return (st.context.url or "").split("?")[0].split("#")[0].rstrip("/")


def _show_more(incident: Incident) -> None:
    # another key is another menu, which is closed: it has done what was asked of it
    done = st.session_state.get(MENUS, 0)
    with st.popover("More", icon=":material/more_horiz:", key=f"more-{done}"):
        title = st.text_input("Title", incident.title, key=f"title-{incident.id}", max_chars=200)
        if title.strip() and title != incident.title and st.button("Rename", key="rename"):
            require(Role.INVESTIGATE)
            service().rename(incident.id, title)
            st.rerun()
        st.button(
            "Diagnose again",
            icon=":material/replay:",
            key="again",
            width="stretch",
            help="After an update of the knowledge base, a stop or a failure",
            on_click=_diagnose_again,
            args=(incident.id,),
        )
        st.button(
            "Back to the list" if incident.archived else "Archive",
            icon=":material/archive:",
            key="archive",
            width="stretch",
            on_click=_archive,
            args=(incident.id, not incident.archived),
        )
        if may(Role.APPROVE) and st.checkbox(
            "I want to delete this incident and its evidence", key="delete-sure"
        ):
            st.button(
                "Delete for good",
                icon=":material/delete_forever:",
                key="delete",
                width="stretch",
                type="primary",
                on_click=_delete,
                args=(incident.id,),
            )


def _share(identity: str) -> None:
    require(Role.INVESTIGATE)
    service().share(identity)


def _withdraw(identity: str) -> None:
    require(Role.INVESTIGATE)
    service().withdraw_share(identity)


def _close_menu() -> None:
    st.session_state[MENUS] = st.session_state.get(MENUS, 0) + 1


def _archive(identity: str, archived: bool) -> None:
    require(Role.INVESTIGATE)
    _close_menu()
    service().archive(identity, archived)
    if archived:
        st.session_state["undo"] = identity
    else:
        st.session_state["notice"] = "The incident is back in the list."


def offer_undo() -> None:
    """After archiving: that it happened, and a way back."""
    identity = st.session_state.get("undo", "")
    if not identity:
        return
    with st.container(key="undo", horizontal=True, vertical_alignment="center", gap="small"):
        st.caption("Archived: the incident has left the list.")
        if st.button("Undo", icon=":material/undo:", key="archive-undo", type="tertiary"):
            del st.session_state["undo"]
            _archive(identity, False)
            st.rerun()


def _diagnose_again(identity: str) -> None:
    require(Role.INVESTIGATE)
    st.session_state[AGAIN] = (identity, service().diagnose_again(identity))
    _close_menu()
    st.session_state["notice"] = "Everything is read again."


def tell_again(incident: Incident, events: Sequence[Event]) -> None:
    """When a diagnosis that was asked for again is there: whether it is another one, where it is seen."""
    identity, turn = st.session_state.get(AGAIN, ("", 0))
    if identity != incident.id or not any(e.turn == turn and e.is_closing for e in events):
        return
    del st.session_state[AGAIN]
    if change := say_change(events, turn):
        st.toast(plain(change), icon=":material/compare_arrows:", duration="long")


def _delete(identity: str) -> None:
    try:
        require(Role.APPROVE)
        service().delete(identity)
    except FirstfaultError as error:
        st.session_state["notice"] = str(error)
        return
    st.session_state["notice"] = "The incident and its evidence are deleted."
    set_place(Place(View.INBOX))
