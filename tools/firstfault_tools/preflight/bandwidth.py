"""Does the all-reduce of nccl-tests reach what its card's NVLink, or the network of a node, can give?

Tables that agree with each other may all be slow: the rate of the card (probe/cards.json) and of the fabric, where
somebody says it, is what they are held against.
"""

from __future__ import annotations

from collections.abc import Sequence

from firstfault_tools.expressions import expression
from firstfault_tools.hardware.network.nccl_tests import NcclRun, read_runs
from firstfault_tools.metrics.checklist import CheckState
from firstfault_tools.preflight.items import State
from firstfault_tools.probe.cards import PEER_SHARE, find_card

LARGE_BYTES = 64 << 20
"""Smaller messages are bound by latency and reach no link's rate."""
_CARD = expression(
    r"Rank\s+\d+\b.{0,120}?\bdevice\s+\d+\s+\[[^\]]{1,20}\]\s+(?P<card>\S.{0,60}?)\s*$"
)
_GPUS = expression(r"\bnGpus (\d{1,3})\b")


def check_bandwidth(files: Sequence[tuple[str, str]], fabric_gbs: float | None) -> State | None:
    """The state of the tables; None where none of them can be held against a rate."""
    reached: list[str] = []
    for name, text in files:
        lines = list(enumerate(text.splitlines(), 1))
        for run in read_runs(lines, name):
            held = _rate(run, text, fabric_gbs)
            if held is None:
                continue
            rate, what = held
            said = f"{run.label}: {run.best_gbs:.1f} GB/s of {rate:.0f} that {what} gives"
            if (run.best_gbs or 0.0) < PEER_SHARE * rate:
                return CheckState.FAILED, f"{said}, below {100 * PEER_SHARE:.0f} %"
            reached.append(said)
    return (CheckState.PASSED, "; ".join(reached[:3])) if reached else None


def _rate(run: NcclRun, text: str, fabric_gbs: float | None) -> tuple[float, str] | None:
    """(GB/s one way, of what) that bounds this run."""
    if not run.by_size or max(run.by_size) < LARGE_BYTES:
        return None
    if len(run.hosts) > 1:
        return (fabric_gbs, "the network of a node") if fabric_gbs else None
    shown = [m["card"] for line in text.splitlines() if (m := _CARD.search(line)) is not None]
    told = _GPUS.search(text)
    several = len(shown) > 1 or (told is not None and int(told[1]) > 1)
    card = find_card(shown[0]) if shown and several and run.hosts else None
    if card is None or not card.nvlink_total_gbs:
        return None
    return card.nvlink_total_gbs / 2, f"NVLink of {card.name} one way"
