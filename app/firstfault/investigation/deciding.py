"""Which line decides? Never the frame of a table: a rule of dashes or the names of its columns carry nothing."""

from __future__ import annotations

from dataclasses import replace

from firstfault_tools.expressions import expression
from firstfault_tools.findings import Finding

_RULE = expression(r"^[^A-Za-z0-9]*$")
_GAP = expression(r"\s{2,}|\t|\s*[|,]\s*")
_NAME = expression(r"^[A-Za-z%][A-Za-z_%/.()\[\]-]*(?: [A-Za-z%/()-]+){0,2}$")
_WORDS = expression(r"^\s*[A-Z][A-Za-z%]*(?:\s+[A-Z][A-Za-z%]*){2,}\s*$")
LEAST_COLUMNS = 3


def is_frame(text: str) -> bool:
    """A rule, or a row of at least three names of columns and nothing else."""
    if _RULE.match(text) or _WORDS.match(text):
        return True
    cells = [cell for cell in _GAP.split(text.strip().strip("|").strip()) if cell]
    return len(cells) >= LEAST_COLUMNS and all(_NAME.match(cell) for cell in cells)


def drop_frames(finding: Finding) -> Finding:
    """The finding without such lines among its evidence, unless it rests on nothing else."""
    kept = tuple(e for e in finding.evidence if not is_frame(e.text))
    return replace(finding, evidence=kept) if 0 < len(kept) < len(finding.evidence) else finding
