"""How are curves, bars and schedules drawn? Altair charts with colours for light and dark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, TypeAlias

import altair as alt
import streamlit as st

from firstfault.ui.curves import Curve

LIGHT = {
    "fault": "#b3261e", "warn": "#b07400", "plain": "#7b8798", "accent": "#2456c7",
    "line": "#c6cdd9", "text": "#161b24", "lane": "#aab4c4", "quiet": "#566071",
    "series": ("#3f6fd8", "#d08a1d", "#2f9e77", "#9a6bd6", "#3f9cb5", "#c2649b", "#8792a4", "#8a9a3b", "#5b4f9e", "#b58863", "#d4574e"),
}  # fmt: skip
DARK = {
    "fault": "#ff8f84", "warn": "#f0bd5f", "plain": "#8b96a8", "accent": "#8fb4ff",
    "line": "#3c4553", "text": "#e7eaf0", "lane": "#5b6676", "quiet": "#9da7b8",
    "series": ("#6f97ee", "#dba94f", "#56bd92", "#ad88e0", "#6cb0cd", "#dc8fbb", "#8d98aa", "#b1bb69", "#9488d0", "#c4a07b", "#ee8a80"),
}  # fmt: skip


Drawn: TypeAlias = Any
"""An Altair chart; the library's own types do not cover what layering returns."""


def columnar(values: Sequence[Mapping[str, Any]]) -> Any:
    """Rows as Altair's inline data."""
    build: Any = alt.Data
    return build(values=values)


def make_legend(columns: int = 0) -> alt.Legend:
    """A legend above the chart."""
    return alt.Legend(
        title=None, orient="top", columns=columns, labelLimit=220, symbolStrokeWidth=0
    )


def theme_name() -> str:
    """`light` or `dark`."""
    return "dark" if st.context.theme.type == "dark" else "light"


def colours() -> Mapping[str, Any]:
    """Palette of the theme in use."""
    return DARK if theme_name() == "dark" else LIGHT


def write_spec(drawn: Drawn) -> dict[str, Any]:
    """A chart as what the browser draws, which can be kept; how it looks is left to the page."""
    spec: dict[str, Any] = drawn.to_dict()
    spec.pop("config", None)
    return spec


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
    base = alt.Chart(columnar(rows))
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
        mark = alt.Chart(columnar([{"step": cited, "label": "first fault"}]))
        rule = mark.mark_rule(color=look["fault"], strokeDash=[4, 3], strokeWidth=1.4).encode(x=x)
        text = mark.mark_text(
            align="left", dx=5, dy=-4, baseline="bottom", color=look["fault"], fontSize=11
        ).encode(x=x, y=alt.value("height"), text="label:N")
        layers += [rule, text]
    return alt.layer(*layers).properties(
        height=205, title=alt.TitleParams(curve.title, anchor="start", fontSize=13, fontWeight=600)
    )


def write_legend(names: Sequence[str]) -> str:
    """Names of parts with the colours that `draw_shares` and `draw_phases` give them, as HTML: it wraps at any width."""
    tones = colours()["series"]
    items = "".join(
        f'<li><span style="background:{tones[n % len(tones)]}"></span>{escape(name)}</li>'
        for n, name in enumerate(names)
    )
    return f'<ul class="ff ff-legend">{items}</ul>'


def _part_colour(names: Sequence[str]) -> alt.Color:
    return alt.Color("part:N", sort=list(names), scale=alt.Scale(domain=list(names), range=list(colours()["series"])), legend=None)  # fmt: skip


def _size_axis(most: float | None) -> alt.X:
    """GiB from 0 to `most`, where several charts share one scale."""
    scale = alt.Scale(domain=[0, most], nice=True) if most else alt.Undefined
    return alt.X("gib:Q", stack="zero", title="GiB", axis=alt.Axis(tickCount=5), scale=scale)


def draw_shares(
    parts: Sequence[tuple[str, float]], capacity: float | None, most: float | None = None
) -> Drawn:
    """One stacked bar of sizes in GiB; the rule is the capacity of the card."""
    look = colours()
    rows = [{"part": name, "gib": size, "order": i} for i, (name, size) in enumerate(parts)]
    bars = (
        alt.Chart(columnar(rows))
        .mark_bar(height=26, stroke=look["line"], strokeWidth=0.5)
        .encode(
            x=_size_axis(most),
            order=alt.Order("order:Q"),
            color=_part_colour([name for name, _ in parts]),
            tooltip=[alt.Tooltip("part:N"), alt.Tooltip("gib:Q", format=".2f", title="GiB")],
        )
    )
    return _with_capacity(bars, capacity).properties(height=96)


