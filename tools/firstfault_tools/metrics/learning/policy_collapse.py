"""Did the policy of a reinforcement-learning run collapse? Reward down, and what went with it.

Trainers print rewards, KL, entropy and lengths as `name:value` pairs in one line a step, without a
loss that would mean anything. A reward that falls from where it was and stays down, together with a
KL or gradient norm that explodes or an entropy that vanishes, is a collapse; a reward alone is not.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise

from firstfault_tools.averages import median
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
from firstfault_tools.hardware.excerpt import may_hold

MIN_ROWS = 8
TAIL = 3
MAX_ROWS = 800
"""Lines that are read; of more, so many spread evenly, the last one among them."""

FALL, FALL_WITHOUT_ENTROPY = 0.5, 0.8
"""Share of the best earlier reward below which the last ones count as fallen."""
LEVEL, GONE = 0.9, 0.1
"""Share of the best reward that still counts as its level; share of the entropy that is none."""

_PAIR = expression(
    r"(?<![\w/@.-])(?P<name>[A-Za-z][\w/@.-]{1,80})['\"]?(?:\s?[:=]\s?| (?=[-+\d]))"
    r"(?P<value>[-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|nan|inf))(?![\w.])"
)
_FAMILY = (
    ("reward", expression(r"(?:reward|score)s?(?:/mean|_mean|/avg)?$|(?:correct|success|solve)_rate(?:/mean)?$|^rewards?/(?!.*std)[\w/]*mean$")),
    ("KL", expression(r"(?:^|[/_])(?:ppo_|approx_)?kl(?:_loss|_div|/mean|_mean|divergence)?$")),
    ("entropy", expression(r"entropy(?:_loss|/mean)?$")),
    ("gradient norm", expression(r"grad_norm$")),
    ("response length", expression(r"(?:response|completion|completions/mean)_length(?:/mean)?$")),
    ("difference of log-probabilities between rollout and trainer", expression(r"(?i)(?:log_?prob|logp)s?_?diff\w*mean$|(?:log_?prob|logp)s?_?diff$")),
    ("share of clipped ratios", expression(r"(?:clip_?frac(?:tion)?|clip_ratio)(?:/mean)?$")),
)  # fmt: skip
_REWARDS, _POLICY = ("reward", "score", "_rate"), ("kl", "logp", "entropy", "grad_norm")
_STEP = expression(r"\bstep['\"]?\s?[:=]\s?(\d{1,9})\b")
_RISES = {
    "difference of log-probabilities between rollout and trainer": 5.0,
    "KL": 10.0,
    "gradient norm": 8.0,
    "share of clipped ratios": 8.0,
}

_DRIFTS = ("difference of log-probabilities between rollout and trainer",)
"""What should stay where it began: it may have grown long before the reward fell."""


@dataclass(frozen=True, slots=True)
class _Row:
    number: int
    text: str
    step: str
    values: dict[str, float]


def find_in_lines(lines: Sequence[tuple[int, str]], file: str) -> Iterable[Finding]:
    """One finding where the reward fell and stayed down while the policy left its bounds."""
    rows = _read_rows(lines)
    if len(rows) < MIN_ROWS:
        return []
    rewards = [r.values["reward"] for r in rows]
    smooth = [median(rewards[max(0, i - 2) : i + 1]) for i in range(len(rows) - TAIL)]
    best = max(smooth)
    if best <= 0:
        return _find_sinking(rows, smooth, file)
    # of a level reward the last row of that level: what moved after it tells why it fell
    best_at = max(i for i, value in enumerate(smooth) if value >= LEVEL * best)
    end = median(rewards[-TAIL:])
    gone = _find_vanishing(rows)
    if best_at < TAIL or not _has_fallen(rewards, best, best_at, bool(gone)):
        return []
    signs = _list_signs(rows, best_at) or gone
    return [_describe(rows, best_at, signs, best, end, file)] if signs else []


def _read_rows(lines: Sequence[tuple[int, str]]) -> list[_Row]:
    """Rows with a reward and something of the policy, spread evenly where there are very many."""
    if not may_hold(lines, _REWARDS) or not may_hold(lines, _POLICY):
        return []
    told = [line for line in lines if _may_tell(line[1])]
    if len(told) < MIN_ROWS:
        return []
    stride = -(-len(told) // MAX_ROWS)
    told = told[(len(told) - 1) % stride :: stride]
    return [row for number, text in told if (row := _read(number, text)) is not None]


def _find_vanishing(rows: Sequence[_Row]) -> list[tuple[int, str]]:
    """(row, words) of an entropy that every row prints and that is gone at the end."""
    entropies = [r.values["entropy"] for r in rows if "entropy" in r.values]
    if len(entropies) != len(rows):
        return []
    start, end = entropies[0], median(entropies[-TAIL:])
    if not 0 <= end < GONE * start:
        return []
    at = next(i for i, v in enumerate(entropies) if v < GONE * start)
    return [(at, f"the entropy fell from {start:.3g} to {end:.3g}")]


def _has_fallen(rewards: Sequence[float], best: float, best_at: int, gone: bool) -> bool:
    """The last rewards lie far below the best, by more than it took to get there unless the entropy is gone."""
    end = median(rewards[-TAIL:])
    if gone:
        return end <= FALL_WITHOUT_ENTROPY * best
    climbed = rewards[: best_at + 1]
    return end <= FALL * best and best - end >= 2 * (max(climbed) - min(climbed)) / 3


def _list_signs(rows: list[_Row], at: int) -> list[tuple[int, str]]:
    """What else changed after that row, the reward aside."""
    return [s for name, _ in _FAMILY[1:] if (s := _change(rows, name, at)) is not None]


def _find_sinking(rows: list[_Row], smooth: list[float], file: str) -> Iterable[Finding]:
    """A reward that is never above zero and sinks from where it began."""
    rewards = [r.values["reward"] for r in rows]
    start, end = median(rewards[:TAIL]), median(rewards[-TAIL:])
    span = max(rewards) - min(rewards)
    downs = sum(b < a for a, b in pairwise(smooth))
    if span < 0.5 or start - end < 0.6 * span or downs < 0.7 * (len(smooth) - 1):
        return []
    signs = _list_signs(rows, TAIL - 1)
    return [_describe(rows, TAIL - 1, signs, rewards[0], end, file)] if signs else []


def _describe(
    rows: list[_Row],
    best_at: int,
    signs: Sequence[tuple[int, str]],
    best: float,
    end: float,
    file: str,
) -> Finding:
    first, good, last = min(s[0] for s in signs), rows[best_at], rows[-1]
    where = f"step {rows[first].step}" if rows[first].step else f"line {rows[first].number}"
    title = (
        f"the policy collapsed: the reward fell from {best:.3g}"
        f"{f' (step {good.step})' if good.step else ''} to {end:.3g}"
        f"{f' (step {last.step})' if last.step else ''}; {', '.join(s[1] for s in signs)}; "
        f"the first sign is at {where}"
    )
    quoted = dict.fromkeys((best_at, first, len(rows) - 1))
    return Finding(
        kind="metrics.policy_collapse",
        title=title,
        level=Level.CAUSE,
        category=Category.NUMERICAL,
        evidence=tuple(
            Evidence(file, rows[i].number, rows[i].text, usual=i == best_at != first)
            for i in quoted
        ),
        facts={
            "reward_before": best,
            "reward_after": end,
            "starts_at": 1,
        },
        strength=Strength(Together.SERIES),
    )


def _may_tell(text: str) -> bool:
    """Cheap look at a line before its pairs are read."""
    if not any(word in text for word in _REWARDS):
        return False
    return len(text) <= 20_000 and any(word in text for word in _POLICY)


def _read(number: int, text: str) -> _Row | None:
    values: dict[str, float] = {}
    for match in _PAIR.finditer(text):
        for family, pattern in _FAMILY:
            if family not in values and pattern.search(match["name"]):
                values[family] = float(match["value"])
    if len(values) < 2 or not math.isfinite(values.get("reward", math.nan)):
        return None
    step = _STEP.search(text)
    return _Row(number, text, step[1] if step is not None else "", values)


def _change(rows: list[_Row], name: str, best_at: int) -> tuple[int, str] | None:
    """(row at which it began, words) of a family that left its bounds after the best reward."""
    usual = [abs(r.values[name]) for r in rows[: best_at + 1] if name in r.values]
    later = [
        (i, abs(r.values[name])) for i, r in enumerate(rows) if i > best_at and name in r.values
    ]
    if len(usual) < TAIL or len(later) < TAIL:
        return None
    level, end = median(usual[-8:]), median(v for _, v in later[-TAIL:])
    if name in _DRIFTS:
        level = min(level, median(usual[:TAIL]))
    if name in _RISES and level > 0 and end > _RISES[name] * level:
        began = next(i for i, v in later if v > 3 * level)
        return began, f"the {name} rose from {level:.3g} to {end:.3g}"
    if name == "entropy" and level > 0 and not level / 5 < end < 4 * level:
        began = next((i for i, v in later if not level / 2 < v < 2 * level), later[-1][0])
        return began, f"the entropy went from {level:.3g} to {end:.3g}"
    return None
