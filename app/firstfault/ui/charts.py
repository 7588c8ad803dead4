"""How are lanes, curves, bars and schedules drawn? Altair charts with colours for light and dark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import altair as alt
import streamlit as st

from firstfault.investigation.diagnosis import ChainRole
from firstfault.ui.curves import Curve
from firstfault.ui.lanes import Lanes
from firstfault.ui.words import ROLES

SHAPES = {ChainRole.INITIATING: "diamond", ChainRole.CASCADE: "circle", ChainRole.TEARDOWN: "cross"}
LIGHT = {
    "fault": "#b3261e", "warn": "#b07400", "plain": "#7b8798", "accent": "#2456c7",
    "line": "#c6cdd9", "text": "#161b24",
    "series": ("#3f6fd8", "#d08a1d", "#2f9e77", "#9a6bd6", "#3f9cb5", "#c2649b", "#8792a4", "#8a9a3b", "#5b4f9e", "#b58863", "#d4574e"),
}  # fmt: skip
DARK = {
    "fault": "#ff8f84", "warn": "#f0bd5f", "plain": "#8b96a8", "accent": "#8fb4ff",
    "line": "#3c4553", "text": "#e7eaf0",
    "series": ("#6f97ee", "#dba94f", "#56bd92", "#ad88e0", "#6cb0cd", "#dc8fbb", "#8d98aa", "#b1bb69", "#9488d0", "#c4a07b", "#ee8a80"),
}  # fmt: skip


Drawn: TypeAlias = Any
"""An Altair chart; the library's own types do not cover what layering returns."""


def _data(values: Sequence[Mapping[str, Any]]) -> Any:
    build: Any = alt.Data
    return build(values=values)


def _legend(columns: int = 0) -> alt.Legend:
    return alt.Legend(
        title=None, orient="top", columns=columns, labelLimit=220, symbolStrokeWidth=0
    )


def colours() -> Mapping[str, Any]:
    """Palette of the theme in use."""
    return DARK if st.context.theme.type == "dark" else LIGHT


def draw_lanes(lanes: Lanes) -> Drawn:
    """One lane a rank; shape and colour both say the part an event has."""
    look = colours()
    scale = 1000.0 if lanes.timed else 1.0
    axis = alt.Axis(
        title="UTC" if lanes.timed else "line",
        format="%H:%M:%S" if lanes.timed else ",d",
        tickCount=7,
    )
    x_type: Any = "temporal" if lanes.timed else "quantitative"
    scale_x = (
        alt.Scale(type="utc", nice=False, padding=14) if lanes.timed else alt.Scale(zero=False)
    )
    lane = alt.Y(
        "lane:N",
        sort=list(lanes.order),
        title="rank",
        axis=alt.Axis(labelLimit=70, ticks=False, labelOverlap=False),
    )
    spans = _data(
        [
            {"lane": s.lane, "start": s.start * scale, "end": s.end * scale, "lines": s.lines}
            for s in lanes.spans
        ]
    )
    roles = [ROLES[r].word for r in SHAPES]
    stops = _data(
        [
            {
                "lane": s.lane,
                "at": s.at * scale,
                "part": ROLES[s.role].word,
                "where": s.where,
                "text": s.text,
                "size": 230 if s.role is ChainRole.INITIATING else 100,
            }
            for s in sorted(lanes.stops, key=lambda s: s.role is ChainRole.INITIATING)
        ]
    )
    tones = [look["fault"], look["warn"], look["plain"]]
    bars = (
        alt.Chart(spans)
        .mark_rule(strokeWidth=5, strokeCap="round", color=look["line"])
        .encode(
            x=alt.X("start", type=x_type, axis=axis, scale=scale_x),
            x2="end:Q",
            y=lane,
            tooltip=[alt.Tooltip("lane:N", title="rank"), alt.Tooltip("lines:Q", title="lines")],
        )
    )
    points = (
        alt.Chart(stops)
        .mark_point(filled=True, opacity=1)
        .encode(
            x=alt.X("at", type=x_type, axis=axis, scale=scale_x),
            y=lane,
            color=alt.Color("part:N", scale=alt.Scale(domain=roles, range=tones), legend=_legend()),
            shape=alt.Shape("part:N", scale=alt.Scale(domain=roles, range=list(SHAPES.values())), legend=_legend()),
            size=alt.Size("size:Q", scale=None, legend=None),
            tooltip=[alt.Tooltip("where:N", title="line"), alt.Tooltip("part:N"), alt.Tooltip("text:N")],
        )
    )  # fmt: skip
    return alt.layer(bars, points).properties(height=120 + 26 * len(lanes.order))


