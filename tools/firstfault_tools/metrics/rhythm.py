"""Is a silence longer than the pauses that belong to it? The rhythm of what comes again and again."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field

from firstfault_tools.dataclass import dataclass

LEAST_S = 120.0
"""No silence below it counts: a save or an evaluation of the first minutes has no fellow yet to be known by."""
USUAL_TIMES = 10.0
PAUSE_TIMES = 3.0
KEPT = 100


@dataclass
class Rhythm:
    """Learns from what comes. fixed: seconds of silence that count, where somebody said so."""

    fixed: float | None = None
    first: float | None = None
    last: float | None = None
    count: int = 0
    gaps: list[float] = field(default_factory=list)
    pauses: tuple[float, float] = (0.0, 0.0)
    """The two longest; the longest alone may have been a stall that ended."""

    def beat(self, now: float, count: int = 1) -> None:
        """`count` of them came, the last one at `now`."""
        if self.last is not None and now > self.last:
            self._take(now - self.last, count)
        self.first = now if self.first is None else self.first
        self.last, self.count = now, self.count + count

    def learn(self, times: Iterable[float]) -> None:
        """Printed times of what was there before: gaps alone, since their clock is another."""
        before: float | None = None
        for time in times:
            if before is not None and time > before:
                self._take(time - before, 1)
            before = time

    def _take(self, gap: float, count: int) -> None:
        self.gaps = [*self.gaps[1 - KEPT :], gap / count]
        longest, second = sorted((*self.pauses, gap), reverse=True)[:2]
        self.pauses = longest, second

    @property
    def usual(self) -> float:
        """Seconds from one to the next; 0 before two came."""
        return sorted(self.gaps)[len(self.gaps) // 2] if self.gaps else 0.0

    @property
    def limit(self) -> float:
        """Seconds of silence that count: more than its gaps and than the pauses that came twice."""
        if self.fixed is not None:
            return self.fixed
        return max(LEAST_S, USUAL_TIMES * self.usual, PAUSE_TIMES * self.pauses[1])

    def silence(self, now: float) -> float:
        """Seconds since the last one; 0 before the first."""
        return 0.0 if self.last is None else now - self.last

    @property
    def is_known(self) -> bool:
        """It went on for longer than a silence that counts: what only opened with some lines has no rhythm."""
        if self.fixed is not None:
            return self.count > 0
        return (
            self.first is not None
            and self.last is not None
            and self.last - self.first >= self.limit
        )
