"""Is the work spread unevenly over the ranks? Minimum, maximum and mean of a load that step lines print.

Trainers that balance sequences over data-parallel ranks, or tokens over experts, log how full the
fullest and the emptiest rank were. A synchronous step takes as long as the fullest one needs.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence

from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.findings import (
    Category,
    Evidence,
    Finding,
    Level,
    Strength,
    Together,
)
from firstfault_tools.hardware.excerpt import keep_marked

GATE = (
    "global_seqlen", "seqlen_per", "per rank", "per_rank", "per EP", "per DP", "per GPU", "per gpu",
    "per expert", "per_expert", "per worker", "across ranks", "each rank", "by rank",
    "load_balance", "load balance", "rank_load", "rank load", "rank_tokens", "expert_load",
)  # fmt: skip
MAX_LINE, MAX_ROWS = 6_000, 4_096
SKEWED, GREW, FOLLOWS = 1.5, 1.3, 1.2
"""Fullest rank against the mean; growth of that; growth of the step time that goes with it."""

_NUMBER = r"(?P<{0}>\d[\d,]*(?:\.\d+)?)(?:[eE]\+?(?P<{0}e>\d+))?"
_SLASHED = expression(
    rf"(?P<name>[A-Za-z][\w.-]{{0,60}})/(?P<part>balanced_max|balanced_min|max|min|mean|avg)['\"]?\s?[:=]\s?{_NUMBER.format('v')}"
)
_SPOKEN = expression(
    rf"(?i)(?P<name>[a-z][\w /-]{{2,60}}?)[\s:=(]{{1,3}}min[\s:=]{{1,2}}{_NUMBER.format('min')}[\s,;|]{{1,3}}(?:mean|avg|average)[\s:=]{{1,2}}{_NUMBER.format('mean')}"
    rf"[\s,;|]{{1,3}}max[\s:=]{{1,2}}{_NUMBER.format('max')}"
)
_OF_RANKS = expression(
    r"(?i)global_seqlen|seqlen_(?:per|across)|"
    r"(?:per|across|by|each)[\w -]{0,12}(?:rank|gpu|worker|expert|partition)|"
    r"(?:rank|gpu|dp|ep|expert|worker|partition)s?[_ -]?(?:load|tokens|seqlen|samples)|load[_ ]balance"
)
_STEP = expression(r"(?i)\b(?:global_?step|step|iter(?:ation)?)['\"]?\s{0,3}[:=#]?\s{0,8}(\d{1,9})")
_TIME = expression(
    r"(?i)(?:timing_s/step|step_time|time_per_step|elapsed time per iteration \(ms\)|perf/time_per_step|iter(?:ation)?_time)['\"]?\s?[:=]\s?(\d+(?:\.\d+)?)"
)
_OFF = expression(
    r"(?i)(?P<name>[\w.]*(?:balance_batch|use_dynamic_bsz|balance\w*))['\"]?\s?[:=]\s?(?P<value>false|0\b|none)"
)


@dataclass(frozen=True, slots=True)
class Load:
    """One reading. skew: the fullest rank over the mean."""

    number: int
    text: str
    step: str | None
    low: float
    mean: float
    high: float
    time: float | None

    @property
    def skew(self) -> float:
        return self.high / self.mean


def find_in_lines(lines: Sequence[tuple[int, str]], file: str) -> tuple[Finding, ...]:
    """The load that drifted apart, or is far apart, while steps take longer for it."""
    marked = [
        (n, t)
        for n, t in keep_marked(lines, GATE)
        if len(t) < MAX_LINE and ("max" in t or "Max" in t) and _OF_RANKS.search(t)
    ]
    if len(marked) < 3:
        return ()
    loads = _read(marked[:MAX_ROWS])
    out = []
    for name, rows in loads.items():
        found = _judge(name, rows, lines, file)
        if found is not None:
            out.append(found)
    return tuple(out[:1])


def _value(match: re.Match[str], name: str) -> float:
    exponent = match[f"{name}e"]
    return float(match[name].replace(",", "")) * 10.0 ** min(int(exponent or 0), 18)


def _read(lines: Sequence[tuple[int, str]]) -> dict[str, list[Load]]:
    found: dict[str, list[Load]] = defaultdict(list)
    time: float | None = None
    for number, text in lines:
        told = _TIME.search(text)
        time = float(told[1]) if told is not None else time
        step = _STEP.search(text)
        parts: dict[str, dict[str, float]] = defaultdict(dict)
        for match in _SLASHED.finditer(text):
            if _OF_RANKS.search(match["name"]):
                parts[match["name"]][match["part"]] = _value(match, "v")
        spoken = _SPOKEN.search(text)
        if spoken is not None and _OF_RANKS.search(spoken["name"]):
            parts[" ".join(spoken["name"].split())] = {
                "min": _value(spoken, "min"),
                "mean": _value(spoken, "mean"),
                "max": _value(spoken, "max"),
            }
        for name, row in parts.items():
            mean = row.get("mean", row.get("avg", 0.0))
            # what the ranks get after balancing counts, where that is printed
            high, low = row.get("balanced_max", row.get("max")), row.get("balanced_min", row.get("min"))  # fmt: skip
            if mean > 0 and high is not None and low is not None and high >= mean >= low:
                found[name].append(
                    Load(number, text, step[1] if step else None, low, mean, high, time)
                )
    return found


def _judge(
    name: str, rows: list[Load], lines: Sequence[tuple[int, str]], file: str
) -> Finding | None:
    if len(rows) < 3:
        return None
    first, last = rows[0], max(rows[-3:], key=lambda r: r.skew)
    if last.skew < SKEWED:
        return None
    grew = last.skew >= GREW * first.skew
    slower = last.time is not None and first.time is not None and last.time >= FOLLOWS * first.time
    if not (grew and slower):
        return None
    at = f" at step {last.step}" if last.step else ""
    was = f" at step {first.step}" if first.step else ""
    title = (
        f"The work is spread unevenly over the ranks: {name} max {last.high:,.0f} against a mean of "
        f"{last.mean:,.0f} (min {last.low:,.0f}){at}, {last.skew:.1f} times the mean where it was "
        f"{first.skew:.2f} times{was}; every step waits for the fullest rank (step time "
        f"{first.time:g} -> {last.time:g})"
    )
    off = next(((n, t, m) for n, t in lines[:2_000] if len(t) < MAX_LINE and (m := _OFF.search(t))), None)  # fmt: skip
    if off is not None:
        title += f"; {off[2]['name']} is {off[2]['value']}"
    quoted = [(first.number, first.text), (last.number, last.text)]
    quoted += [(off[0], off[1])] if off is not None else []
    return Finding(
        kind="metrics.load_imbalance",
        title=title,
        level=Level.CAUSE,
        category=Category.PERFORMANCE,
        evidence=tuple(Evidence(file, n, t.strip()[:600]) for n, t in quoted),
        facts={
            "name": name,
            "skew_before": round(first.skew, 3),
            "skew_after": round(last.skew, 3),
            "starts_at": 1,
        },
        strength=Strength(Together.SERIES),
    )
