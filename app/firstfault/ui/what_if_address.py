"""Which settings does an address give to the calculators? `?view=what-if&tool=bubble&stages=16&microbatches=32`.

Names are those of the calculators, besides those of the page's own units. What no widget shows is counted all
the same where the calculator takes it, and said; what is beyond what the page counts is said, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any

import streamlit as st

from firstfault_tools.dataclass import dataclass
from firstfault_tools.memory.cards import list_cards
from firstfault_tools.memory.models import list_models
from firstfault_tools.registry import calculators

TABS = {
    "memory": "GPU memory",
    "bubble": "Pipeline bubble",
    "checkpoint_interval": "Checkpoint interval",
}
_SEEN, _TAKEN = "what-if-address", "what-if-taken"
OTHER = "other size or a file"
"""What the list of models offers besides them."""
SCHEDULES = ("1f1b", "gpipe", "interleaved", "zb-h1", "zb-v", "dualpipe")
SHARDINGS = ("none", "ddp", "zero1", "zero2", "zero3", "fsdp")
RECOMPUTED = ("none", "selective", "full")
PRECISIONS = ("amp", "fp16_amp", "bf16", "bf16_master", "fp16", "fp32", "fp8", "mxfp8", "nvfp4")
MOST_TEXT = 40


@dataclass(frozen=True, slots=True)
class Limits:
    """What a number may be on this page."""

    low: float
    high: float
    whole: bool = True

    def read(self, text: str) -> float:
        """The number of a text as near as the page comes to it. Raises ValueError."""
        value = min(self.high, max(self.low, float(text)))
        return round(value) if self.whole else float(value)


STAGES, MICRO_BATCHES, CHUNKS = Limits(2, 128), Limits(1, 1024), Limits(2, 16)
BILLIONS, WORLD, SEQUENCE, MICRO_BATCH = Limits(0.1, 20_000, False), Limits(1, 200_000), Limits(1, 10_000_000), Limits(1, 4096)  # fmt: skip
GPUS, SAVE_S, INTERVAL_MIN, RESTART_MIN = Limits(1, 200_000), Limits(1, 7200), Limits(1, 1440), Limits(0, 600)  # fmt: skip
FAILURES, PRICE = Limits(0.01, 10_000, False), Limits(0, 1000, False)


@dataclass(frozen=True, slots=True)
class Setting:
    """One widget: its key, and how a value of the address becomes one that it can show (ValueError: it cannot)."""

    key: str
    read: Callable[[str], object]


@dataclass(frozen=True, slots=True)
class Taken:
    """What an address gives: values of widgets, inputs that have none, and what is not shown as it was asked for."""

    values: Mapping[str, object] = field(default_factory=dict)
    more: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def _one_of(*options: str) -> Callable[[str], object]:
    return lambda text: options[options.index(text)]


def _known_model(text: str) -> object:
    if text in (OTHER, *list_models()):
        return text
    raise ValueError(text)


def _known_card(text: str) -> object:
    names = {name.lower(): card.name for name, card in list_cards().items()}
    if (name := names.get(text.lower())) is None:
        raise ValueError(text)
    return name


_SETTINGS: Mapping[str, Mapping[str, Setting]] = {
    "bubble": {
        "schedule": Setting("pipe-schedule", _one_of(*SCHEDULES)),
        "stages": Setting("pipe-stages", STAGES.read),
        "microbatches": Setting("pipe-micro", MICRO_BATCHES.read),
        "virtual": Setting("pipe-virtual", CHUNKS.read),
    },
    "memory": {
        "model": Setting("memory-model", _known_model),
        "billions": Setting("memory-billions", BILLIONS.read),
        "card": Setting("memory-card", _known_card),
        "precision": Setting("memory-prec", _one_of(*PRECISIONS)),
        "world": Setting("memory-gpus", WORLD.read),
        "sequence": Setting("memory-seq", SEQUENCE.read),
        "micro_batch": Setting("memory-micro", MICRO_BATCH.read),
        "sharding": Setting("memory-shard", _one_of(*SHARDINGS)),
        "recompute": Setting("memory-rec", _one_of(*RECOMPUTED)),
    },
    "checkpoint_interval": {
        "gpus": Setting("save-gpus", GPUS.read),
        "save_seconds": Setting("save-seconds", SAVE_S.read),
        "interval_minutes": Setting("save-interval", INTERVAL_MIN.read),
        "restart_minutes": Setting("save-restart", RESTART_MIN.read),
        "failures": Setting("save-rate", FAILURES.read),
        "price": Setting("save-price", PRICE.read),
    },
}  # fmt: skip
_UNITS: Mapping[str, tuple[str, float]] = {
    "interval_seconds": ("interval_minutes", 1 / 60),
    "restart_seconds": ("restart_minutes", 1 / 60),
    "failures_per_gpu_hour": ("failures", 100_000),
    "price_per_gpu_hour": ("price", 1),
}
"""Inputs of the checkpoint calculator under the page's own units."""
_SHOWN_ELSEWHERE = frozenset({"view", "tool", "attention", "gantt", "at_most"})
"""What the page sets itself."""


