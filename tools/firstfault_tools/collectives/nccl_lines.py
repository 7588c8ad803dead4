"""What do the NCCL lines inside a log say? The NCCL_DEBUG analysis as a finder over numbered lines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from firstfault_tools.collectives.nccl_info import analyse_nccl_info
from firstfault_tools.findings import Finding, Level


def find_in_lines(lines: Sequence[tuple[int, str]], file: str) -> tuple[Finding, ...]:
    """Findings of NCCL's own lines. Sockets between nodes are a sickness where nothing died."""
    return tuple(
        replace(f, level=Level.FAILURE, facts={**f.facts, "severity": "warning"})
        if f.kind == "nccl.socket_fallback"
        else f
        for f in analyse_nccl_info(lines, file)
    )
