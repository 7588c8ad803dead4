"""Who is at the page, and what may they do? Sign-in where the installation asks for it.

Local installations know nobody and allow everything. A password opens one tab's session; a proxy's
header is read anew at every run.
"""

from __future__ import annotations

import streamlit as st

from firstfault.access import AccessDenied, Door, Mode, Role, Visitor
from firstfault.ui.door import service
from firstfault.ui.marks import plain
from firstfault.ui.theme import write_brand

_KEY = "visitor"


@st.cache_resource(show_spinner=False)
def _door() -> Door:
    return Door(service().settings)


def mode() -> Mode:
    """How visitors are known here."""
    return _door().mode


def meet_visitor() -> Visitor | None:
    """The visitor of this run; None until a password was given. Raises AccessDenied."""
    door = _door()
    if door.mode is Mode.PASSWORD:
        known = st.session_state.get(_KEY)
        return known if isinstance(known, Visitor) else None
    return door.meet(_headers(), _peer())


def _peer() -> str | None:
    """Address of the connection; None for this machine, and where a test draws the page without one."""
    address: object = st.context.ip_address
    return address if isinstance(address, str) else None


def _headers() -> list[tuple[str, str]]:
    """Every header of the connection; one that came twice stands here twice."""
    headers = st.context.headers
    return [(name, value) for name in headers for value in headers.get_all(name)]


def may(needed: Role) -> bool:
    """Whether the visitor's role includes `needed`; nobody may anything."""
    visitor = meet_visitor()
    return visitor is not None and visitor.role.may(needed)


def require(needed: Role) -> None:
    """Raise AccessDenied unless the visitor may; for everything that changes something."""
    visitor = meet_visitor()
    if visitor is None:
        raise AccessDenied("sign in first")
    visitor.require(needed)


def show_sign_in() -> None:
    """The form for the password."""
    with st.container(key="sign-in"):
        st.html(write_brand())
        with st.form("sign-in-form", border=False):
            password = st.text_input("Password", type="password", key="password")
            given = st.form_submit_button("Sign in", type="primary", width="stretch")
        if not given:
            return
        try:
            st.session_state[_KEY] = _door().sign_in(password, _peer())
        except AccessDenied as error:
            st.error(plain(str(error)[:1].upper() + str(error)[1:]), icon=":material/lock:")
            return
        st.rerun()


def show_visitor() -> None:
    """Name and role at the foot of the sidebar, and the way out."""
    door = _door()
    if door.mode is Mode.LOCAL:
        return
    visitor = meet_visitor()
    if visitor is None:
        return
    words = {
        Role.VIEW: "may read",
        Role.INVESTIGATE: "may investigate",
        Role.APPROVE: "may approve",
    }
    st.caption(" ".join(x for x in (plain(visitor.name), words[visitor.role]) if x))
    if door.mode is Mode.PASSWORD:
        st.button("Sign out", icon=":material/logout:", key="sign-out", on_click=_sign_out)


def _sign_out() -> None:
    st.session_state.pop(_KEY, None)
