"""For how long does a line say that something has waited when it was written?

A watchdog reports a collective only when its time is over: the run has stood still since it was enqueued.
"""

from __future__ import annotations

from firstfault_tools.expressions import expression

_WAITED = expression(
    r"(?i)\bran for (?P<ms>\d{4,9}) milliseconds|"
    r"(?:timed out (?:after|waiting)|blocked for more than|no (?:output|progress|response) for) (?P<s>\d{2,6}) ?s(?:ec(?:onds?)?)?\b"
)


def wait_in(text: str) -> float:
    """Seconds; 0 where the line says none."""
    found = _WAITED.search(text)
    if found is None:
        return 0.0
    return float(found["ms"]) / 1000 if found["ms"] else float(found["s"])
