"""Which whole number does a step, total or rank of a log stand for? Bounded: damage prints any digits."""

from __future__ import annotations

MAX_COUNTER, MAX_RANK = 2**62, 2**31 - 1
"""What the columns can hold; a larger number in a log is damage, not a step."""


def read_counter(value: str | float) -> int:
    """A step or total as a whole number within bounds. Raises ValueError for no number."""
    number = float(value)
    return int(min(max(number, -MAX_COUNTER), MAX_COUNTER)) if number == number else 0
