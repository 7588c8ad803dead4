"""What would another setting change? Memory, pipeline bubble and checkpoint interval, recomputed live."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import streamlit as st

from firstfault.ui.charts import draw_gantt, draw_phases
from firstfault.ui.marks import icon
from firstfault_tools.errors import ToolError
from firstfault_tools.registry import calculators

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
        "and <code>firstfault bubble</code>. Every slider recomputes at once.</p></div>"
    )
    with st.container(key="what-if"):
        memory, pipeline, checkpoint = st.tabs(
            ["GPU memory", "Pipeline bubble", "Checkpoint interval"]
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
        st.warning(str(error), icon=":material/warning:")
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
    from firstfault_tools.memory.models import list_models

    left, right = st.columns([1, 2], gap="large")
    models = list_models()
    with left:
        model = st.selectbox("Model", list(models), key="memory-model")
        cards = list_cards()
        card = st.selectbox(
            "GPU", list(cards), format_func=lambda key: cards[key].name, key="memory-card"
        )
        gpus = st.select_slider("GPUs", [1, 2, 4, 8, 16, 32, 64, 128], 8, key="memory-gpus")
        sequence = st.select_slider(
            "Sequence length", [1024, 2048, 4096, 8192, 16384, 32768, 65536], 4096, key="memory-seq"
        )
        micro = st.slider("Micro-batch", 1, 16, 1, key="memory-micro")
        sharding = st.segmented_control(
            "Sharding", ["ddp", "zero1", "zero2", "fsdp"], default="fsdp", required=True, key="memory-shard"
        )  # fmt: skip
        recompute = st.segmented_control(
            "Recomputation", ["none", "selective", "full"], default="none", required=True, key="memory-rec"
        )  # fmt: skip
        precision = st.segmented_control(
            "Precision", ["bf16", "amp", "fp32"], default="bf16", required=True, key="memory-prec"
        )
        fused = st.toggle("Fused cross-entropy", key="memory-fused")
    values = {"sequence": sequence, "micro_batch": micro, "world": gpus, "sharding": sharding,
              "recompute": recompute, "precision": precision, "loss_fused": fused, "attention": "flash"}  # fmt: skip
    config = json.dumps(models[model]["config"])
    result = _calculate(
        "memory", configuration=config, configuration_name="config.json", card=card, **values
    )  # fmt: skip
    if result is None:
        return
    with right:
        symbol, word, tone = FITS.get(str(result["fit"]), ("help", str(result["fit"]), "plain"))
        st.html(
            f'<p class="ff" style="font-size:1.02rem;font-weight:600"><span class="ff-tag ff-tone-{tone}" '
            f'style="font-size:1.02rem">{icon(symbol)} {escape(word)}</span> on {escape(cards[card].name)}</p>'
        )
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
        st.altair_chart(
            draw_phases(result["phases"], capacity),
            width="stretch",
            alt=f"Memory by phase of a step; the peak is {needed['expected']:.1f} GiB in {result['phase']}",
        )
        _show_changes(result["changes"])


def _show_changes(changes: Sequence[Mapping[str, Any]]) -> None:
    if not changes:
        return
    rows = "".join(
        f'<tr><td>{escape(str(c["change"]))}</td><td class="num">{c["saved_gib"]:+.1f}</td>'
        f'<td class="num">{c["needed_gib"]:.1f}</td><td>{"yes" if c["fits"] else "no"}</td>'
        f"<td>{escape(str(c['cost']))}</td></tr>"
        for c in changes[:6]
    )
    st.html(
        '<h3 class="ff ff-title">One change at a time</h3><table class="ff ff-table"><thead><tr><th>Change</th>'
        '<th class="num">Saves GiB</th><th class="num">Needs GiB</th><th>Fits</th><th>Cost</th></tr></thead>'
        f"<tbody>{rows}</tbody></table>"
    )


@st.fragment
def _show_pipeline() -> None:
    left, right = st.columns([1, 2], gap="large")
    with left:
        schedule = st.selectbox(
            "Schedule", ["1f1b", "gpipe", "interleaved", "zb-h1", "zb-v", "dualpipe"], key="pipe-schedule"
        )  # fmt: skip
        stages = st.slider("Pipeline stages", 2, 16, 4, key="pipe-stages")
        micro = st.slider("Micro-batches a step", 1, 64, 8, key="pipe-micro")
        virtual = 1
        if schedule == "interleaved":
            virtual = st.slider("Chunks a stage", 2, 8, 2, key="pipe-virtual")
        backward = st.slider("Backward, in forwards", 1.0, 3.0, 2.0, 0.1, key="pipe-backward")
        slow = st.slider("Slowest stage, times the others", 1.0, 2.0, 1.0, 0.05, key="pipe-slow")
    values: dict[str, Any] = {"schedule": schedule, "stages": stages, "microbatches": micro, "forward": 1.0,
                              "backward": backward, "gantt": True, "at_most": 0.1}  # fmt: skip
    if schedule == "interleaved":
        values["virtual"] = virtual
    if slow > 1.0:
        values["stage_scale"] = [1.0] * (stages - 1) + [slow]
    with right:
        result = _calculate("bubble", **values)
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
        st.altair_chart(
            draw_gantt(result["gantt"], stages),
            width="stretch",
            alt=f"Schedule {schedule} on {stages} stages with {micro} micro-batches; "
            f"{100 * result['fraction_of_total']:.1f} percent of the step is bubble",
        )
        peak = max(result["in_flight_microbatches_by_stage"])
        st.caption(f"The fullest stage keeps {peak:g} micro-batches of activations in flight.")


@st.fragment
def _show_checkpoint() -> None:
    left, right = st.columns([1, 2], gap="large")
    with left:
        gpus = st.select_slider(
            "GPUs", [8, 32, 64, 128, 256, 512, 1024, 4096, 16384], 1024, key="save-gpus"
        )
        save = st.slider("Training stands still for a save (s)", 1, 600, 60, key="save-seconds")
        interval = st.slider("Interval in use (min)", 5, 240, 60, 5, key="save-interval")
        restart = st.slider("Restart (min)", 1, 60, 10, key="save-restart")
        rate = st.slider("Failures per 100,000 GPU-hours", 0.5, 10.0, 2.0, 0.5, key="save-rate")
        price = st.number_input("Price of a GPU-hour", 0.0, 100.0, 2.0, 0.5, key="save-price")
    with right:
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
                    ("One incident", f"{result['incident_cost']:,.0f}", "in the unit of the price"),
                )
            )
        )
