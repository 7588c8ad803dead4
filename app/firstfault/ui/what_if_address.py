"""Which settings does an address give to the calculators? `?view=what-if&tool=bubble&stages=16&microbatches=32`."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import streamlit as st

from firstfault_tools.dataclass import dataclass

TABS = {
    "memory": "GPU memory",
    "bubble": "Pipeline bubble",
    "checkpoint_interval": "Checkpoint interval",
}
_SEEN = "what-if-address"
OTHER = "other size or a file"
"""What the list of models offers besides them."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One widget: its key, and how a value of the address becomes one that it can show."""

    key: str
    read: Callable[[str], object | None]


def _between(low: int, high: int) -> Callable[[str], object | None]:
    return lambda text: min(high, max(low, round(float(text))))


def _decimal(low: float, high: float) -> Callable[[str], object | None]:
    return lambda text: min(high, max(low, float(text)))


def _nearest(options: tuple[int, ...]) -> Callable[[str], object | None]:
    return lambda text: min(options, key=lambda o: abs(o - float(text)))


def _one_of(*options: str) -> Callable[[str], object | None]:
    return lambda text: text if text in options else None


_SETTINGS: Mapping[str, Mapping[str, Setting]] = {
    "bubble": {
        "schedule": Setting("pipe-schedule", _one_of("1f1b", "gpipe", "interleaved", "zb-h1", "zb-v", "dualpipe")),
        "stages": Setting("pipe-stages", _between(2, 16)),
        "microbatches": Setting("pipe-micro", _between(1, 64)),
        "virtual": Setting("pipe-virtual", _between(2, 8)),
    },
    "memory": {
        "model": Setting("memory-model", lambda text: text),
        "billions": Setting("memory-billions", _decimal(0.1, 2000)),
        "card": Setting("memory-card", lambda text: text),
        "precision": Setting("memory-prec", _one_of("bf16", "amp", "bf16_master", "fp32")),
        "world": Setting("memory-gpus", _nearest((1, 2, 4, 8, 16, 32, 64, 128))),
        "sequence": Setting("memory-seq", _nearest((1024, 2048, 4096, 8192, 16384, 32768, 65536))),
        "micro_batch": Setting("memory-micro", _between(1, 16)),
        "sharding": Setting("memory-shard", _one_of("ddp", "zero1", "zero2", "fsdp")),
        "recompute": Setting("memory-rec", _one_of("none", "selective", "full")),
    },
    "checkpoint_interval": {
        "gpus": Setting("save-gpus", _nearest((8, 32, 64, 128, 256, 512, 1024, 4096, 16384))),
        "save_seconds": Setting("save-seconds", _between(1, 600)),
        "interval_minutes": Setting("save-interval", _between(5, 240)),
        "restart_minutes": Setting("save-restart", _between(1, 60)),
        "failures": Setting("save-rate", _decimal(0.5, 10.0)),
        "price": Setting("save-price", _decimal(0.0, 100.0)),
    },
}  # fmt: skip


def take_settings() -> str | None:
    """Put the settings of the address into the widgets, once an address; the tab it asks for."""
    query = {k: v[:40] for k, v in st.query_params.items()}
    tool = query.get("tool", "")
    if tool not in _SETTINGS:
        return None
    if st.session_state.get(_SEEN) != query:
        st.session_state[_SEEN] = query
        for key, value in read_settings(tool, query).items():
            st.session_state[key] = value
    return TABS[tool]


def put_settings(tool: str) -> None:
    """Write what the widgets show into the address, so that it can be shared and comes back on reload."""
    shown = {
        name: str(st.session_state[setting.key])
        for name, setting in _SETTINGS[tool].items()
        if st.session_state.get(setting.key) is not None
    }
    query = {"view": "what-if", "tool": tool, **shown}
    if dict(st.query_params) != query:
        st.query_params.from_dict(query)
    st.session_state[_SEEN] = {k: v[:40] for k, v in query.items()}


def read_settings(tool: str, query: Mapping[str, str]) -> dict[str, object]:
    """Widget key -> value; what no widget can show is passed over."""
    out: dict[str, object] = {}
    if "billions" in query and "model" not in query:
        out["memory-model"] = OTHER
    for name, setting in _SETTINGS[tool].items():
        if name not in query:
            continue
        try:
            value = setting.read(query[name])
        except (ValueError, OverflowError):
            continue
        if value is not None:
            out[setting.key] = value
    return out
