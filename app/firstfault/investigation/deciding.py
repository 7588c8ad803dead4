"""Which line decides? Never the frame of a table: a rule of dashes or the names of its columns carry nothing."""

from __future__ import annotations

from dataclasses import replace

from firstfault_tools.findings import Finding
from firstfault_tools.hardware.host.tables import is_frame


def drop_frames(finding: Finding) -> Finding:
    """The finding without such lines among its evidence, unless it rests on nothing else."""
    kept = tuple(e for e in finding.evidence if not is_frame(e.text))
    return replace(finding, evidence=kept) if 0 < len(kept) < len(finding.evidence) else finding
