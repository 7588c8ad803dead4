"""Which rank stands out where each is given one figure: a step time, or the tokens that its experts took?

Reads what people paste beside a complaint: `rank 3 node-00: step time 715 ms`, `[rank3] step 10 step_time
0.72 s`, a CSV `rank,host,step_time_ms`, `[rank2] step 100 moe tokens routed: 21040`. Long logs of steps are
judged by their curves; here a rank has a few figures at most.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import field

from firstfault_tools.averages import median
from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Category, Evidence, Finding, Level
from firstfault_tools.hardware.excerpt import keep_marked
from firstfault_tools.placement.rank_table import RANK, find_host, is_ruled, read_heading

GATE = (
    "step time", "step_time", "iter time", "iter_time", "iteration time", "iteration_time", "time per step",
    "tokens routed", "routed tokens", "tokens received", "expert tokens", "moe tokens", "local tokens",
)  # fmt: skip
LEAST_RANKS, MOST_RANKS, MOST_FIGURES, MOST_LINES, MAX_LINE = 3, 65_536, 8, 8_192, 600
SLOW, SKEWED, ALIKE = 1.2, 1.5, 1.1
"""Times the median from which on a step time, and a load, stands out; how alike the others must be."""

_TIME = expression(
    r"(?i)(?:step|iter(?:ation)?)[ _]time(?:[ _]?\(?(?:ms|s)\)?)?[ \t]*[:=]?[ \t]*(?P<value>\d{1,9}(?:\.\d{1,9})?)"
)
_TOKENS = expression(
    r"(?i)(?:tokens (?:routed|received)|(?:routed|expert|moe|local) tokens(?: routed)?)[ \t]*[:=]?[ \t]*(?P<value>\d{1,12})"
)
_IS_TIME = expression(r"(?:step|iter|iteration) time")


@dataclass(slots=True)
class Figures:
    """Figures of one rank in the order of the log."""

    rank: int
    host: str | None = None
    values: list[float] = field(default_factory=list)
    line: int = 0
    text: str = ""


def find_in_lines(lines: Sequence[tuple[int, str]], file: str) -> tuple[Finding, ...]:
    """The rank, or the few, whose figure is far above that of all others."""
    marked = keep_marked(lines, GATE)[:MOST_LINES]
    times, tokens = dict[int, Figures](), dict[int, Figures]()
    for number, text in marked:
        if len(text) > MAX_LINE:
            continue
        if not times:
            _read_table(lines, number, text, times)
        _read(number, text, _TIME, times)
        _read(number, text, _TOKENS, tokens)
    load = _judge(tokens, SKEWED)
    late = _judge(times, SLOW)
    if load:
        return (_describe_load(load, tokens, file),)
    return (_describe_late(late, times, file),) if late else ()


def _read(number: int, text: str, pattern: re.Pattern[str], into: dict[int, Figures]) -> None:
    named = RANK.search(text)
    told = pattern.search(text, named.end()) if named else None
    if named is not None and told is not None:
        _add(into, int(named["rank"]), find_host(text, named), float(told["value"]), number, text)


def _read_table(
    lines: Sequence[tuple[int, str]], number: int, text: str, into: dict[int, Figures]
) -> None:
    table = read_heading(text)
    times = table.columns(_IS_TIME.match) if table is not None else ()
    if table is None or not times:
        return
    for at, row in lines:
        if at <= number or is_ruled(row):
            continue
        read = table.read_row(row)
        value = read.numbers[times[0]] if read is not None else None
        if read is None or value is None:
            return
        _add(into, read.rank, read.host, value, at, row)


def _add(
    into: dict[int, Figures], rank: int, host: str | None, value: float, number: int, text: str
) -> None:
    if rank not in into and len(into) >= MOST_RANKS:
        return
    mine = into.setdefault(rank, Figures(rank))
    mine.values.append(value)
    mine.host = mine.host or host
    mine.line, mine.text = number, text.strip()[:400]


def _judge(figures: dict[int, Figures], above: float) -> list[Figures]:
    """Those that stand out, the worst first; empty where nobody does or a curve should be judged."""
    if len(figures) < LEAST_RANKS or any(len(f.values) > MOST_FIGURES for f in figures.values()):
        return []
    level = {f.rank: median(f.values) for f in figures.values()}
    usual = median(level.values())
    high = [f for f in figures.values() if level[f.rank] >= above * usual > 0]
    rest = [level[f.rank] for f in figures.values() if f not in high]
    if not high or 2 * len(high) >= len(figures) or max(rest) > ALIKE * min(rest):
        return []
    return sorted(high, key=lambda f: -level[f.rank])


def _who(high: Sequence[Figures]) -> str:
    worst = high[0]
    if len(high) > 1:
        return f"Ranks {', '.join(str(f.rank) for f in sorted(high, key=lambda f: f.rank)[:8])}"
    return f"Rank {worst.rank}" + (f" ({worst.host})" if worst.host else "")


def _finding(
    kind: str,
    title: str,
    high: Sequence[Figures],
    figures: dict[int, Figures],
    file: str,
    page: str,
) -> Finding:
    rest = next(f for f in figures.values() if f not in high)
    hosts = {f.host for f in high}
    return Finding(
        kind=kind,
        title=title,
        level=Level.FAILURE,
        category=Category.PERFORMANCE,
        evidence=tuple(
            Evidence(file, f.line, f.text, rank=f.rank, host=f.host) for f in (*high[:4], rest)
        ),
        rank=high[0].rank if len(high) == 1 else None,
        host=hosts.pop() if len(hosts) == 1 else None,
        page=page,
        facts={"ranks": [f.rank for f in high]},
    )


def _describe_late(high: Sequence[Figures], figures: dict[int, Figures], file: str) -> Finding:
    own, usual = median(high[0].values), median(median(f.values) for f in figures.values() if f not in high)  # fmt: skip
    title = (
        f"{_who(high)} {'is' if len(high) == 1 else 'are'} slow: a step takes {own:g} against {usual:g} on the other "
        f"{len(figures) - len(high)} ranks ({own / usual:.2f}x); the whole job runs at that pace"
    )
    return _finding("metrics.rank_straggler", title, high, figures, file, "straggler-domination")


def _describe_load(high: Sequence[Figures], figures: dict[int, Figures], file: str) -> Finding:
    own, usual = median(high[0].values), median(median(f.values) for f in figures.values() if f not in high)  # fmt: skip
    title = (
        f"{_who(high)} {'gets' if len(high) == 1 else 'get'} most of the tokens: {own:,.0f} against {usual:,.0f} on the other "
        f"{len(figures) - len(high)} ranks ({own / usual:.1f}x), so its experts take longer and every step waits for them: "
        "the router is out of balance (auxiliary loss, capacity factor, bias update)"
    )
    return _finding("metrics.load_imbalance", title, high, figures, file, "moe-load-imbalance")  # fmt: skip
