"""Which ranks compute longer, by Megatron's timers listed for every rank (`--timing-log-option all`)?

`times across ranks (ms):`, then a timer a line and below it `rank  5: 704.52` for every rank. A block of neighbouring
ranks that computes longer than all others is a pipeline stage with more work, as the last one with output layer and
loss; a single rank is a straggler. Form: `megatron/core/timers.py`, `_get_all_ranks_time_string`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

from firstfault_tools.averages import median
from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Category, Finding, Level, Strength, Together
from firstfault_tools.hardware.excerpt import quote_line

GATE = ("times across ranks",)
SLOW = 1.15
"""Times the median of the others from which on a block of ranks is slow: equal stages scatter by a few per cent."""

LEAST_RANKS, LEAST_REPORTS = 4, 2
COMPUTE = ("forward-compute", "backward-compute")
_TIMER = expression(r"^\s+(?P<name>[a-z][a-z0-9-]+):\s*$")
_ROW = expression(r"^\s+rank\s+(?P<rank>\d{1,6}): (?P<ms>\d+(?:\.\d+)?)\s*$")


@dataclass(slots=True)
class ListedTimes:
    """Milliseconds of one rank by timer, report after report; the last line that gave one."""

    rank: int
    timers: dict[str, list[float]] = field(default_factory=dict)
    line: tuple[int, str] = (0, "")

    @property
    def compute_ms(self) -> float:
        """What it usually computes in a step."""
        return sum(median(self.timers[name]) for name in COMPUTE if name in self.timers)


def find_in_lines(lines: Sequence[tuple[int, str]], file: str) -> tuple[Finding, ...]:
    """The block of ranks, or the rank, that computes longer than all others."""
    ranks = read_listed(lines)
    if len(ranks) < LEAST_RANKS or len(ranks[0].timers.get(COMPUTE[0], ())) < LEAST_REPORTS:
        return ()
    level = {one.rank: one.compute_ms for one in ranks}
    usual = median(level.values())
    slow = [one for one in ranks if level[one.rank] >= SLOW * usual]
    first, last = (slow[0].rank, slow[-1].rank) if slow else (0, 0)
    block = slow and last - first + 1 == len(slow) and len(ranks) % len(slow) == 0
    if not block or len(slow) * 2 > len(ranks) or usual <= 0:
        return ()
    mine = median(level[one.rank] for one in slow)
    rest = next(one for one in ranks if one not in slow)
    return (_describe(slow, rest, (mine, usual), len(ranks), file),)


def read_listed(lines: Sequence[tuple[int, str]]) -> list[ListedTimes]:
    """Every listed rank, in order."""
    found: dict[int, ListedTimes] = {}
    timer = ""
    for number, text in lines:
        row = _ROW.match(text)
        if row is None:
            named = _TIMER.match(text)
            timer = named["name"] if named else ""
        elif timer:
            one = found.setdefault(int(row["rank"]), ListedTimes(int(row["rank"])))
            one.timers.setdefault(timer, []).append(float(row["ms"]))
            one.line = (number, text) if timer in COMPUTE else one.line
    return [found[rank] for rank in sorted(found)]


def _describe(
    slow: Sequence[ListedTimes], rest: ListedTimes, ms: tuple[float, float], world: int, file: str
) -> Finding:
    mine, usual = ms
    first, last = slow[0].rank, slow[-1].rank
    lines = [slow[0].line, slow[-1].line, rest.line]
    if len(slow) == 1:
        who = f"Rank {first} computes"
        why = "it is the straggler that every step waits for"
    else:
        stage, stages = first // len(slow), world // len(slow)
        place = (
            "the last" if last == world - 1 else "the first" if first == 0 else f"the {stage + 1}th"
        )
        who = f"Ranks {first}-{last}, {place} of {stages} blocks of {len(slow)} ranks, compute"
        why = "an unbalanced split into pipeline stages: the other stages idle while this one is the bottleneck"
        if last == world - 1:
            why += "; the last stage has the output layer (logits over the vocabulary) and the loss beside its layers"
    return Finding(
        kind="metrics.slow_stage" if len(slow) > 1 else "metrics.rank_straggler",
        title=f"{who} {mine:.0f} ms a step against {usual:.0f} ms on the others ({mine / usual:.1f}x): {why}",
        level=Level.FAILURE,
        category=Category.PERFORMANCE,
        evidence=tuple(quote_line(file, number, text) for number, text in lines),
        rank=first if len(slow) == 1 else None,
        page="pipeline-bubble" if len(slow) > 1 else "straggler-domination",
        facts={
            "ranks": [one.rank for one in slow],
            "ratio": round(mine / usual, 3),
            "starts_at": 1,
        },
        strength=Strength(Together.SERIES),
    )
