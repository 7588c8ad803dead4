"""Who stopped where, when was it silent, and what did the metrics do then? Lanes and metrics over one axis.

All of it is one view: one cursor crosses lanes and metrics, and they zoom together. A lane is a row; a metric
is a band below the lanes, between its own lowest and highest value.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

from firstfault.investigation.diagnosis import ChainRole
from firstfault.ui.charts import Drawn, colours, columnar, make_legend
from firstfault.ui.curves import Curve
from firstfault.ui.lanes import JOB, LAUNCHER, Lanes
from firstfault.ui.spans import say_span
from firstfault.ui.words import ROLES
from firstfault_tools.dataclass import dataclass

SHAPES = {ChainRole.INITIATING: "diamond", ChainRole.CASCADE: "circle", ChainRole.TEARDOWN: "cross"}
BAND, GAP = 2.2, 0.7
"""Height of a metric's band and the space above it, in lanes."""

LANE_PX, FRAME_PX = 25, 96
MOST_METRICS = 4
LEAST_TOLD = 0.12
"""Share of the axis from which on a silence has room for its length in words."""

MARGIN = 0.02
"""Share of the axis left free at both ends."""

FINE_S = 10.0
"""Seconds below which the axis shows fractions of them."""


@dataclass(frozen=True, slots=True)
class Band:
    """A metric between two heights; rows: (place on the axis, value or None, step, line)."""

    curve: Curve
    top: float
    rows: tuple[tuple[float, float | None, int, int], ...]
    low: float
    high: float

    def height_of(self, value: float | None) -> float:
        """Where a value stands; what is no number stands at the top."""
        if value is None or self.high <= self.low:
            return self.top
        return self.top + BAND * (self.high - value) / (self.high - self.low)


def choose_bands(lanes: Lanes, curves: Sequence[Curve]) -> tuple[Band, ...]:
    """The first metrics that can be put on the axis of the lanes: by time, else by line of the same log."""
    files = {stop.where.rpartition(":")[0] for stop in lanes.stops}
    if lanes.order == (JOB,) and curves:
        files = {curves[0].file}
    out: list[Band] = []
    for curve in curves:
        if len(out) == MOST_METRICS:
            break
        if (lanes.timed and not curve.timed) or (not lanes.timed and files != {curve.file}):
            continue
        values = [p.value for p in curve.points if p.value is not None]
        rows = tuple(
            ((p.at or 0.0) if lanes.timed else float(p.line), p.value, p.step, p.line)
            for p in curve.points
        )
        top = len(lanes.order) - 0.5 + GAP + len(out) * (BAND + GAP)
        out.append(Band(curve, top, rows, min(values, default=0.0), max(values, default=0.0)))
    return tuple(out)


def draw_timeline(lanes: Lanes, curves: Sequence[Curve]) -> Drawn:
    """Lanes, their silences and stops, and the metrics below; one cursor, one zoom."""
    bands = choose_bands(lanes, curves)
    scale = 1000.0 if lanes.timed else 1.0
    places = _places(lanes, bands)
    x = _x_axis(lanes, places)
    y = _y_axis(lanes, bands)
    cursor = alt.selection_point(
        name="cursor", fields=["at"], nearest=True, on="pointermove", clear="pointerout", empty=False
    )  # fmt: skip
    zoom = alt.selection_interval(name="zoom", bind="scales", encodings=["x"])
    ticks = alt.Chart(columnar([{"at": at * scale} for at in places]))
    layers: list[Drawn] = [
        ticks.mark_point(opacity=0, aria=False).encode(x=x).add_params(cursor, zoom),
        *_draw_silences(lanes, scale, x, y),
        _draw_spans(lanes, scale, x, y),
        *(layer for band in bands for layer in _draw_band(band, scale, x, y, cursor)),
        ticks.mark_rule(color=colours()["accent"], strokeWidth=1, aria=False).encode(x=x).transform_filter(cursor),
        _draw_stops(lanes, scale, x, y),
    ]  # fmt: skip
    rows = len(lanes.order) + len(bands) * (BAND + GAP)
    return alt.layer(*layers).properties(height=round(FRAME_PX + LANE_PX * rows))


def _places(lanes: Lanes, bands: Sequence[Band]) -> list[float]:
    """Places at which the cursor may stand."""
    ends = {at for span in lanes.spans for at in (span.start, span.end)}
    return sorted(ends | {s.at for s in lanes.stops} | {row[0] for b in bands for row in b.rows})


def _x_axis(lanes: Lanes, places: Sequence[float]) -> Any:
    if not lanes.timed:
        return alt.X("at:Q", axis=alt.Axis(title="line", format=",d"), scale=alt.Scale(zero=False))
    margin = MARGIN * (places[-1] - places[0])
    domain = (
        [(places[0] - margin) * 1000, (places[-1] + margin) * 1000] if margin else alt.Undefined
    )
    fine = places[-1] - places[0] < FINE_S
    axis = alt.Axis(title="UTC", format="%H:%M:%S.%L" if fine else "%H:%M:%S", tickCount=5 if fine else 7, labelOverlap=True)  # fmt: skip
    return alt.X("at:T", axis=axis, scale=alt.Scale(type="utc", nice=False, domain=domain))


