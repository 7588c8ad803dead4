"""Which events come before failures more often than chance, and when do failures come?

Risk ratio: of the windows that follow an event, the share with a failure, over the share of all other
windows of that length. The interval is Katz's on the log scale. Few failures give wide intervals, and
below five a ratio is shown as too few to tell. Works on any timed events: those of one run, or the
incidents of a database.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from firstfault_tools.dataclass import dataclass
from firstfault_tools.errors import InvalidParameter
from firstfault_tools.findings import Json
from firstfault_tools.registry import Calculator

LEAST = 5
Z = 1.959964
PERIODS = {"hour": 3600.0, "day": 86400.0, "week": 604800.0}


@dataclass(frozen=True, slots=True)
class TimedEvent:
    """Something that happened. time: seconds on any common clock."""

    kind: str
    time: float


@dataclass(frozen=True, slots=True)
class Precursor:
    """How one kind of event stands to failures.

    preceded: failures with such an event in the window before. ratio, low, high: risk ratio with its 95
    % interval, None where it cannot be formed. enough: at least five failures and both groups filled.
    """

    kind: str
    events: int
    windows_with_failure: int
    windows: int
    other_with_failure: int
    other_windows: int
    preceded: int
    failures: int
    ratio: float | None
    low: float | None
    high: float | None
    enough: bool

    @property
    def raises_risk(self) -> bool:
        """Whether the whole interval lies above 1 and there are enough failures."""
        return self.enough and self.low is not None and self.low > 1


def _bins_of(times: Iterable[float], start: float, window: float, count: int) -> set[int]:
    return {
        min(count - 1, int((t - start) / window))
        for t in times
        if start <= t <= start + count * window
    }


def find_precursors(
    events: Sequence[TimedEvent],
    failures: Sequence[float],
    window: float = 300.0,
    span: tuple[float, float] | None = None,
) -> list[Precursor]:
    """Risk ratio of every kind of event, strongest first.

    window: seconds after an event in which a failure counts. span: observed time, by default from the
    first to the last mark. The span is cut into windows of this length; a window is exposed when an
    event falls into it or into the one before and precedes its failures.
    """
    if not window > 0:
        raise InvalidParameter("window", f"must be positive, got {window}")
    marks = [e.time for e in events] + list(failures)
    if not marks or not failures:
        return []
    start, end = span if span is not None else (min(marks), max(marks))
    count = max(1, math.ceil((end - start) / window - 1e-9))
    if count > 50_000_000:
        raise InvalidParameter("window", "is too short for this span; use a longer one")
    by_kind: dict[str, list[float]] = {}
    for event in events:
        by_kind.setdefault(event.kind, []).append(event.time)
    found = [
        _weigh(kind, sorted(times), failures, window, (start, end, count))
        for kind, times in sorted(by_kind.items())
    ]
    return sorted(found, key=lambda p: (not p.enough, -(p.low or 0.0), p.kind))


def _weigh(
    kind: str,
    times: Sequence[float],
    failures: Sequence[float],
    window: float,
    span: tuple[float, float, int],
) -> Precursor:
    """One kind of event. span: start, end and number of windows."""
    start, end, count = span
    exposed = {int((t - start) / window) for t in times if start <= t <= end}
    last_before = {f: _last_before(times, f, window) for f in failures}
    hit = {int((t - start) / window) for t in last_before.values() if t is not None}
    others = max(0, count - len(exposed))
    rest = [f for f in failures if last_before[f] is None and start <= f <= end]
    other_hit = min(others, len(_bins_of(rest, start, window, count)))
    ratio, low, high = _risk_ratio(len(hit), len(exposed), other_hit, others)
    return Precursor(
        kind=kind,
        events=len(times),
        windows_with_failure=len(hit),
        windows=len(exposed),
        other_with_failure=other_hit,
        other_windows=others,
        preceded=sum(last_before[f] is not None for f in failures),
        failures=len(failures),
        ratio=ratio,
        low=low,
        high=high,
        enough=len(failures) >= LEAST and len(hit) >= 2 and others > 0,
    )


def _last_before(times: Sequence[float], failure: float, window: float) -> float | None:
    """The last of the events in the window before a failure."""
    return max((t for t in times if 0 <= failure - t <= window), default=None)


def _risk_ratio(
    a: int, n1: int, b: int, n0: int
) -> tuple[float | None, float | None, float | None]:
    """(ratio, low, high) of a in n1 against b in n0; None where it cannot be formed."""
    if not (n1 and n0 and a + b):
        return None, None, None
    # Half a count each keeps the ratio finite where one group saw no failure.
    add = 0.5 if a == 0 or b == 0 else 0.0
    pa, pb = (a + add) / (n1 + 2 * add), (b + add) / (n0 + 2 * add)
    ratio = pa / pb
    wide = math.sqrt(
        max(0.0, 1 / (a + add) - 1 / (n1 + 2 * add) + 1 / (b + add) - 1 / (n0 + 2 * add))
    )
    return ratio, ratio * math.exp(-Z * wide), ratio * math.exp(Z * wide)


@dataclass(frozen=True, slots=True)
class Rhythm:
    """Whether failures keep to a period. strength: 0 none to 1 always at `phase` (seconds into it).

    p_value: Rayleigh test, times the number of periods tried.
    """

    name: str
    period: float
    phase: float
    strength: float
    p_value: float


def find_rhythm(failures: Sequence[float], periods: dict[str, float] | None = None) -> list[Rhythm]:
    """Periods that failures keep to, most certain first; only those with p below 0.05."""
    tried = PERIODS if periods is None else periods
    if len(failures) < LEAST:
        return []
    found = []
    for name, period in tried.items():
        if max(failures) - min(failures) < 2 * period:
            continue
        angles = [2 * math.pi * (t % period) / period for t in failures]
        n = len(angles)
        c, s = sum(map(math.cos, angles)) / n, sum(map(math.sin, angles)) / n
        r = math.hypot(c, s)
        z = n * r * r
        p = math.exp(-z) * (1 + (2 * z - z * z) / (4 * n))
        phase = (math.atan2(s, c) % (2 * math.pi)) / (2 * math.pi) * period
        found.append(Rhythm(name, period, phase, r, min(1.0, max(0.0, p) * len(tried))))
    return sorted((f for f in found if f.p_value < 0.05), key=lambda f: f.p_value)


@dataclass(frozen=True, slots=True)
class Clustering:
    """Do failures come in bursts? dispersion: 1 for chance, above for bursts, below for regular."""

    failures: int
    dispersion: float
    p_value: float
    bursts: tuple[tuple[float, float, int], ...]
    """(first, last, count) of each burst."""

    @property
    def clustered(self) -> bool:
        """More bursts than chance would make, at 1 %."""
        return self.p_value < 0.01 and self.dispersion > 1


def find_clustering(failures: Sequence[float]) -> Clustering | None:
    """Test of the counts in equal bins against a Poisson process; None with fewer than five failures."""
    if len(failures) < LEAST:
        return None
    from scipy.stats import chi2

    times = sorted(failures)
    span = times[-1] - times[0]
    if span <= 0:
        return Clustering(len(times), float(len(times)), 0.0, ((times[0], times[-1], len(times)),))
    bins = max(5, len(times))
    counts = [0] * bins
    for t in times:
        counts[min(bins - 1, int((t - times[0]) / span * bins))] += 1
    mean = len(times) / bins
    dispersion = sum((c - mean) ** 2 for c in counts) / ((bins - 1) * mean)
    p_value = float(chi2.sf(dispersion * (bins - 1), bins - 1))
    near = span / len(times) / 4
    bursts, first = [], 0
    for i in range(1, len(times) + 1):
        if i == len(times) or times[i] - times[i - 1] > near:
            if i - first >= 3:
                bursts.append((times[first], times[i - 1], i - first))
            first = i
    return Clustering(len(times), dispersion, p_value, tuple(bursts))


def describe_precursor(found: Precursor) -> str:
    """The ratio in one sentence, or that there are too few failures to tell."""
    seen = (
        f"{found.preceded} of {found.failures} failures came within the window after {found.kind}"
    )
    if not found.enough or found.ratio is None:
        return f"{seen}; too few to tell (at least {LEAST} failures are needed)"
    return (
        f"{seen}; risk ratio {found.ratio:.1f} (95 % interval {found.low:.1f} to {found.high:.1f})"
        + ("" if found.raises_risk else ", not distinguishable from chance")
    )


def calculate_correlation(
    events: Sequence[Mapping[str, object]] = (),
    failures: Sequence[float] = (),
    window_s: float = 300.0,
) -> Mapping[str, Json]:
    """Precursors, rhythm and bursts for the command line, MCP and the model."""
    timed = []
    for entry in events:
        kind, time = entry.get("kind"), entry.get("time_s")
        if not isinstance(kind, str) or not isinstance(time, int | float):
            raise InvalidParameter("events", "each needs a kind (text) and a time_s (number)")
        timed.append(TimedEvent(kind[:100], float(time)))
    times = [float(t) for t in failures]
    if not all(map(math.isfinite, [*times, *(e.time for e in timed)])):
        raise InvalidParameter("failures", "times must be finite")
    found = find_precursors(timed, times, window_s)
    bursts = find_clustering(times)
    return {
        "precursors": [
            {
                "kind": p.kind,
                "risk_ratio": p.ratio,
                "low_95": p.low,
                "high_95": p.high,
                "enough": p.enough,
                "sentence": describe_precursor(p),
            }
            for p in found
        ],
        "rhythms": [
            {"name": r.name, "period_s": r.period, "phase_s": r.phase, "p_value": r.p_value}
            for r in find_rhythm(times)
        ],
        "clustering": None
        if bursts is None
        else {
            "clustered": bursts.clustered,
            "dispersion": bursts.dispersion,
            "p_value": bursts.p_value,
            "bursts": [
                {"first_s": first, "last_s": last, "count": count}
                for first, last, count in bursts.bursts
            ],
        },
    }


CALCULATOR = Calculator(
    name="correlate_failures",
    summary="Which events come before failures more often than chance (risk ratios with intervals), "
    "and do failures keep to a period or come in bursts?",
    parameters={
        "type": "object",
        "required": ["events", "failures"],
        "additionalProperties": False,
        "properties": {
            "events": {
                "type": "array",
                "items": {
                    "type": "object",
                    "required": ["kind", "time_s"],
                    "properties": {"kind": {"type": "string"}, "time_s": {"type": "number"}},
                },
            },
            "failures": {"type": "array", "items": {"type": "number"}, "description": "times in s"},
            "window_s": {"type": "number", "exclusiveMinimum": 0},
        },
    },
    run=calculate_correlation,
)
