"""Which rank runs on the GPU that a hardware finding names? Joins it with times by rank.

A GPU that slows down for heat and a rank that computes long are one fault seen from two sides: the
hardware is the cause and gets the rank, the slow rank is its symptom.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from firstfault_tools.findings import Finding, Level

STRAGGLER = "metrics.rank_straggler"
_SLOWS = frozenset(
    {"hardware.throttled", "hardware.clock_odd", "hardware.gpu_busy", "hardware.pcie_link"}
)


def join_stragglers(findings: Sequence[Finding]) -> list[Finding]:
    """Findings with ranks on the hardware findings that explain a straggler."""
    out = list(findings)
    for place, slow in enumerate(out):
        index = slow.facts.get("gpu_index")
        if slow.kind != STRAGGLER or not isinstance(index, int):
            continue
        joined = [i for i, f in enumerate(out) if _explains(f, slow, index, out)]
        if not joined:
            continue
        for i in joined:
            hardware = out[i]
            out[i] = replace(
                hardware,
                title=f"{hardware.title}; it is the GPU of rank {slow.rank}, for which all ranks wait",
                rank=slow.rank,
                host=hardware.host or slow.host,
                evidence=(*hardware.evidence, *slow.evidence[:2]),
            )
        out[place] = replace(slow, level=Level.SYMPTOM)
    return out


def _explains(hardware: Finding, slow: Finding, index: int, findings: Sequence[Finding]) -> bool:
    if not hardware.kind.startswith("hardware.") or hardware.level is not Level.CAUSE:
        return False
    if hardware.facts.get("gpu_index") != index or hardware.rank not in (None, slow.rank):
        return False
    if hardware.host is not None:
        return slow.host is None or hardware.host == slow.host
    # Without a host the GPU number alone could be any node's: taken only if one output was handed in.
    files = {e.file for f in findings if f.kind.startswith("hardware.gpu_") for e in f.evidence} | {
        e.file for e in hardware.evidence
    }
    return len(files) == 1 or hardware.kind in _SLOWS
