"""What does the maker promise of a card, and what share of it does a healthy one reach?

Published numbers are dense tensor rates and peak bandwidths; a healthy card reaches about 80 % of the
first in a large bf16 product and about 90 % of the second in a copy. The shares below are where a
reading is no longer explained by the way of measuring.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from firstfault_tools.dataclass import dataclass

TABLE = Path(__file__).with_name("cards.json")
# Usable GB/s of a x16 link one way, before protocol overhead.
PCIE_X16_GBS = {3: 15.75, 4: 31.5, 5: 63.0, 6: 126.0}
GEMM_SHARE = 0.60
COPY_SHARE = 0.75
HOST_SHARE = 0.60
PEER_SHARE = 0.60


@dataclass(frozen=True, slots=True)
class Card:
    """Published figures of one card; nvlink_total_gbs counts both directions, 0 is none."""

    name: str
    bf16_dense_tflops: float
    memory_gbs: float
    pcie_generation: int
    nvlink_total_gbs: float
    source: str


@cache
def load_cards() -> Mapping[str, Card]:
    """Cards by the name nvidia-smi prints."""
    rows = json.loads(TABLE.read_text(encoding="utf-8"))
    cards = {}
    for name, row in rows.items():
        card = Card(
            name,
            float(row["bf16_dense_tflops"]),
            float(row["memory_gbs"]),
            int(row["pcie_generation"]),
            float(row["nvlink_total_gbs"]),
            row["source"],
        )
        cards.update(dict.fromkeys(row["match"], card))
    return cards


def find_card(name: str) -> Card | None:
    """The card of that exact name, None where it is not in the table."""
    return load_cards().get(name.strip())


def find_floor(card: Card, metric: str) -> tuple[float, float] | None:
    """Lowest healthy value and published value for a metric of the merge, None where none is known."""
    if metric.startswith(("gemm_bf16_8192", "gemm_fp16_8192")):
        return GEMM_SHARE * card.bf16_dense_tflops, card.bf16_dense_tflops
    if metric == "copy_read_write_gbs":
        return COPY_SHARE * card.memory_gbs, card.memory_gbs
    if metric in ("host_to_device_gbs", "device_to_host_gbs"):
        link = PCIE_X16_GBS.get(card.pcie_generation)
        return (HOST_SHARE * link, link) if link else None
    if metric.startswith("peer_nvlink") and card.nvlink_total_gbs:
        one_way = card.nvlink_total_gbs / 2
        return PEER_SHARE * one_way, one_way
    return None
