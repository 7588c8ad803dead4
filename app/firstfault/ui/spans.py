"""How is a length of time said?"""

from __future__ import annotations


def say_span(seconds: float) -> str:
    """`10 min 1 s`, `2 h 5 min`, `48 s`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