def draw_curve(curve: Curve, first_line: int | None) -> Drawn:
    """One metric over steps; NaN is a cross at the top, the cited row a dashed rule."""
    look = colours()
    values = [p.value for p in curve.points if p.value is not None]
    top = max(values, default=1.0)
    positive = bool(values) and min(values) > 0
    logarithmic = positive and top / min(values) > 200
    rows = [
        {"step": p.step, "value": p.value, "line": p.line, "shown": p.value if p.value is not None else top, "nan": p.value is None}
        for p in curve.points
    ]  # fmt: skip
    x = alt.X(
        "step:Q",
        title=curve.unit,
        axis=alt.Axis(tickCount=5, format="~s"),
        scale=alt.Scale(zero=False, nice=False),
    )
    y_scale = alt.Scale(type="log") if logarithmic else alt.Scale(zero=False)
    tips = [alt.Tooltip("step:Q", title=curve.unit), alt.Tooltip("value:Q"), alt.Tooltip("line:Q")]
    base = alt.Chart(_data(rows))
    line = base.mark_line(color=look["accent"], strokeWidth=1.7, point=len(rows) < 60).encode(
        x=x, y=alt.Y("value:Q", title=None, scale=y_scale, axis=alt.Axis(tickCount=4, format=".3~s" if top >= 1000 else ".4~g")), tooltip=tips
    )  # fmt: skip
    lost = (
        base.transform_filter("datum.nan")
        .mark_point(shape="cross", filled=True, size=70, color=look["fault"], angle=45)
        .encode(x=x, y=alt.Y("shown:Q", scale=y_scale), tooltip=[*tips[:1], alt.Tooltip("line:Q")])
    )
    layers = [line, lost]
    cited = next(
        (r["step"] for r in rows if first_line is not None and r["line"] == first_line), None
    )
    if cited is not None:
        mark = alt.Chart(_data([{"step": cited, "label": "first fault"}]))
        rule = mark.mark_rule(color=look["fault"], strokeDash=[4, 3], strokeWidth=1.4).encode(x=x)
        text = mark.mark_text(
            align="left", dx=5, dy=-4, baseline="bottom", color=look["fault"], fontSize=11
        ).encode(x=x, y=alt.value("height"), text="label:N")
        layers += [rule, text]
    return alt.layer(*layers).properties(
        height=205, title=alt.TitleParams(curve.title, anchor="start", fontSize=13, fontWeight=600)
    )


def draw_shares(
    parts: Sequence[tuple[str, float]], capacity: float | None, height: int = 150
) -> Drawn:
    """One stacked bar of sizes in GiB; the rule is the capacity of the card."""
    look = colours()
    rows = [{"part": name, "gib": size, "order": i} for i, (name, size) in enumerate(parts)]
    names = [name for name, _ in parts]
    bars = (
        alt.Chart(_data(rows))
        .mark_bar(height=26, stroke=look["line"], strokeWidth=0.5)
        .encode(
            x=alt.X("gib:Q", stack="zero", title="GiB"),
            order=alt.Order("order:Q"),
            color=alt.Color("part:N", sort=names, scale=alt.Scale(domain=names, range=list(look["series"])), legend=_legend(3)),
            tooltip=[alt.Tooltip("part:N"), alt.Tooltip("gib:Q", format=".2f", title="GiB")],
        )
    )  # fmt: skip
    layers: list[Drawn] = [bars]
    if capacity:
        mark = alt.Chart(_data([{"gib": capacity}]))
        layers.append(mark.mark_rule(color=look["text"], strokeWidth=2).encode(x="gib:Q"))
    return alt.layer(*layers).properties(height=height)


def draw_phases(phases: Sequence[Mapping[str, Any]], capacity: float | None) -> Drawn:
    """Memory of each phase of a step, stacked by term."""
    look = colours()
    order = [f"{i + 1}. {p['phase']}" for i, p in enumerate(phases)]
    rows = [
        {"phase": label, "part": name, "gib": size}
        for label, p in zip(order, phases, strict=True)
        for name, size in p["terms_gib"].items()
    ]
    names = list(dict.fromkeys(r["part"] for r in rows))
    bars = (
        alt.Chart(_data(rows))
        .mark_bar()
        .encode(
            x=alt.X("gib:Q", stack="zero", title="GiB"),
            y=alt.Y("phase:N", sort=order, title=None, axis=alt.Axis(labelLimit=230)),
            color=alt.Color("part:N", sort=names, scale=alt.Scale(domain=names, range=list(look["series"])), legend=_legend(3)),
            tooltip=[alt.Tooltip("phase:N"), alt.Tooltip("part:N"), alt.Tooltip("gib:Q", format=".2f", title="GiB")],
        )
    )  # fmt: skip
    layers: list[Drawn] = [bars]
    if capacity:
        mark = alt.Chart(_data([{"gib": capacity}]))
        layers.append(mark.mark_rule(color=look["text"], strokeWidth=2).encode(x="gib:Q"))
    return alt.layer(*layers).properties(height=28 * len(order) + 150)


def draw_gantt(rows: Sequence[Mapping[str, Any]], stages: int) -> Drawn:
    """A pipeline schedule: one row a stage."""
    look = colours()
    words = {"F": "forward", "B": "backward", "I": "input gradient", "W": "weight gradient"}
    kinds = [k for k in words if any(r["kind"] == k for r in rows)]
    tones = dict(zip("FBIW", look["series"], strict=False))
    data = [{**r, "what": words.get(str(r["kind"]), str(r["kind"]))} for r in rows]
    return (
        alt.Chart(_data(data))
        .mark_bar(stroke=look["line"], strokeWidth=0.4)
        .encode(
            x=alt.X("start:Q", title="time", scale=alt.Scale(nice=False)),
            x2="end:Q",
            y=alt.Y("stage:O", title="stage"),
            color=alt.Color("what:N", scale=alt.Scale(domain=[words[k] for k in kinds], range=[tones[k] for k in kinds]), legend=_legend()),
            tooltip=["stage:O", "microbatch:Q", "what:N", "start:Q", "end:Q"],
        )
        .properties(height=120 + 30 * stages)
    )  # fmt: skip
