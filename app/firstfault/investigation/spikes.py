"""Were the spikes got over that a person speaks of? A jump of loss or gradient norm that comes back is no divergence.

Answered only where all of them came back and the curve ends no higher than it stood before the first: what a
person sees on a dashboard is then seen here as well, with its end.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite

from firstfault.investigation.curves import Curve, read_curve
from firstfault.investigation.examination import Examination
from firstfault_tools.averages import median
from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Category, Evidence, Finding, Level

BEFORE = 20
"""Values that make the level from which a spike rises."""

RISES = {"loss": 1.15, "gradient norm": 2.0}
"""Times its level from which a value is one: gradient norms of single batches scatter by half, losses by per cents."""

BACK = 1.08
"""Times the level at which a curve is back; the share by which a smooth loss scatters around its trend."""

SHOWN = 3

_SPIKE = expression(
    r"(?i)\bspik(?:e|es|ed|ing)\b|\bjump(?:s|ed)?\b|\bbumps?\b|\bpeaks?\b|尖峰|突刺|スパイク|\bausreißer\b"
)


@dataclass(frozen=True, slots=True)
class Spike:
    """Index of the first value above, of the first that is back, and the level before."""

    start: int
    back: int
    level: float


def find_spikes(examination: Examination, question: str) -> Finding | None:
    """A benign finding that shows every spike of the quantities asked about to be over; None otherwise."""
    if not _SPIKE.search(question):
        return None
    told: list[tuple[Curve, list[Spike]]] = []
    for name in ("loss", "gradient norm"):
        curve = read_curve(examination, name)
        if curve is None:
            continue
        spikes = read_spikes(curve.values, RISES[name])
        if spikes is None:
            return None
        if spikes:
            told.append((curve, spikes))
    if not told:
        return None
    places = [p for curve, spikes in told for p in _quote(curve, spikes)]
    words = "; ".join(_tell(curve, spikes) for curve, spikes in told)
    return Finding.of_question("spikes_over", words, Level.BENIGN, Category.NUMERICAL, places)


def read_spikes(values: Sequence[float], rises: float) -> list[Spike] | None:
    """Spikes that came back, in order; None where one did not, the curve ends above, or a value is no number."""
    if not all(map(isfinite, values)):
        return None
    found: list[Spike] = []
    index = BEFORE
    while index < len(values):
        level = median(values[index - BEFORE : index])
        if level <= 0 or values[index] < rises * level:
            index += 1
            continue
        back = next((i for i in range(index, len(values)) if values[i] <= BACK * level), None)
        if back is None:
            return None
        found.append(Spike(index, back, level))
        index = back + BEFORE
    ends = median(values[-BEFORE:])
    return found if not found or ends <= BACK * found[0].level else None


def _tell(curve: Curve, spikes: Sequence[Spike]) -> str:
    most = max(max(curve.values[s.start : s.back]) for s in spikes)
    longest = max(s.back - s.start for s in spikes)
    often = "once" if len(spikes) == 1 else f"{len(spikes)} times"
    return (
        f"the {curve.name} jumps {often}, to {most:.4g} at most, and is back at its level of before after "
        f"{longest} printed value{'s' if longest > 1 else ''} at the longest; it stood at {spikes[0].level:.4g} before and ends at "
        f"{median(curve.values[-BEFORE:]):.4g}: got over, as after a hard batch, and no divergence"
    )


def _quote(curve: Curve, spikes: Sequence[Spike]) -> list[Evidence]:
    rows = [i for s in spikes[:SHOWN] for i in (s.start, s.back)]
    return [
        Evidence(curve.file, n, t.strip()[:600])
        for n, t in (curve.places[i] for i in dict.fromkeys(rows))
    ]
