"""How does work grow with its input? By counted calls, or by the ratio of CPU times, never by seconds."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from types import FrameType


def count_calls(work: Callable[[], object]) -> int:
    """Function calls, those of C functions included; the same on every machine."""
    count = 0

    def note(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count


def grow_calls(make: Callable[[int], Callable[[], object]], small: int, times: int = 4) -> float:
    """How many times as many calls the work of `times * small` takes as that of `small`."""
    works = make(small), make(small * times)
    few, many = (count_calls(work) for work in works)
    return many / few


def grow_cpu(make: Callable[[int], Callable[[], object]], small: int, times: int = 4) -> float:
    """The same of CPU time, for work inside one C call; the least of three runs of each.

    `small` should take some milliseconds: a shorter run drowns in the clock.
    """
    return compare_cpu(make(small * times), make(small))


def compare_cpu(work: Callable[[], object], other: Callable[[], object]) -> float:
    """How many times the CPU time of `other` the work takes; the least of three runs of each."""
    long, short = (min(_spend(one) for _ in range(3)) for one in (work, other))
    return long / max(short, 1e-4)


def _spend(work: Callable[[], object]) -> float:
    begin = time.process_time()
    work()
    return time.process_time() - begin
