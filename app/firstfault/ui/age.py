"""How long did it last, and how old is it? What a reader at night would have to reckon from two stamps."""

from __future__ import annotations

from datetime import UTC, datetime

from firstfault.investigation.begin import time_of_fault
from firstfault.investigation.diagnosis import Diagnosis
from firstfault.ui.extent import LEAST_IDLE_S, LONGEST_S
from firstfault.ui.spans import say_span
from firstfault_tools.log.clock import NO_YEAR

DAY_S = 86_400.0
LEAST_AGE_S = 2 * DAY_S
"""Age from which it is said: stamps without a zone are taken as UTC and may be wrong by most of a day."""

_UNITS = ((730, 365.25, "years"), (61, 30.44, "months"), (14, 7.0, "weeks"), (0, 1.0, "days"))
"""(from how many days, days of one, its name), the largest first."""


def say_age(seconds: float) -> str:
    """`5 months ago`; '' where a wrong zone could change it."""
    if seconds < LEAST_AGE_S:
        return ""
    days = seconds / DAY_S
    length, name = next((length, name) for least, length, name in _UNITS if days >= least)
    return f"{days / length:.0f} {name} ago"


def describe_age(diagnosis: Diagnosis, now: float) -> str:
    """`10 min 6 s before the last line; 5 months ago`, as far as it is known. now: seconds since the epoch."""
    at, _ = time_of_fault(diagnosis)
    if at is None:
        return ""
    parts = []
    if diagnosis.input.time_range is not None:
        last = datetime.fromisoformat(diagnosis.input.time_range[1].replace("Z", "+00:00"))
        lasted = last.timestamp() - at
        if LEAST_IDLE_S <= lasted < LONGEST_S:
            parts.append(f"{say_span(lasted)} before the last line")
    if datetime.fromtimestamp(at, UTC).year != NO_YEAR and (age := say_age(now - at)):
        parts.append(age)
    return "; ".join(parts)
