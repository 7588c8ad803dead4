"""How does one get the post-mortem? What only a person knows is asked for, then four formats."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

from firstfault.errors import FirstfaultError
from firstfault.incidents.records import Incident
from firstfault.postmortem.impact import GivenFigures
from firstfault.ui.door import service
from firstfault.ui.marks import render_markdown

FORMATS = (
    ("md", "Markdown", "text/markdown", "article"),
    ("html", "HTML", "text/html", "html"),
    ("docx", "Word", "application/vnd.openxmlformats-officedocument.wordprocessingml.document", "description"),
    ("pdf", "PDF", "application/pdf", "picture_as_pdf"),
)  # fmt: skip


def show_report_menu(incident: Incident) -> None:
    """Figures, preview and downloads."""
    with st.popover("Post-mortem", icon=":material/assignment:"):
        st.caption("A draft from the evidence. What it cannot know stays visibly blank.")
        left, right = st.columns(2)
        gpus = left.number_input("GPUs", min_value=1, value=None, step=1, key="report-gpus")
        price = right.number_input(
            "Price of a GPU-hour", min_value=0.0, value=None, step=0.5, key="report-price"
        )
        figures = GivenFigures(gpus=int(gpus) if gpus else None, price=price)
        if st.button(
            "Read it here", icon=":material/visibility:", key="report-read", width="stretch"
        ):
            _preview(incident.id, figures)
        for suffix, name, mime, symbol in FORMATS:
            st.download_button(
                name,
                data=_writer(incident.id, suffix, figures),
                file_name=f"postmortem-{incident.id[:8]}.{suffix}",
                mime=mime,
                icon=f":material/{symbol}:",
                key=f"report-{suffix}",
                on_click="ignore",
                width="stretch",
            )


def _writer(identity: str, suffix: str, figures: GivenFigures) -> Callable[[], bytes]:
    """Makes the file when it is asked for, not at every run of the page."""
    return lambda: service().export(identity, suffix, figures)


@st.dialog("Post-mortem", width="large")
def _preview(identity: str, figures: GivenFigures) -> None:
    try:
        text = service().export(identity, "md", figures).decode()
    except FirstfaultError as error:
        st.error(str(error), icon=":material/error:")
        return
    st.html(f'<div class="ff ff-prose ff-report">{render_markdown(text, {})}</div>')
