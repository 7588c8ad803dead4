"""How does one get the post-mortem? What only a person knows is asked for, then four formats."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

import streamlit as st

from firstfault.errors import FirstfaultError
from firstfault.incidents.records import Incident
from firstfault.postmortem.impact import GivenFigures
from firstfault.ui.door import service
from firstfault.ui.marks import render_markdown

FORMATS = (
    ("md", "Markdown", "text/markdown", "article"),
    ("html", "HTML", "text/html", "code"),
    ("docx", "Word", "application/vnd.openxmlformats-officedocument.wordprocessingml.document", "description"),
    ("pdf", "PDF", "application/pdf", "picture_as_pdf"),
)  # fmt: skip


def show_report_menu(incident: Incident) -> None:
    """The button that opens the draft."""
    if st.button("Post-mortem", icon=":material/assignment:", key="report"):
        _show_report(incident.id)


@st.dialog("Post-mortem draft", width="large")
def _show_report(identity: str) -> None:
    st.caption(
        "Written from the evidence, with citations. What it cannot know stays visibly blank."
    )
    figures = _ask_figures()
    for column, (suffix, name, mime, symbol) in zip(st.columns(len(FORMATS)), FORMATS, strict=True):
        column.download_button(
            name,
            data=_writer(identity, suffix, figures),
            file_name=f"postmortem-{identity[:8]}.{suffix}",
            mime=mime,
            icon=f":material/{symbol}:",
            key=f"report-{suffix}",
            on_click="ignore",
            width="stretch",
        )
    try:
        text = service().export(identity, "md", figures).decode()
    except FirstfaultError as error:
        st.error(str(error), icon=":material/error:")
        return
    st.html(f'<div class="ff ff-prose ff-report">{render_markdown(text, {})}</div>')


def _ask_figures() -> GivenFigures:
    """What a person knows and the evidence may not say; empty fields stay blank in the draft."""
    columns = st.columns(4)
    gpus = columns[0].number_input("GPUs", min_value=1, value=None, step=1, key="report-gpus")
    price = columns[1].number_input(
        "Price of a GPU-hour", min_value=0.0, value=None, step=0.5, key="report-price"
    )
    start = columns[2].datetime_input("Start (UTC)", value=None, key="report-start")
    end = columns[3].datetime_input("End (UTC)", value=None, key="report-end")
    return GivenFigures(
        gpus=int(gpus) if gpus else None, price=price, start=_seconds(start), end=_seconds(end)
    )


def _seconds(at: datetime | None) -> float | None:
    return at.replace(tzinfo=UTC).timestamp() if at is not None else None


def _writer(identity: str, suffix: str, figures: GivenFigures) -> Callable[[], bytes]:
    """Makes the file when it is asked for, not at every run of the page."""
    return lambda: service().export(identity, suffix, figures)
