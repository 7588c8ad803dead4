"""Did a policy collapse? Reward, KL, entropy, length and gradient of reinforcement-learning step lines.

A reward that falls for good is the end of a story that KL, entropy, response length or the gradient norm
began to tell earlier; a group of equal rewards teaches nothing at all. Names as logged by TRL and verl.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from firstfault_tools.findings import Category, Confidence, Evidence, Finding, Json, Level
from firstfault_tools.hardware.excerpt import keep_marked

MARKERS = ("reward", "critic/score")
MAX_LINE, MAX_ROWS, LEAST = 8_000, 50_000, 12
FALLEN, PEAK = 0.4, 0.05
"""Share of its peak that a collapsed reward has left; the least peak that counts."""
ENTROPY_GONE = 0.15

_NAMES = {
    "reward": r"reward|critic/score/mean|critic/rewards/mean|train/reward|rewards/mean|objective/scores?|env/reward/total|reward/mean",
    "reward_std": r"reward_std|rewards/std",
    "kl": r"kl|actor/kl_loss|critic/kl|objective/kl|policy/approxkl_avg|train/kl|kl_divergence",
    "entropy": r"entropy|actor/entropy(?:_loss)?|policy/entropy_avg|objective/entropy",
    "length": r"completion_length|completions/mean_length|response_length/mean",
    "clipped": r"response_length/clip_ratio|completions/clipped_ratio|clip_ratio/response",
    "grad_norm": r"grad_norm|actor/grad_norm",
    "step": r"step|global_step|training/global_step",
    "epoch": r"epoch",
}
_PAIR = re.compile(
    r"['\"]?(?<![\w/])(?P<name>[A-Za-z][\w/]*)['\"]?\s?[:=]\s?['\"]?(?P<value>[-+]?\d[\d.]*(?:[eE][-+]?\d+)?)"
)
_WANTED = {n: re.compile(rf"(?:{p})\Z") for n, p in _NAMES.items()}


@dataclass(frozen=True, slots=True)
class Row:
    """One step line: values by the names above."""

    number: int
    text: str
    values: dict[str, float]

    @property
    def label(self) -> str:
        for unit in ("step", "epoch"):
            if unit in self.values:
                return f"{unit} {self.values[unit]:g}"
        return f"line {self.number}"


def find_in_lines(lines: Sequence[tuple[int, str]], file: str) -> tuple[Finding, ...]:
    """The collapse of a policy, or the lack of any signal to learn from."""
    rows = _read(lines)
    if len(rows) < LEAST:
        return ()
    found = judge_signal(rows, file) or judge_collapse(rows, file)
    return (found,) if found is not None else ()


def _read(lines: Sequence[tuple[int, str]]) -> list[Row]:
    names: dict[str, str | None] = {}
    rows = []
    for number, text in keep_marked(lines, MARKERS)[:MAX_ROWS]:
        if len(text) > MAX_LINE:
            continue
        values: dict[str, float] = {}
        for name, value in _PAIR.findall(text):
            meaning = names.get(name, "")
            if meaning == "":
                meaning = next((n for n, p in _WANTED.items() if p.match(name)), None)
                if len(names) < 4_096:
                    names[name] = meaning
            if meaning is not None and meaning not in values:
                try:
                    values[meaning] = float(value)
                except ValueError:
                    continue
        if "reward" in values and len(values) >= 3:
            rows.append(Row(number, text, values))
    return rows


def _column(rows: Sequence[Row], name: str) -> list[float]:
    return [r.values[name] for r in rows if name in r.values]


def judge_signal(rows: Sequence[Row], file: str) -> Finding | None:
    """All rewards of a group equal for many steps, so that every gradient is zero."""
    late = rows[len(rows) // 3 :]
    spread, grads = _column(late, "reward_std"), _column(late, "grad_norm")
    if len(spread) < LEAST // 2 or any(spread) or len(grads) < LEAST // 2 or any(grads):
        return None
    first = next(r for r in rows if r.values.get("reward_std") == 0.0)
    reward = median(_column(late, "reward"))
    return _finding(
        "rl_no_signal",
        f"Nothing is learned since {first.label}: all rewards of a group are equal (reward "
        f"{reward:g}, reward_std 0), so advantages and gradient norm are 0",
        Level.CAUSE,
        [first, rows[-1]],
        file,
        {"reward": reward, "since": first.label},
    )


def _smooth(values: Sequence[float]) -> list[float]:
    return [median(values[max(0, i - 2) : i + 3]) for i in range(len(values))]


def judge_collapse(rows: Sequence[Row], file: str) -> Finding | None:
    """A reward that fell from its peak for good, with what moved before it."""
    reward = _smooth(_column(rows, "reward"))
    tail = max(3, len(rows) // 6)
    peak = max(reward[:-tail])
    last = median(reward[-tail:])
    entropy = _column(rows, "entropy")
    gone = (
        len(entropy) == len(rows)
        and median(entropy[:3]) > 0
        and median(entropy[-tail:]) <= ENTROPY_GONE * median(entropy[:3])
    )
    share = 0.85 if gone else FALLEN
    if peak < PEAK or last > share * peak:
        return None
    top = reward.index(peak)
    fall = next((i for i in range(top, len(reward)) if reward[i] < (1 + share) / 2 * peak), top)
    if len(rows) - fall < 3 or any(v > (1 + share) / 2 * peak for v in reward[fall + 2 :]):
        return None
    signs, quoted = _signs(rows, fall)
    what = "The policy collapsed"
    title = (
        f"{what}: the reward fell from {peak:.3g} (at {rows[top].label}) to {last:.3g} since "
        f"{rows[fall].label} and did not come back"
    )
    if signs:
        title += "; before and with it " + ", ".join(signs)
    return _finding(
        "rl_collapse",
        title,
        Level.CAUSE if signs else Level.FAILURE,
        [rows[max(0, fall - 1)], rows[fall], *quoted, rows[-1]],
        file,
        {"peak": peak, "last": last, "since": rows[fall].label},
    )


def _signs(rows: Sequence[Row], fall: int) -> tuple[list[str], list[Row]]:
    """(what else moved up to a few steps after the fall, rows to quote)."""
    early = rows[: max(3, fall // 2)]
    near = rows[max(0, fall - 3) : fall + 6]
    told: list[str] = []
    quoted: list[Row] = []
    for name, words, up, least in (
        ("kl", "the KL divergence to the reference", 5.0, 0.05),
        ("grad_norm", "the gradient norm", 5.0, 0.0),
        ("length", "the response length", 1.6, 0.0),
        ("entropy", "the entropy", 3.0, 0.0),
    ):
        before, after = _column(early, name), _column(near, name)
        if len(before) < 3 or len(after) < 3:
            continue
        usual = median(before)
        worst = max(near, key=lambda r: r.values.get(name, float("-inf")))
        if usual > 0 and max(after) >= max(up * usual, least):
            told.append(f"{words} rose from {usual:.3g} to {max(after):.3g}")
            quoted.append(worst)
        elif name == "entropy" and usual > 0 and min(after) <= 0.3 * usual:
            told.append(f"the entropy fell from {usual:.3g} to {min(after):.3g}")
    clipped = _column(near, "clipped")
    if clipped and max(clipped) >= 0.5 > 2 * median(_column(early, "clipped") or [0.0]):
        told.append(f"{max(clipped):.0%} of the responses were cut at the length limit")
    return told, quoted[:2]


def _finding(
    kind: str,
    title: str,
    level: Level,
    rows: Sequence[Row],
    file: str,
    facts: dict[str, Json],
) -> Finding:
    quoted = {r.number: r for r in rows}
    return Finding(
        kind=f"metrics.{kind}",
        title=title,
        level=level,
        category=Category.NUMERICAL,
        confidence=Confidence.LIKELY,
        evidence=tuple(Evidence(file, r.number, r.text.strip()[:600]) for r in quoted.values()),
        page="rl-policy-collapse",
        facts={**facts, "starts_at": 1, "specificity": 5_000},
    )
