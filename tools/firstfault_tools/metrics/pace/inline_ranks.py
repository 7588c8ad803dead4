"""Which rank is slow where one line gives a time for each (`offload (s): r0=1.9 r1=15.2`, `time by rank: 0=1.9 1=15.2`)?

Read beside it: Megatron's straggler report, which gives the fastest and the slowest rank of each quantity
(`MnRtt/Rnk: 3801ms/21 | MxRtt/Rnk: 5602ms/37`). A rank counts where it is the slow one again and again.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import chain

from firstfault_tools.averages import median
from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.facts import Fact
from firstfault_tools.findings import Category, Finding, Level
from firstfault_tools.hardware.excerpt import keep_marked, quote_line

GATE = ("r0=", "r0:", "rank0=", "rank0:", "Rtt/Rnk", "per rank", "by rank", "each rank")
MOST_LINES, LINE_CHARS = 4_000, 4_000
LEAST_RANKS, LEAST_LINES = 3, 3
SLOW = 1.3
"""Times the median of the others from which on everybody waits for a rank: below it steps scatter."""

STEADY = 0.8
"""Share of the lines in which the same rank must be the slow one."""

_RUN = expression(
    r"(?P<name>[^|;,]{0,60}?)[ (\[{]{0,3}(?P<items>\b(?:rank ?|r)\d{1,5}[=:] ?\d{1,7}(?:\.\d{1,6})?\w{0,3}(?:[ ,]{1,3}(?:rank ?|r)\d{1,5}[=:] ?\d{1,7}(?:\.\d{1,6})?\w{0,3}){2,})"
)
_LISTED = expression(
    r"(?i)(?P<name>[^|;,]{0,60}?\b(?:by|per|of each|for each) rank\b[^|;,:=\d]{0,20})[:=]?[ \[{]{0,4}"
    r"(?P<items>\d{1,5}[=:] ?\d{1,7}(?:\.\d{1,6})?(?:[ ,]{1,3}\d{1,5}[=:] ?\d{1,7}(?:\.\d{1,6})?){2,})"
)
"""`compute_s by rank: 0=4.61 1=4.60`: the words before the list say that its numbers are ranks."""

_ITEM = expression(r"\b(?:rank ?|r)?(?P<rank>\d{1,5})[=:] ?(?P<value>\d{1,7}(?:\.\d{1,6})?)")
_TIME = expression(
    r"(?i)(?<![a-z])(?:m?s|sec\w*|time|latency|wait|elapsed|duration)\b|\d(?:ms|s)\b"
)
_EXTREMES = expression(
    r"MnRtt/Rnk: (?P<low>\d+(?:\.\d+)?)ms/(?P<fast>\d{1,6}) \| MxRtt/Rnk: (?P<high>\d+(?:\.\d+)?)ms/(?P<slow>\d{1,6})"
)
_LOWEST = expression(r"MnClk/Rnk: (?P<clock>\d{2,5})MHz/(?P<rank>\d{1,6})")
_HOTTEST = expression(r"MxTmp/Rnk: (?P<heat>\d{2,3})C/(?P<rank>\d{1,6})")


@dataclass(frozen=True, slots=True)
class Slow:
    """The slow rank of one line: its time, that of the others, and what else is said of it."""

    number: int
    text: str
    rank: int
    value: float
    usual: float
    beside: str = ""

    @property
    def counts(self) -> bool:
        return self.usual > 0 and self.value >= SLOW * self.usual


def find_in_lines(lines: Sequence[tuple[int, str]], file: str) -> tuple[Finding, ...]:
    """One straggler a log: of the quantity in which it stands out most."""
    series: dict[str, list[Slow]] = defaultdict(list)
    for number, text in keep_marked(lines, GATE)[:MOST_LINES]:
        for name, slow in _read(number, text[:LINE_CHARS]):
            series[name].append(slow)
    found = [f for name, rows in series.items() if (f := _judge(name, rows, file)) is not None]
    return tuple(sorted(found, key=lambda f: -(f.number(Fact.RATIO) or 0.0))[:1])


def _read(number: int, text: str) -> Iterator[tuple[str, Slow]]:
    extremes = _EXTREMES.search(text)
    if extremes is not None:
        rank = int(extremes["slow"])
        beside = []
        clock, heat = _LOWEST.search(text), _HOTTEST.search(text)
        if clock is not None and int(clock["rank"]) == rank:
            beside.append(f"the lowest clock ({clock['clock']} MHz)")
        if heat is not None and int(heat["rank"]) == rank:
            beside.append(f"the highest temperature ({heat['heat']} C)")
        yield "round trip of a step", Slow(
            number, text, rank, float(extremes["high"]), float(extremes["low"]), " and ".join(beside)
        )  # fmt: skip
        return
    for run in chain(_RUN.finditer(text), _LISTED.finditer(text)):
        values = {int(m["rank"]): float(m["value"]) for m in _ITEM.finditer(run["items"])}
        words = run["name"].strip(" :=|").split()
        name = " ".join(w for w in words if not any(c.isdecimal() for c in w))[-40:]
        if len(values) < LEAST_RANKS or not _TIME.search(run[0]):
            continue
        rank = max(values, key=lambda r: values[r])
        usual = median(v for r, v in values.items() if r != rank)
        yield name, Slow(number, text, rank, values[rank], usual)


def _judge(name: str, rows: Sequence[Slow], file: str) -> Finding | None:
    """The rank that is the slow one in most lines of late; a report of many that began well is judged by its last half."""
    late = rows[-max(LEAST_LINES, len(rows) - len(rows) // 2) :]
    named = Counter(r.rank for r in late if r.counts)
    if len(late) < LEAST_LINES or not named:
        return None
    rank, times = named.most_common(1)[0]
    if times < STEADY * len(late):
        return None
    own = [r for r in late if r.rank == rank and r.counts]
    value, usual = median(r.value for r in own), median(r.usual for r in own)
    beside = f", and has {own[-1].beside}" if own[-1].beside else ""
    return Finding(
        kind="metrics.rank_straggler",
        title=f"Rank {rank} is slow: {name or 'its time'} {value:g} against {usual:g} of the other ranks "
        f"({value / usual:.2f}x) in {times} of {len(late)} rows{beside}; all ranks wait for it",
        level=Level.FAILURE,
        category=Category.PERFORMANCE,
        evidence=tuple(quote_line(file, r.number, r.text) for r in own[:2]),
        rank=rank,
        facts={"ranks": [rank], "ratio": round(value / usual, 3), "gpu_index": None},
    )