def _y_axis(lanes: Lanes, bands: Sequence[Band]) -> Any:
    """Rows by number, named by what they show."""
    names = {float(n): lane for n, lane in enumerate(lanes.order)}
    names |= {round(b.top + BAND / 2, 2): b.curve.title for b in bands}
    named = "".join(
        f"abs(datum.value - {at}) < 0.01 ? {json.dumps(name)} : " for at, name in names.items()
    )
    bottom = bands[-1].top + BAND + 0.2 if bands else len(lanes.order) - 0.4
    ranks = all(name == LAUNCHER or name.isdecimal() for name in lanes.order)
    return alt.Y(
        "row:Q",
        title=None if bands or lanes.order == (JOB,) else "rank" if ranks else "process",
        scale=alt.Scale(domain=[-0.6, bottom], reverse=True, nice=False, zero=False),
        axis=alt.Axis(values=list(names), labelExpr=f"{named}''", labelLimit=150, ticks=False, grid=False, labelOverlap=False),
    )  # fmt: skip


def _draw_spans(lanes: Lanes, scale: float, x: Any, y: Any) -> Drawn:
    row = {lane: n for n, lane in enumerate(lanes.order)}
    data = columnar(
        [
            {"row": row[s.lane], "lane": s.lane, "at": s.start * scale, "end": s.end * scale, "lines": s.lines}
            for s in lanes.spans
        ]
    )  # fmt: skip
    tips = [alt.Tooltip("lane:N", title="rank"), alt.Tooltip("lines:Q", title="lines")]
    mark = alt.Chart(data).mark_rule(strokeWidth=6, strokeCap="round", color=colours()["lane"])
    return mark.encode(x=x, x2="end:Q", y=y, tooltip=tips)


def _draw_silences(lanes: Lanes, scale: float, x: Any, y: Any) -> list[Drawn]:
    """Dotted where nothing was written; the long ones say how long."""
    if not lanes.silences:
        return []
    row = {lane: n for n, lane in enumerate(lanes.order)}
    whole = max(s.end for s in lanes.spans) - min(s.start for s in lanes.spans)
    rows, middles = [], []
    for silence in lanes.silences:
        length, lane = silence.end - silence.start, {"row": row[silence.lane], "lane": silence.lane}
        told = {**lane, "what": f"silent for {say_span(length)}"}
        rows.append({**told, "at": silence.start * scale, "end": silence.end * scale})
        if length >= LEAST_TOLD * whole:
            middles.append({**told, "at": (silence.start + silence.end) / 2 * scale})
    data, look = columnar(rows), colours()
    tips = [alt.Tooltip("lane:N", title="rank"), alt.Tooltip("what:N", title="")]
    line = alt.Chart(data).mark_rule(strokeWidth=1.4, strokeDash=[1, 5], color=look["plain"])
    text = alt.Chart(columnar(middles)).mark_text(
        fontSize=10, color=look["quiet"], dy=-7, aria=False
    )
    return [
        line.encode(x=x, x2="end:Q", y=y, tooltip=tips),
        text.encode(x=x, y=y, text="what:N"),
    ]  # fmt: skip


def _draw_stops(lanes: Lanes, scale: float, x: Any, y: Any) -> Drawn:
    row = {lane: n for n, lane in enumerate(lanes.order)}
    look = colours()
    # the legend names what is drawn
    seen = [r for r in SHAPES if any(s.role is r for s in lanes.stops)]
    roles, shapes = [ROLES[r].word for r in seen], [SHAPES[r] for r in seen]
    tones = [
        tone
        for r, tone in zip(SHAPES, (look["fault"], look["warn"], look["plain"]), strict=True)
        if r in seen
    ]
    data = columnar(
        [
            {"row": row[s.lane], "at": s.at * scale, "part": ROLES[s.role].word, "where": s.where, "text": s.text,
             "size": 230 if s.role is ChainRole.INITIATING else 100}
            for s in sorted(lanes.stops, key=lambda s: s.role is ChainRole.INITIATING)
        ]
    )  # fmt: skip
    legend = make_legend()
    return (
        alt.Chart(data)
        .mark_point(filled=True, opacity=1)
        .encode(
            x=x,
            y=y,
            color=alt.Color("part:N", scale=alt.Scale(domain=roles, range=tones), legend=legend),
            shape=alt.Shape("part:N", scale=alt.Scale(domain=roles, range=shapes), legend=legend),
            size=alt.Size("size:Q", scale=None, legend=None),
            tooltip=[alt.Tooltip("where:N", title="line"), alt.Tooltip("part:N"), alt.Tooltip("text:N")],
        )
    )  # fmt: skip


def _draw_band(band: Band, scale: float, x: Any, y: Any, cursor: Any) -> list[Drawn]:
    """A metric: its line, crosses where it was no number, and its value at the cursor."""
    look = colours()
    rows: list[Mapping[str, Any]] = [
        {"row": band.height_of(value), "at": at * scale, "value": value, "nan": value is None, "step": step, "line": line,
         "said": f"{value:.4g}" if value is not None else "not a number"}
        for at, value, step, line in band.rows
    ]  # fmt: skip
    base = alt.Chart(columnar(rows))
    tips = [
        alt.Tooltip("said:N", title=band.curve.title), alt.Tooltip("step:Q", title=band.curve.unit), alt.Tooltip("line:Q"),
    ]  # fmt: skip
    lost = base.transform_filter("datum.nan").mark_point(shape="cross", filled=True, angle=45, size=60, color=look["fault"])  # fmt: skip
    at_cursor = base.transform_filter(cursor)
    return [
        base.transform_filter("!datum.nan").mark_line(color=look["accent"], strokeWidth=1.6, aria=False).encode(x=x, y=y),
        lost.encode(x=x, y=y, tooltip=tips),
        at_cursor.mark_point(aria=False, filled=True, size=50, color=look["accent"]).encode(x=x, y=y, tooltip=tips),
        at_cursor.mark_text(aria=False, align="left", dx=7, dy=-7, fontSize=11, fontWeight="bold", color=look["text"]).encode(x=x, y=y, text="said:N"),
    ]  # fmt: skip
