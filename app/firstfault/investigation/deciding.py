"""Which line decides? Never the frame of a table, whose dashes and names of columns carry nothing, nor a row that is
only quoted to compare with."""

from __future__ import annotations

from dataclasses import replace

from firstfault_tools.findings import Finding
from firstfault_tools.hardware.host.tables import is_frame


def drop_frames(finding: Finding) -> Finding:
    """The finding without such lines among its evidence, unless it rests on nothing else."""
    kept = tuple(e for e in finding.evidence if not is_frame(e.text))
    return replace(finding, evidence=kept) if 0 < len(kept) < len(finding.evidence) else finding


def put_odd_first(finding: Finding) -> Finding:
    """The finding with what it quotes to compare with behind what shows the trouble."""
    ordered = tuple(sorted(finding.evidence, key=lambda e: e.usual))
    return replace(finding, evidence=ordered) if ordered != finding.evidence else finding
