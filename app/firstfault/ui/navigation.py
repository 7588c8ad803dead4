"""Where am I, and how does one get elsewhere? The address holds an incident's id, or a view.

`?incident=ID`, `?share=TOKEN` (reads only) or `?view=what-if`; nothing of a log is ever in it.
"""

from __future__ import annotations

from enum import StrEnum

import streamlit as st

from firstfault_tools.dataclass import dataclass


class View(StrEnum):
    """Pages of the application."""

    INBOX = "inbox"
    INCIDENT = "incident"
    SHARED = "shared"
    WHAT_IF = "what-if"


@dataclass(frozen=True, slots=True)
class Place:
    """A view, and the id or token it is about."""

    view: View
    id: str = ""


def read_place() -> Place:
    """What the address asks for."""
    query = st.query_params
    if token := query.get("share", ""):
        return Place(View.SHARED, token[:64])
    if query.get("view", "") == View.WHAT_IF.value:
        return Place(View.WHAT_IF)
    if identity := query.get("incident", ""):
        return Place(View.INCIDENT, identity[:64])
    return Place(View.INBOX)


_TAB = "tab-title"
PRODUCT = "Firstfault"


def tab_title(place: Place) -> str:
    """Title of the browser's tab, as it was found when the place was last drawn: it does not flicker while the page runs again."""
    named: tuple[Place, str] = st.session_state.get(_TAB, (place, PRODUCT))
    return named[1] if named[0] == place else PRODUCT


def name_tab(place: Place, name: str) -> None:
    """Put what the place is about into the title of the browser's tab, first."""
    title = f"{name} · {PRODUCT}"
    if tab_title(place) != title:
        st.session_state[_TAB] = (place, title)
        st.set_page_config(page_title=title)


def open_incident(identity: str) -> None:
    """Go to an incident."""
    st.query_params.from_dict({"incident": identity})
    st.rerun()


def set_place(place: Place) -> None:
    """Change the address; for callbacks, after which the page runs anyway."""
    if place.view is View.INCIDENT:
        st.query_params.from_dict({"incident": place.id})
    elif place.view is View.WHAT_IF:
        st.query_params.from_dict({"view": View.WHAT_IF.value})
    else:
        st.query_params.clear()
