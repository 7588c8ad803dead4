"""Which checkpoint is the one to go back to, by the log, and is one of those that are kept old enough? Said with the fix that goes back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from firstfault.investigation.diagnosis import Fix
from firstfault_tools.checkpoint.saves import Checkpoints, read_checkpoints
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Finding
from firstfault_tools.log.digest import FileDigest

_GOES_BACK = expression(
    r"(?i)\b(?:go back|return|resume|start again)\b[^.;]{0,12} (?:to|from) (?:a|the)(?: last)? checkpoint (?:from )?before\b"
)
_STEP = expression(r"\b(?P<word>[a-z]+) (?P<step>\d{1,9})$")
NONE_LEFT = "None that is kept"
LAST_GOOD = "last_good"
"""Fact of a finding: the last step at which the numbers were right, `iteration 24910`."""


def name_return_point(
    fixes: Sequence[Fix], finding: Finding | None, digests: Sequence[FileDigest]
) -> tuple[Fix, ...]:
    """The fixes; the first that goes back to a checkpoint names it, or says that none is left to go back to."""
    good = _STEP.search(str(finding.facts.get(LAST_GOOD, ""))) if finding is not None else None
    at = next((n for n, f in enumerate(fixes) if _GOES_BACK.search(f.text)), None)
    if good is None or at is None:
        return tuple(fixes)
    lines = ((d.file, number, text, None) for d in digests for number, text in d.kept)
    told = _say(read_checkpoints(lines), good["word"], int(good["step"]))
    out = list(fixes)
    out[at] = replace(out[at], text=f"{out[at].text} {told}".strip())
    return tuple(out)


def _say(checkpoints: Checkpoints, word: str, step: int) -> str:
    """What is left to go back to; '' where the log tells of no checkpoint, or not of all that are left."""
    best = checkpoints.usable(step)
    if best is not None and best.step is not None:
        return f"The newest one from then is that of {word} {best.step}."
    if not checkpoints.kept:
        return ""
    kept = ", ".join(map(str, checkpoints.kept))
    return f"{NONE_LEFT} ({kept}) is as old as {word} {step}: take an archived one, else begin from scratch with the change."


def says_none_left(fixes: Sequence[Fix]) -> bool:
    """A fix already says that no checkpoint is old enough."""
    return any(NONE_LEFT in f.text for f in fixes)