def list_terms(phases: Sequence[Mapping[str, Any]]) -> list[str]:
    """Terms of all phases in the order of their colours."""
    return list(dict.fromkeys(name for p in phases for name in p["terms_gib"]))


def draw_phases(
    phases: Sequence[Mapping[str, Any]], capacity: float | None, most: float | None = None
) -> Drawn:
    """Memory of each phase of a step, stacked by term."""
    order = [f"{i + 1}. {p['phase']}" for i, p in enumerate(phases)]
    rows = [
        {"phase": label, "part": name, "gib": size}
        for label, p in zip(order, phases, strict=True)
        for name, size in p["terms_gib"].items()
    ]
    bars = (
        alt.Chart(columnar(rows))
        .mark_bar()
        .encode(
            x=_size_axis(most),
            y=alt.Y("phase:N", sort=order, title=None, axis=alt.Axis(labelLimit=230)),
            color=_part_colour(list_terms(phases)),
            tooltip=[alt.Tooltip("phase:N"), alt.Tooltip("part:N"), alt.Tooltip("gib:Q", format=".2f", title="GiB")],
        )
    )  # fmt: skip
    return _with_capacity(bars, capacity).properties(height=28 * len(order) + 70)


def _with_capacity(bars: Drawn, capacity: float | None) -> Drawn:
    """The bars with a rule at the capacity of the card."""
    layers: list[Drawn] = [bars]
    if capacity:
        mark = alt.Chart(columnar([{"gib": capacity}]))
        layers.append(mark.mark_rule(color=colours()["text"], strokeWidth=2).encode(x="gib:Q"))
    return alt.layer(*layers)


def draw_waste(curve: Sequence[tuple[int, float]], interval: int, best: float) -> Drawn:
    """Wasted share of the time over the checkpoint interval; rules at the one in use and the best."""
    look = colours()
    rows = [{"minutes": m, "waste": share} for m, share in curve]
    x = alt.X("minutes:Q", title="minutes between checkpoints", scale=alt.Scale(zero=False))
    y = alt.Y("waste:Q", title="wasted", axis=alt.Axis(format=".0%", tickCount=4))
    tips = [alt.Tooltip("minutes:Q"), alt.Tooltip("waste:Q", format=".1%")]
    line = alt.Chart(columnar(rows)).mark_line(color=look["accent"], strokeWidth=2).encode(x=x, y=y, tooltip=tips)  # fmt: skip
    marks = columnar([{"minutes": interval, "what": "in use"}, {"minutes": best, "what": "best"}])
    rules = alt.Chart(marks).mark_rule(strokeDash=[4, 3], color=look["warn"]).encode(x=x)
    words = (
        alt.Chart(marks)
        .mark_text(align="left", dx=4, color=look["text"], fontSize=11)
        .encode(x=x, y=alt.value(10), text="what:N")
    )
    return alt.layer(line, rules, words).properties(height=210)


def draw_gantt(rows: Sequence[Mapping[str, Any]], stages: int) -> Drawn:
    """A pipeline schedule: one row a stage."""
    look = colours()
    words = {"F": "forward", "B": "backward", "I": "input gradient", "W": "weight gradient"}
    kinds = [k for k in words if any(r["kind"] == k for r in rows)]
    tones = dict(zip("FBIW", look["series"], strict=False))
    data = [{**r, "what": words.get(str(r["kind"]), str(r["kind"]))} for r in rows]
    return (
        alt.Chart(columnar(data))
        .mark_bar(stroke=look["line"], strokeWidth=0.4)
        .encode(
            x=alt.X("start:Q", title="time", scale=alt.Scale(nice=False)),
            x2="end:Q",
            y=alt.Y("stage:O", title="stage"),
            color=alt.Color("what:N", scale=alt.Scale(domain=[words[k] for k in kinds], range=[tones[k] for k in kinds]), legend=make_legend()),
            tooltip=["stage:O", "microbatch:Q", "what:N", "start:Q", "end:Q"],
        )
        .properties(height=120 + 30 * stages)
    )  # fmt: skip
