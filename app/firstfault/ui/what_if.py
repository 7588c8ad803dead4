"""What would another setting change? Memory, pipeline bubble and checkpoint interval, recomputed live."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import streamlit as st

from firstfault.conversation.memory_questions import shape_of
from firstfault.ui.charts import (
    draw_gantt,
    draw_phases,
    draw_shares,
    draw_waste,
    list_terms,
    write_legend,
)
from firstfault.ui.marks import icon, plain
from firstfault.ui.what_if_address import (
    BILLIONS,
    CHUNKS,
    FAILURES,
    GPUS,
    INTERVAL_MIN,
    MICRO_BATCH,
    MICRO_BATCHES,
    OTHER,
    PRECISIONS,
    PRICE,
    RECOMPUTED,
    RESTART_MIN,
    SAVE_S,
    SCHEDULES,
    SEQUENCE,
    SHARDINGS,
    STAGES,
    WORLD,
    Limits,
    more_of,
    put_settings,
    take_settings,
    tell_taken,
)
from firstfault_tools.errors import ToolError
from firstfault_tools.memory.models import list_models
from firstfault_tools.registry import calculators

MOST_DRAWN = 10_000
"""Bars of a schedule that a browser still draws at once."""
FITS = {
    "fits": ("check_circle", "Fits", "ok"),
    "tight": ("warning", "Tight", "warn"),
    "does not fit": ("error", "Does not fit", "fault"),
}


def show_what_if() -> None:
    """The page of calculators."""
    st.html(
        '<div class="ff"><h1 style="font-size:1.7rem;font-weight:660;letter-spacing:-.02em">What if</h1>'
        '<p class="ff-muted" style="margin-top:.3rem">The same calculators as <code>firstfault memory</code> '
        "and <code>firstfault bubble</code>. Every change recomputes at once.</p></div>"
    )
    asked = take_settings()
    with st.container(key="what-if"):
        memory, pipeline, checkpoint = st.tabs(
            ["GPU memory", "Pipeline bubble", "Checkpoint interval"], default=asked
        )
        with memory:
            _show_memory()
        with pipeline:
            _show_pipeline()
        with checkpoint:
            _show_checkpoint()


def _calculate(name: str, **values: Any) -> Mapping[str, Any] | None:
    found = next((c for c in calculators() if c.name == name), None)
    if found is None:
        st.info(f"The calculator {name} is not installed.", icon=":material/info:")
        return None
    try:
        return found.run(**values)
    except ToolError as error:
        st.warning(plain(str(error)), icon=":material/warning:")
        return None


def write_figures(figures: Sequence[tuple[str, str, str]]) -> str:
    """Large numbers: (name, value, unit)."""
    items = "".join(
        f"<div><dt>{escape(name)}</dt><dd{'' if value[:1].isdecimal() else ' class=words'}>{escape(value)} <small>{escape(unit)}</small></dd></div>"
        for name, value, unit in figures
    )
    return f'<dl class="ff ff-figures">{items}</dl>'


@st.fragment
def _show_memory() -> None:
    from firstfault_tools.memory.cards import list_cards

    left, right = st.columns([1, 2], gap="large")
    cards = {card.name: card for card in list_cards().values()}
    _drop_unknown("memory-model", [OTHER, *list_models()])
    _drop_unknown("memory-card", list(cards))
    with left:
        configuration = _choose_model()
        card = st.selectbox("GPU", list(cards), **_kept("memory-card", "memory"))  # fmt: skip
        gpus = _ask_whole("GPUs", WORLD, 8, "memory-gpus", "memory")
        sequence = _ask_whole("Sequence length", SEQUENCE, 4096, "memory-seq", "memory", step=1024)
        micro = _ask_whole("Micro-batch", MICRO_BATCH, 1, "memory-micro", "memory")
        sharding = st.segmented_control(
            "Sharding", SHARDINGS, default="fsdp", required=True, **_kept("memory-shard", "memory")
        )
        recompute = st.segmented_control(
            "Recomputation",
            RECOMPUTED,
            default="none",
            required=True,
            **_kept("memory-rec", "memory"),
        )
        precision = st.selectbox("Precision", PRECISIONS, **_kept("memory-prec", "memory"))
        fused = st.toggle("Fused cross-entropy", key="memory-fused")
    values = {"sequence": sequence, "micro_batch": micro, "world": gpus, "sharding": sharding,
              "recompute": recompute, "precision": precision, "loss_fused": fused, "attention": "flash"}  # fmt: skip
    with right:
        tell_taken("memory")
        given = {**(configuration or {}), "card": card.lower(), **more_of("memory"), **values}
        result = _calculate("memory", **given) if configuration else None
        if result is None:
            return
        symbol, word, tone = FITS.get(str(result["fit"]), ("help", str(result["fit"]), "plain"))
        st.html(
            f'<p class="ff" style="font-size:1.02rem;font-weight:600"><span class="ff-tag ff-tone-{tone}" '
            f'style="font-size:1.02rem">{icon(symbol)} {escape(word)}</span> on {escape(cards[card].name)}</p>'
        )
        st.caption(f"{result['sentence']} {result['precision_means']}.")
        needed, capacity = result["needed_gib"], float(result["capacity_gib"])
        st.html(
            write_figures(
                (
                    ("Needed", f"{needed['expected']:.1f}", f"GiB ({needed['low']:.1f} to {needed['high']:.1f})"),
                    ("Card", f"{capacity:.1f}", "GiB"),
                    ("Peak in", str(result["phase"]), ""),
                    ("Largest term", str(result["dominant_term"]), ""),
                )
            )
        )  # fmt: skip
        parts = [
            (str(row["name"]), float(row["gib"]))
            for row in result["breakdown"]
            if row["gib"] >= 0.05
        ]
        whole = sum(size for _, size in parts)
        st.html(
            f'<h3 class="ff ff-title">At the peak<small>the parts add up to {whole:.1f} GiB</small></h3>'
        )
        totals = (sum(p["terms_gib"].values()) for p in result["phases"])
        most = max(capacity, whole, *totals)
        st.html(write_legend([name for name, _ in parts]))
        st.altair_chart(
            draw_shares(parts, capacity, most),
            width="stretch",
            alt="; ".join(f"{n} {g:.1f} GiB" for n, g in parts),
        )
        st.html(
            '<h3 class="ff ff-title">By phase<small>tensors alone, without what lies outside them</small></h3>'
        )
        st.html(write_legend(list_terms(result["phases"])))
        st.altair_chart(
            draw_phases(result["phases"], capacity, most),
            width="stretch",
            alt=f"Memory by phase of a step; the peak is {needed['expected']:.1f} GiB in {result['phase']}",
        )
        _show_changes(result["changes"])
        _show_plan(result["plan"])
        _show_assumptions(result["assumptions"])


def _ask_whole(label: str, limits: Limits, usual: int, key: str, calculator: str, step: int = 1) -> int:  # fmt: skip
    """A whole number that can be typed exactly, as large as runs are."""
    low, high = int(limits.low), int(limits.high)
    return int(st.number_input(label, low, high, usual, step, **_kept(key, calculator)))


def _ask_number(label: str, limits: Limits, usual: float, key: str, calculator: str) -> float:
    low, high = float(limits.low), float(limits.high)
    return float(st.number_input(label, low, high, usual, 0.5, **_kept(key, calculator)))


def _kept(key: str, calculator: str) -> dict[str, Any]:
    """What every widget is given whose value stands in the address."""
    return {"key": key, "on_change": put_settings, "args": (calculator,)}


def _drop_unknown(key: str, options: Sequence[str]) -> None:
    """Forget a value of the address that the widget cannot show."""
    if key in st.session_state and st.session_state[key] not in options:
        del st.session_state[key]


def _choose_model() -> Mapping[str, Any] | None:
    """Configuration of the model: a known one, one of another size, or a file; None where it cannot be read."""
    models = list_models()
    model = st.selectbox("Model", [*models, OTHER], **_kept("memory-model", "memory"))  # fmt: skip
    if model != OTHER:
        return {"configuration": json.dumps(models[model]["config"]), "configuration_name": model}  # fmt: skip
    given = st.file_uploader(
        "Its configuration: config.json, Megatron arguments, DeepSpeed JSON, torchtitan TOML",
        key="memory-config",
        max_upload_size=4,
    )
    if given is not None:
        text = given.getvalue().decode("utf-8", errors="replace")
        return {"configuration": text, "configuration_name": given.name}
    billions = _ask_number("or its size, in billion parameters", BILLIONS, 13.0, "memory-billions", "memory")  # fmt: skip
    shape, like = shape_of(billions)
    st.caption(f"Assumed: {like}.")
    return shape


def _show_changes(changes: Sequence[Mapping[str, Any]]) -> None:
    if not changes:
        return
    rows = "".join(
        f'<tr><td>{escape(str(c["change"]))}</td><td class="num">{c["saved_gib"]:+.1f}</td>'
        f'<td class="num">{c["needed_gib"]:.1f}</td><td>{"yes" if c["fits"] else "no"}</td>'
        f"<td>{escape(str(c['reason']))}</td><td>{escape(str(c['cost']))}</td></tr>"
        for c in changes
    )
    st.html(
        '<h3 class="ff ff-title">One change at a time</h3><table class="ff ff-table"><thead><tr><th>Change</th>'
        '<th class="num">Saves GiB</th><th class="num">Needs GiB</th><th>Fits</th><th>Why</th><th>Cost</th></tr></thead>'
        f"<tbody>{rows}</tbody></table>"
    )


def _show_plan(steps: Sequence[Mapping[str, Any]]) -> None:
    """One after the other until it fits, as the command lists them."""
    if not steps:
        return
    rows = "".join(
        f'<tr><td>{number}. {escape(str(s["change"]))}</td><td class="num">{s["saved_gib"]:.1f}</td>'
        f'<td class="num">{s["needed_gib"]:.1f}</td><td>{"yes" if s["fits"] else "no"}</td>'
        f"<td>{escape(str(s['cost']))}</td><td>{escape(str(s['flag']))}</td></tr>"
        for number, s in enumerate(steps, 1)
    )
    st.html(
        '<h3 class="ff ff-title">One after the other</h3><table class="ff ff-table"><thead><tr><th>Change</th>'
        '<th class="num">Saves GiB</th><th class="num">Then needs GiB</th><th>Fits</th><th>Cost</th><th>Flag</th></tr></thead>'
        f"<tbody>{rows}</tbody></table>"
    )


def _show_assumptions(lines: Sequence[str]) -> None:
    if lines:
        rows = "".join(f"<li>{escape(line)}</li>" for line in lines)
        st.html(f'<h3 class="ff ff-title">Assumed</h3><ul class="ff">{rows}</ul>')


@st.fragment
def _show_pipeline() -> None:
    left, right = st.columns([1, 2], gap="large")
    with left:
        schedule = st.selectbox(
            "Schedule", SCHEDULES, **_kept("pipe-schedule", "bubble")
        )  # fmt: skip
        stages = _ask_whole("Pipeline stages", STAGES, 4, "pipe-stages", "bubble")
        micro = _ask_whole("Micro-batches a step", MICRO_BATCHES, 8, "pipe-micro", "bubble")
        virtual = 1
        if schedule == "interleaved":
            virtual = _ask_whole("Chunks a stage", CHUNKS, 2, "pipe-virtual", "bubble")
        backward = st.slider("Backward, in forwards", 1.0, 3.0, 2.0, 0.1, key="pipe-backward")
        slow = st.slider("Slowest stage, times the others", 1.0, 2.0, 1.0, 0.05, key="pipe-slow")
    values: dict[str, Any] = {"schedule": schedule, "stages": stages, "microbatches": micro, "forward": 1.0,
                              "backward": backward, "gantt": True, "at_most": 0.1}  # fmt: skip
    if schedule == "interleaved":
        values["virtual"] = virtual
    if slow > 1.0:
        values["stage_scale"] = [1.0] * (stages - 1) + [slow]
    with right:
        tell_taken("bubble")
        result = _calculate("bubble", **{**more_of("bubble"), **values})
        if result is None:
            return
        need = result.get("microbatches_needed") or {}
        figures = [
            ("Bubble, of the whole step", f"{100 * result['fraction_of_total']:.1f}", "%"),
            ("Over the ideal", f"{100 * result['ratio_to_ideal']:.1f}", "%"),
            ("Step", f"{result['makespan']:.1f}", "forwards"),
        ]
        if need.get("microbatches"):
            figures.append(("For at most 10 %", str(need["microbatches"]), "micro-batches"))
        st.html(write_figures(figures))
        if len(result["gantt"]) <= MOST_DRAWN:
            st.altair_chart(
                draw_gantt(result["gantt"], stages),
                width="stretch",
                alt=f"Schedule {schedule} on {stages} stages with {micro} micro-batches; "
                f"{100 * result['fraction_of_total']:.1f} percent of the step is bubble",
            )
        else:
            st.caption("The schedule is too long to be drawn; its figures are exact.")
        peak = max(result["in_flight_microbatches_by_stage"])
        st.caption(f"The fullest stage keeps {peak:g} micro-batches of activations in flight.")


@st.fragment
def _show_checkpoint() -> None:
    left, right = st.columns([1, 2], gap="large")
    with left:
        tool = "checkpoint_interval"
        gpus = _ask_whole("GPUs", GPUS, 1024, "save-gpus", tool)
        save = _ask_whole("Training stands still for a save (s)", SAVE_S, 60, "save-seconds", tool)
        interval = _ask_whole("Interval in use (min)", INTERVAL_MIN, 60, "save-interval", tool)
        restart = _ask_whole("Restart (min)", RESTART_MIN, 10, "save-restart", tool)
        rate = _ask_number("Failures per 100,000 GPU-hours", FAILURES, 2.0, "save-rate", tool)
        price = _ask_number("Price of a GPU-hour", PRICE, 2.0, "save-price", tool)
    with right:
        tell_taken("checkpoint_interval")
        result = _calculate(
            "checkpoint_interval", save_seconds=save, failures_per_gpu_hour=rate / 100_000, gpus=gpus,
            restart_seconds=restart * 60, interval_seconds=interval * 60, price_per_gpu_hour=price,
        )  # fmt: skip
        if result is None:
            return
        st.html(
            write_figures(
                (
                    ("Best interval", f"{result['daly_s'] / 60:.0f}", "min (Daly)"),
                    ("Wasted now", f"{100 * result['waste_share']:.1f}", "%"),
                    ("Wasted at best", f"{100 * result['waste_share_at_best']:.1f}", "%"),
                    ("Time between failures", f"{result['mtbf_h']:.0f}", "h"),
                    ("Lost a day", f"{result['gpu_h_per_day_lost']:,.0f}", "GPU-hours"),
                    ("One incident", f"${result['incident_cost']:,.0f}", "at the price given"),
                )
            )
        )
        curve = [
            (minutes, share)
            for minutes in range(5, max(245, 2 * interval), 5)
            if (share := _waste(minutes, save, restart, rate, gpus)) is not None
        ]
        st.html(
            '<h3 class="ff ff-title">Waste over the interval<small>saves, lost work and restarts</small></h3>'
        )
        st.altair_chart(
            draw_waste(curve, interval, result["daly_s"] / 60),
            width="stretch",
            alt=f"Share of the time wasted over intervals of 5 minutes and more; least near {result['daly_s'] / 60:.0f} minutes",
        )


def _waste(minutes: int, save: int, restart: int, rate: float, gpus: int) -> float | None:
    """Share of the time that is wasted with this interval, by the same calculator."""
    found = next((c for c in calculators() if c.name == "checkpoint_interval"), None)
    values = {
        "save_seconds": save,
        "failures_per_gpu_hour": rate / 100_000,
        "gpus": gpus,
        "restart_seconds": restart * 60,
        "interval_seconds": minutes * 60,
        "price_per_gpu_hour": 0.0,
    }
    try:
        result = found.run(**values) if found is not None else {}
    except ToolError:
        return None
    share = result.get("waste_share")
    return float(share) if isinstance(share, int | float) else None
