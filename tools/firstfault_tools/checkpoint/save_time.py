"""How long did training stand still for each save, as the run's own log tells it?

Megatron's timer (`save-checkpoint ......: (min, max)` in milliseconds, megatron/training/training.py),
torchtitan's `Finished saving the checkpoint in 12.34 seconds` (torchtitan/components/checkpoint.py) and
NVRx and Megatron's `successfully saved checkpoint ... took 12.3s` forms.
"""

from __future__ import annotations

from firstfault_tools.expressions import expression

_TIMER = expression(r"\bsave-checkpoint \.{2,60}: \((\d{1,9}\.\d{1,4}), (\d{1,9}\.\d{1,4})\)")
_FINISHED = expression(
    r"[Ff]inished saving the checkpoint[^\n]{0,80}? in (\d{1,6}(?:\.\d{1,4})?) ?s"
)
_TOOK = expression(
    r"[Ss]aved? (?:the )?checkpoint[^\n]{0,160}? (?:took|in) (\d{1,6}(?:\.\d{1,4})?) ?s"
)
MAX_TEXT = 64 * 1024 * 1024


def read_save_seconds(text: str) -> tuple[float, ...]:
    """Seconds of every save in the log, empty where it tells none; the slowest rank counts."""
    text = text[:MAX_TEXT]
    found = [float(match[2]) / 1000 for match in _TIMER.finditer(text)]
    if not found:
        found = [float(match[1]) for match in _FINISHED.finditer(text)]
    if not found:
        found = [float(match[1]) for match in _TOOK.finditer(text)]
    return tuple(found)
