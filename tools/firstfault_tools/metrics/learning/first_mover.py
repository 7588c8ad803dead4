"""What left its course before the loss did? Every quantity that the step lines print, whatever it is called.

A loss that rises is where a fault shows. A run that prints the share of its busiest expert, the dropped tokens or the
attention logits beside it often shows earlier where it began: the quantity that first leaves its usual range for good.
What a mover of a known name means is data: first_movers.json.
"""

from __future__ import annotations

import json
import math
import re
from collections import defaultdict
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from firstfault_tools.averages import median
from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.metrics.view import View

LEAST_BEFORE = 6
"""Rows before the loss turns from which a usual range can be told."""

MOST_ROWS = 4_000
MOST_COLUMNS = 60
BEYOND_NOISE, BEYOND_LEVEL = 6.0, 0.3
"""Deviations and share of its level by which a quantity must leave: six are no chance in thousands of rows, and less
than a third is drift."""

EARLIEST = 0.5
"""Share of the rows before the turn that tell what was usual."""

PRESENT = 0.9
"""Share of the rows that must print a quantity."""

_PAIR = expression(
    r"(?P<name>[A-Za-z][\w/.-]{0,40}(?: [A-Za-z][\w/.-]{0,20}){0,3})['\"]?\s{0,2}[:=]\s{0,4}['\"]?"
    r"(?P<value>[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)(?![\w:])"
)


@dataclass(frozen=True, slots=True)
class Known:
    """What a quantity of this name means where it moves first. kind: '' where it is only told."""

    names: re.Pattern[str]
    kind: str
    says: str


@dataclass(frozen=True, slots=True)
class Mover:
    """A quantity that left its course. row: the first row outside; usual: its level before; last: where it ended."""

    name: str
    row: int
    usual: float
    last: float
    known: Known | None

    @property
    def change(self) -> float:
        """Times its usual level that it moved by."""
        return abs(self.last - self.usual) / max(abs(self.usual), 1e-9)


@cache
def _table() -> tuple[re.Pattern[str], tuple[Known, ...]]:
    told = json.loads(Path(__file__).with_name("first_movers.json").read_text(encoding="utf-8"))
    movers = (Known(expression(r["names"]), r["kind"], r["says"]) for r in told["movers"])
    return expression(told["not_judged"]), tuple(movers)


def find_first_mover(view: View, turn: int, high: int) -> Mover | None:
    """The quantity that left its course first, and no later than the loss. turn: row of the lead rank from which the
    loss went up; high: row at which it was clearly above."""
    rows = range(max(0, len(view.lead) - MOST_ROWS), len(view.lead))
    if turn + 1 - rows.start < LEAST_BEFORE:
        return None
    movers = []
    for name, points in _read_columns(view, rows).items():
        mover = _judge_column(name, points, turn)
        if mover is not None and mover.row <= high:
            movers.append(mover)
    # of what moves together, what is known to be a cause and what moved furthest
    movers.sort(
        key=lambda m: (m.known is None or not m.known.kind, m.row, m.known is None, -m.change)
    )
    return movers[0] if movers else None


def _read_columns(view: View, rows: Sequence[int]) -> dict[str, list[tuple[int, float]]]:
    """(row, value) by name of what most of the rows print."""
    not_judged, known = _table()
    columns: dict[str, list[tuple[int, float]]] = defaultdict(list)
    for row in rows:
        seen = set()
        for found in _PAIR.finditer(view.text(view.lead, row)):
            name = found["name"].strip()
            if name in seen or len(columns) > MOST_COLUMNS:
                continue
            seen.add(name)
            columns[name].append((row, float(found["value"])))
    return {
        name: points
        for name, points in columns.items()
        if len(points) >= PRESENT * len(rows)
        and (not not_judged.search(name) or any(k.kind and k.names.search(name) for k in known))
    }


def _judge_column(name: str, points: Sequence[tuple[int, float]], turn: int) -> Mover | None:
    early = [value for row, value in points if row <= turn and math.isfinite(value)]
    early = early[: max(LEAST_BEFORE, int(len(early) * EARLIEST))]
    if len(early) < LEAST_BEFORE:
        return None
    usual = median(early)
    noise = 1.4826 * median([abs(value - usual) for value in early])
    margin = max(BEYOND_NOISE * noise, BEYOND_LEVEL * abs(usual), 1e-9)
    left: int | None = None
    for row, value in reversed(points):
        if math.isfinite(value) and abs(value - usual) <= margin:
            break
        left = row
    if left is None or left == points[0][0]:
        return None
    last = points[-1][1]
    known = next((k for k in _table()[1] if k.names.search(name)), None)
    return Mover(name, left, usual, last, known)
