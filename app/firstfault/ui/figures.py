"""Which charts belong to this incident? Lanes, curves and the memory of an out-of-memory message."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

import streamlit as st

from firstfault.investigation.diagnosis import Diagnosis
from firstfault.ui.charts import draw_curve, draw_shares, theme_name, write_legend, write_spec
from firstfault.ui.curves import Curve, read_curves
from firstfault.ui.door import service
from firstfault.ui.lanes import JOB, LAUNCHER, Lanes, draw_job, read_lanes
from firstfault.ui.marks import sentence
from firstfault.ui.spans import say_span
from firstfault.ui.timeline_chart import choose_bands, draw_timeline
from firstfault_tools.errors import ToolError
from firstfault_tools.findings import Category

BUCKETS = (
    ("allocated_gib", "tensors"),
    ("fragmentation_gib", "cached, not usable"),
    ("context_nccl_gib", "context, NCCL, libraries"),
    ("other_processes_gib", "other processes"),
    ("unexplained_gib", "unexplained"),
    ("free_gib", "free"),
)
_SPEEDS = ("step_time_ms", "tokens_per_s", "samples_per_s", "tflops", "data_time_ms")
LEAST_GIB = 0.05
"""GiB below which a part cannot be seen in the bar."""


@st.cache_data(show_spinner=False, max_entries=200)
def _lanes(incident: str, last_turn: int, _diagnosis: Diagnosis) -> Lanes | None:
    return read_lanes(_diagnosis, service().record.shelf.artefacts(incident))


@st.cache_data(show_spinner=False, max_entries=200)
def _curves(
    incident: str, last_turn: int, cited: tuple[str, int] | None, year: int | None
) -> tuple[Curve, ...]:
    return read_curves(service().record.shelf.artefacts(incident), cited, year)


def curves_of(incident: str, diagnosis: Diagnosis, last_turn: int) -> tuple[Curve, ...]:
    """Curves of the incident, with times where the logs print them."""
    first, span = diagnosis.first_line, diagnosis.input.time_range
    cited = (first.file, first.line) if first else None
    return _curves(incident, last_turn, cited, int(span[0][:4]) if span else None)


@st.cache_data(show_spinner=False, max_entries=200)
def _timeline_spec(
    incident: str, last_turn: int, theme: str, _lanes: Lanes, _curves: Sequence[Curve]
) -> dict[str, Any]:
    return write_spec(draw_timeline(_lanes, _curves))


@st.cache_data(show_spinner=False, max_entries=200)
def _curve_specs(
    incident: str, last_turn: int, theme: str, _curves: Sequence[Curve], first: int | None
) -> list[dict[str, Any]]:
    return [write_spec(draw_curve(curve, first)) for curve in _curves]


def show_timeline(incident: str, diagnosis: Diagnosis, last_turn: int) -> bool:
    """Lanes with the metrics below, the same in words for those who cannot see them; whether metrics are in it."""
    curves = order_curves(curves_of(incident, diagnosis, last_turn), diagnosis)
    lanes = _lanes(incident, last_turn, diagnosis) or draw_job(diagnosis, curves)
    if lanes is None:
        return False
    bands = choose_bands(lanes, curves)
    title = "The job over time" if lanes.order == (JOB,) else "Who stopped where"
    left_out = f"{lanes.ranks_left_out} more ranks are not drawn. " if lanes.ranks_left_out else ""
    st.html(
        f'<h3 class="ff ff-title">{title}<small>{left_out}Dotted is silence; drag to move, '
        "turn the wheel to zoom, double click to go back</small></h3>"
    )
    told = describe_lanes(lanes)
    if bands:
        told += " Below them: " + ", ".join(b.curve.title.lower() for b in bands) + "."
    # whoever else opens the incident is shown the chart as it was drawn once
    spec = _timeline_spec(incident, last_turn, theme_name(), lanes, curves)
    st.vega_lite_chart(spec=spec, width="stretch", alt=told)
    return bool(bands)


def order_curves(curves: Sequence[Curve], diagnosis: Diagnosis) -> tuple[Curve, ...]:
    """Of what is slow the speeds come first."""
    losses = diagnosis.measured.losses if diagnosis.measured is not None else ()
    slow = any(x.kind == "slow" for x in losses)
    speeds = slow or diagnosis.category is Category.PERFORMANCE
    return tuple(sorted(curves, key=lambda c: speeds and c.metric not in _SPEEDS))


def describe_lanes(lanes: Lanes) -> str:
    """The chart in a sentence or two."""
    first = [s for s in lanes.stops if s.role.value == "initiating"]
    ranks = sum(1 for lane in lanes.order if lane != LAUNCHER)
    begun = f"The first fault is on {_name(first[0].lane)}, at {first[0].where}. " if first else ""
    follow = sorted({_name(s.lane) for s in lanes.stops if s.role.value == "cascade"})
    after = f"What follows is reported by {', '.join(follow[:12])}. " if follow else ""
    longest = max(lanes.silences, key=lambda s: s.end - s.start, default=None)
    quiet = f"The longest silence is {say_span(longest.end - longest.start)}, on {_name(longest.lane)}." if longest else ""  # fmt: skip
    what = "The job over time" if lanes.order == (JOB,) else f"Lanes of {ranks} ranks over time"
    return f"{what}. {begun}{after}{quiet}".strip()


def _name(lane: str) -> str:
    if lane == LAUNCHER:
        return "the launcher"
    if lane == JOB:
        return "the job"
    return f"rank {lane}" if lane.isdecimal() else lane


def show_curves(incident: str, diagnosis: Diagnosis, last_turn: int) -> None:
    """Small multiples of what the step lines print."""
    first = diagnosis.first_line
    curves = curves_of(incident, diagnosis, last_turn)
    if not curves:
        return
    st.html(
        f'<h3 class="ff ff-title">Curves<small>step lines of {escape(curves[0].file)}</small></h3>'
    )
    cited = first.line if first is not None and first.file == curves[0].file else None
    drawn = list(
        zip(curves, _curve_specs(incident, last_turn, theme_name(), curves, cited), strict=True)
    )
    for row in range(0, len(drawn), 2):
        columns = st.columns(2, gap="medium")
        for column, (curve, spec) in zip(columns, drawn[row : row + 2], strict=False):
            lost = sum(1 for p in curve.points if p.value is None)
            values = [p.value for p in curve.points if p.value is not None]
            told = f"{curve.title}: {len(curve.points)} points"
            if values:
                told += f", from {values[0]:g} to {values[-1]:g}, highest {max(values):g}"
            told += f", {lost} not a number" if lost else ""
            with column:
                st.vega_lite_chart(spec=spec, width="stretch", alt=told)


def show_memory(diagnosis: Diagnosis) -> None:
    """Where the memory of the card went, by the out-of-memory message itself."""
    if diagnosis.category is not Category.OOM:
        return
    message = next(
        (c.quote for c in diagnosis.citations if c.file and "Tried to allocate" in c.quote), None
    )
    if message is None:
        return
    from firstfault_tools.memory.oom_calculator import CALCULATOR

    try:
        result = CALCULATOR.run(text=message)
    except ToolError:
        return
    books = result.get("books")
    if not isinstance(books, dict) or not books.get("capacity_gib"):
        return
    # a message without process lines leaves parts unknown (None)
    parts = [
        (name, float(books[key])) for key, name in BUCKETS if (books.get(key) or 0) >= LEAST_GIB
    ]
    st.html(
        '<h3 class="ff ff-title">Where the memory went<small>the books of the message, closed</small></h3>'
        f'<p class="ff" style="margin-top:.3rem">{escape(sentence(str(books["reason"])))}. '
        f"{escape(str(books['fix']))}</p>"
    )
    told = ", ".join(f"{name} {size:.2f} GiB" for name, size in parts)
    st.html(write_legend([name for name, _ in parts]))
    st.altair_chart(
        draw_shares(parts, float(books["capacity_gib"])),
        width="stretch",
        alt=f"Memory of the GPU, {books['capacity_gib']} GiB in all: {told}",
    )


def tells_by_curve(diagnosis: Diagnosis) -> bool:
    """Whether the curves are the evidence, and belong beside it."""
    by_metric = (diagnosis.signature or "").startswith("metrics.")
    return by_metric or diagnosis.category in (Category.NUMERICAL, Category.PERFORMANCE)
