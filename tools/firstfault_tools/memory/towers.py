"""Which vision tower stands beside a decoder, how many elements does it hold, and are its blocks spelled out?"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from firstfault_tools.memory.architecture import Tower
from firstfault_tools.memory.configuration import read_int
from firstfault_tools.memory.tally import tally

Config = Mapping[str, Any]


@cache
def _list_towers() -> dict[str, dict[str, Any]]:
    data = json.loads(Path(__file__).with_name("counts.json").read_text(encoding="utf-8"))
    towers: dict[str, dict[str, Any]] = data["towers"]
    return towers


def count_tower(outer: str, config: Config, vision: Config, text_hidden: int) -> int | None:
    """Elements of the tower and its projector; None where the type of model is not known.

    config: the whole file, for what stands outside its vision part. Raises InvalidParameter.
    """
    entry = _list_towers().get(outer)
    if entry is None:
        return None
    given = {name: value for name, value in entry.items() if name not in ("table", "from")}
    for name, key in entry.get("from", {}).items():
        if config.get(key) is not None:
            given[name] = (
                int(config[key]) if isinstance(config[key], bool) else read_int(key, config[key])
            )
    return tally(entry["table"], vision, text_hidden=text_hidden, **given)


def read_tower(outer: str, vision: Config) -> Tower | None:
    """Sizes of a tower whose blocks are spelled out: Qwen2.5-VL's are gated, Qwen2-VL's and Qwen3-VL's are not."""
    if outer not in ("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe"):
        return None

    def size(key: str, default: int) -> int:
        return read_int(key, vision.get(key, default))

    if outer.startswith("qwen3"):
        return Tower(
            size("depth", 27), size("hidden_size", 1152), size("num_heads", 16),
            size("intermediate_size", 4304), size("spatial_merge_size", 2), gated=False,
        )  # fmt: skip
    gated = "intermediate_size" in vision
    hidden = size("hidden_size" if gated else "embed_dim", 1280)
    ffn = size("intermediate_size", 0) if gated else hidden * size("mlp_ratio", 4)
    return Tower(
        size("depth", 32), hidden, size("num_heads", 16), ffn, size("spatial_merge_size", 2), gated
    )
