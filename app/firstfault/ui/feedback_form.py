"""Was it right, and what was it really? The answer becomes a draft case of the evals."""

from __future__ import annotations

import streamlit as st

from firstfault.access import Role
from firstfault.errors import FirstfaultError
from firstfault.incidents.records import Incident
from firstfault.ui.door import service
from firstfault.ui.marks import plain
from firstfault.ui.visitor import require
from firstfault.ui.words import name_category
from firstfault_tools.findings import Category


def show_feedback(incident: Incident) -> None:
    """A thumb, and a field for those who know better."""
    st.html('<h3 class="ff ff-title">Was this right?</h3>')
    given = service().feedback_given(incident.id)
    if given:
        last = given[-1]
        said = {True: "it helped", False: "it did not help", None: ""}[last.helpful]
        kept = f" A draft case is in {last.draft}." if last.draft else ""
        st.caption(plain(f"You told us: {' '.join(x for x in (said, last.really) if x)}.{kept}"))
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key="feedback"):
        if st.button("Yes, that was it", icon=":material/thumb_up:", key="right"):
            _keep(incident, True, "", None)
        with st.popover("No, it was something else", icon=":material/thumb_down:"):
            really = st.text_area(
                "What was it really?", key="really", placeholder="The switch port of node 7 flapped", max_chars=2_000
            )  # fmt: skip
            category = st.selectbox(
                "Category", list(Category), index=None, format_func=name_category, key="really-category"
            )  # fmt: skip
            st.caption("Kept on this installation as a draft eval case, with the evidence.")
            if st.button("Keep it", type="primary", key="really-keep"):
                _keep(incident, False, really, category)


def _keep(incident: Incident, helpful: bool, really: str, category: Category | None) -> None:
    try:
        require(Role.INVESTIGATE)
        service().feedback(incident.id, helpful, really, category)
    except FirstfaultError as error:
        st.error(plain(str(error)), icon=":material/error:")
        return
    st.rerun()
