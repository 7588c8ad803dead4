"""How does one get the post-mortem? What only a person knows is asked for, then four formats."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

import streamlit as st

from firstfault.errors import FirstfaultError
from firstfault.incidents.records import Incident
from firstfault.postmortem.impact import GivenFigures
from firstfault.postmortem.report import Impact, Report
from firstfault.postmortem.web import write_body
from firstfault.postmortem.whys import GivenWhy
from firstfault.ui.door import service
from firstfault.ui.marks import plain

FORMATS = (
    ("md", "Markdown", "text/markdown", "article"),
    ("html", "HTML", "text/html", "code"),
    ("docx", "Word", "application/vnd.openxmlformats-officedocument.wordprocessingml.document", "description"),
    ("pdf", "PDF", "application/pdf", "picture_as_pdf"),
)  # fmt: skip


_OPEN = "report-open"


def show_report_menu(incident: Incident) -> None:
    """The button that opens the draft."""
    st.button(
        "Post-mortem",
        icon=":material/assignment:",
        key="report",
        on_click=_open,
        args=(incident.id,),
    )
    # kept in the session: the page runs again when something arrives, and the draft must not close then
    if st.session_state.get(_OPEN) == incident.id:
        _show_report(incident.id)


def _open(identity: str) -> None:
    st.session_state[_OPEN] = identity


def _close() -> None:
    st.session_state.pop(_OPEN, None)


@st.dialog("Post-mortem draft", width="large", on_dismiss=_close)
def _show_report(identity: str) -> None:
    try:
        drafted = service().report(identity)
    except FirstfaultError as error:
        st.error(plain(str(error)), icon=":material/error:")
        return
    st.caption(
        "Written from the evidence, with citations. What is filled in comes from the evidence; correct it where "
        "you know better. What it cannot know stays visibly blank."
    )
    figures = replace(_ask_figures(drafted.impact), whys=_ask_whys(drafted))
    row = st.container(horizontal=True, gap="small", key="report-formats")
    for suffix, name, mime, symbol in FORMATS:
        row.download_button(
            name,
            data=_writer(identity, suffix, figures),
            file_name=f"postmortem-{identity[:8]}.{suffix}",
            mime=mime,
            icon=f":material/{symbol}:",
            key=f"report-{suffix}",
            on_click="ignore",
        )
    body = write_body(service().report(identity, figures))
    st.html(f'<div class="ff ff-prose ff-report">{body}</div>')


def _ask_figures(impact: Impact) -> GivenFigures:
    """What a person knows better; what is left as drafted stays marked as drafted."""
    # wide enough for a whole time: the row breaks where the dialog is narrow
    row = st.container(horizontal=True, gap="small", key="report-figures")
    gpus = row.number_input("GPUs", min_value=1, value=impact.gpus, step=1, key="report-gpus")
    price = row.number_input(
        "Price of a GPU-hour", min_value=0.0, value=impact.price, step=0.5, key="report-price"
    )
    start = row.datetime_input("Start (UTC)", value=_moment(impact.start), key="report-start")  # fmt: skip
    end = row.datetime_input("End (UTC)", value=_moment(impact.end), key="report-end")
    return GivenFigures(
        gpus=int(gpus) if gpus and gpus != impact.gpus else None,
        price=price if price != impact.price else None,
        currency=impact.currency,
        start=_given(start, impact.start),
        end=_given(end, impact.end),
    )


def _ask_whys(drafted: Report) -> tuple[GivenWhy, ...]:
    """The five whys as a person edits them; empty where they are left as drafted."""
    places = {c.n: f"{c.file}:{c.line}" for c in drafted.citations if c.file and c.line}
    rows = [
        {
            "Because": why.because.text if why.because is not None else "",
            "Evidence": next((places[n] for n in why.because.citations if n in places), "")
            if why.because is not None
            else "",
        }
        for why in drafted.whys
    ]
    with st.expander("Edit the five whys", icon=":material/edit:"):
        edited = st.data_editor(
            rows or [{"Because": "", "Evidence": ""}],
            num_rows="dynamic",
            key="report-whys",
            width="stretch",
            column_config={
                "Evidence": st.column_config.TextColumn(help="file:line of this incident, or a reference of yours")
            },
        )  # fmt: skip
    if edited == rows:
        return ()
    return tuple(
        GivenWhy(str(row["Because"]), str(row.get("Evidence") or ""))
        for row in edited
        if str(row.get("Because") or "").strip()
    )


def _moment(seconds: float | None) -> datetime | None:
    return datetime.fromtimestamp(round(seconds), UTC).replace(tzinfo=None) if seconds else None


def _given(at: datetime | None, drafted: float | None) -> float | None:
    """Seconds of a time that a person has changed; None where it is as drafted, to the minute that the box shows."""
    shown = _moment(drafted)
    if at is not None and shown is not None and at.replace(second=0) == shown.replace(second=0):
        return None
    return _seconds(at)


def _seconds(at: datetime | None) -> float | None:
    return at.replace(tzinfo=UTC).timestamp() if at is not None else None


def _writer(identity: str, suffix: str, figures: GivenFigures) -> Callable[[], bytes]:
    """Makes the file when it is asked for, not at every run of the page."""
    return lambda: service().export(identity, suffix, figures)