def take_settings() -> str | None:
    """Put the settings of the address into the widgets, once an address; the tab it asks for."""
    query = {k: v[:MOST_TEXT] for k, v in st.query_params.items()}
    tool = query.get("tool", "")
    if tool not in _SETTINGS:
        return None
    if st.session_state.get(_SEEN) != query:
        taken = read_settings(tool, query)
        for key, value in taken.values.items():
            st.session_state[key] = value
        st.session_state[_TAKEN] = {tool: taken}
        st.session_state[_SEEN] = query
    return TABS[tool]


def more_of(tool: str) -> Mapping[str, Any]:
    """Inputs of the address that no widget shows."""
    return _taken(tool).more


def tell_taken(tool: str) -> None:
    """Say what of the address is counted without a widget, and what is not shown as asked; the address then says what is."""
    taken = _taken(tool)
    if taken.notes:
        st.warning(" ".join(taken.notes), icon=":material/warning:")
        put_settings(tool, keep=True)
    if taken.more:
        said = ", ".join(f"{name.replace('_', ' ')} {_say(v)}" for name, v in taken.more.items())
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            st.caption(f"Counted, too, as the address says: {said}.")
            st.button("Leave out", key=f"{tool}-less", on_click=_leave_out, args=(tool,), type="tertiary")  # fmt: skip


def _say(value: object) -> str:
    return {True: "on", False: "off"}.get(value, str(value)) if isinstance(value, bool) else str(value)  # fmt: skip


def _taken(tool: str) -> Taken:
    known: Mapping[str, Taken] = st.session_state.get(_TAKEN, {})
    return known.get(tool, Taken())


def _leave_out(tool: str) -> None:
    st.session_state[_TAKEN] = {}
    put_settings(tool)


def put_settings(tool: str, keep: bool = False) -> None:
    """Write what is counted into the address, so that it can be shared and comes back on reload. keep: notes stay."""
    if not keep:
        st.session_state[_TAKEN] = {tool: Taken(more=more_of(tool))}
    shown = {
        name: str(st.session_state[setting.key])
        for name, setting in _SETTINGS[tool].items()
        if st.session_state.get(setting.key) is not None
    }
    more = {name: str(value) for name, value in more_of(tool).items()}
    query = {"view": "what-if", "tool": tool, **shown, **more}
    if dict(st.query_params) != query:
        st.query_params.from_dict(query)
    st.session_state[_SEEN] = {k: v[:MOST_TEXT] for k, v in query.items()}


def read_settings(tool: str, query: Mapping[str, str]) -> Taken:
    """Values by widget key; what none can show is counted or said."""
    values: dict[str, object] = {}
    more: dict[str, Any] = {}
    notes: list[str] = []
    if "billions" in query and "model" not in query:
        values["memory-model"] = OTHER
    for name, text in _in_page_units(query).items():
        setting = _SETTINGS[tool].get(name)
        if setting is None:
            if name not in _SHOWN_ELSEWHERE:
                _read_more(tool, name, text, more, notes)
            continue
        try:
            values[setting.key] = setting.read(text)
        except (ValueError, OverflowError):
            notes.append(f"This page has no {name.replace('_', ' ')} {_quote(text)}.")
            continue
        if _differs(text, values[setting.key]):
            notes.append(f"{name.replace('_', ' ')} {_quote(text)} is beyond what this page counts; shown is {values[setting.key]}.")  # fmt: skip
    return Taken(values, more, tuple(notes))


def _in_page_units(query: Mapping[str, str]) -> dict[str, str]:
    out = dict(query)
    try:
        if "mtbf_hours" in out and "gpus" in out:
            rate = 100_000 / (float(out.pop("mtbf_hours")) * float(out["gpus"]))
            out["failures"] = f"{rate:.6g}"
        for name, (own, factor) in _UNITS.items():
            if name in out:
                out[own] = f"{float(out.pop(name)) * factor:.6g}"
    except (ValueError, OverflowError, ZeroDivisionError):
        return out
    return out


def _read_more(tool: str, name: str, text: str, more: dict[str, Any], notes: list[str]) -> None:
    """An input of the calculator that has no widget, by its schema."""
    found = next((c for c in calculators() if c.name == tool), None)
    schema = found.parameters["properties"].get(name) if found is not None else None
    value = _read_typed(schema, text) if schema is not None else None
    if value is None:
        notes.append(f"This page does not know {_quote(name)} {_quote(text)}.")
    else:
        more[name] = value


def _read_typed(schema: Mapping[str, Any], text: str) -> Any:
    """The text as the type of the schema; None where it is none."""
    if "enum" in schema:
        return next((v for v in schema["enum"] if str(v) == text), None)
    try:
        if schema.get("type") == "boolean":
            return {"True": True, "true": True, "1": True, "False": False, "false": False}[text]
        value = {"integer": int, "number": float}[schema.get("type", "")](text)
    except (KeyError, ValueError, OverflowError):
        return None
    return value if value >= schema.get("minimum", 0) else None


def _quote(text: str) -> str:
    from firstfault.ui.marks import plain

    return plain(text)


def _differs(text: str, value: object) -> bool:
    """A number that is not the one that was asked for."""
    if isinstance(value, str):
        return False
    return abs(float(text) - float(str(value))) > 1e-3 * max(1.0, abs(float(text)))
