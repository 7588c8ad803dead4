"""Does a reinforcement-learning run learn anything? A reward that grows, or is the same for all answers.

Advantages are differences to the mean of a group: where all rewards are equal they are zero, and with
them every gradient. Names as logged by TRL and verl; the fall of a reward is policy_collapse.py's.
"""

from __future__ import annotations

from collections.abc import Sequence

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
from firstfault_tools.hardware.excerpt import keep_marked

GATE = ("reward", "critic/score")
MAX_LINE, MAX_ROWS, LEAST = 8_000, 50_000, 8
ALL_ZERO, CUT_OFF = 4, 0.95
"""Rows from which on a spread and a gradient of zero in every row are enough; share of answers that end at the limit."""
MOST = 0.8
"""Share of rows without any spread from which on the few others do not count: four of five updates are empty."""
LEAST_GROWTH, MOST_KL = 12, 1.0
"""Rows that show a trend; KL (per token) above which a policy is too far off to be called well."""

_NAMES = {
    "reward": r"reward|critic/score/mean|critic/rewards/mean|train/reward|rewards/mean|objective/scores?|env/reward/total|reward/mean",
    "reward_std": r"reward_std|rewards/std",
    "highest": r"critic/score/max|critic/rewards/max",
    "lowest": r"critic/score/min|critic/rewards/min",
    "grad_norm": r"grad_norm|actor/grad_norm",
    "cut_off": r"completions/clipped_ratio|response_length/clip_ratio|truncat\w*(?:/mean|_ratio|_rate)?",
    "length": r"completions/mean_length|completion_length|response_length(?:/mean)?|completions/max_length",
    "kl": r"kl|ppo_kl|actor/kl_loss|actor/ppo_kl|objective/kl",
    "step": r"step|global_step|training/global_step",
    "epoch": r"epoch",
}
_PAIR = expression(
    r"['\"]?(?<![\w/])(?P<name>[A-Za-z][\w/]*)['\"]?\s?[:=]\s?['\"]?(?P<value>[-+]?\d[\d.]*(?:[eE][-+]?\d+)?)"
)
_ROOM = r"(?:(?:train|training|trainer|rollout|rl|metrics)/){0,2}"
"""What trackers and trainers put before a name."""
_WANTED = {n: expression(rf"{_ROOM}(?:{p})\Z") for n, p in _NAMES.items()}


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
    """The lack of any signal to learn from."""
    rows = _read(lines)
    if len(rows) < ALL_ZERO:
        return ()
    found = judge_signal(rows, file) or judge_growth(rows, file)
    return (found,) if found is not None else ()


def _read(lines: Sequence[tuple[int, str]]) -> list[Row]:
    names: dict[str, str | None] = {}
    rows = []
    for number, text in keep_marked(lines, GATE)[:MAX_ROWS]:
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
        if "highest" in values and "lowest" in values:
            values.setdefault("reward_std", values["highest"] - values["lowest"])
        if "reward" in values and len(values) >= 3:
            rows.append(Row(number, text, values))
    return rows


def _column(rows: Sequence[Row], name: str) -> list[float]:
    return [r.values[name] for r in rows if name in r.values]


def judge_growth(rows: Sequence[Row], file: str) -> Finding | None:
    """A reward that rises with KL and gradients in bounds: the policy learns, whatever its loss does."""
    if len(rows) < LEAST_GROWTH:
        return None
    third = len(rows) // 3
    rewards = _column(rows, "reward")
    before, after = median(rewards[:third]), median(rewards[-third:])
    kl, grads = _column(rows, "kl"), _column(rows, "grad_norm")
    lowest = min(after, *rewards[-third:])
    if after - before < 0.1 * max(abs(before), abs(after), 1e-9) or lowest < before:
        return None
    if any(abs(v) > MOST_KL for v in kl[-third:]) or (
        len(grads) >= third and median(grads[-third:]) > 5 * max(median(grads[:third]), 1e-9)
    ):
        return None
    return Finding(
        kind="metrics.rl_reward_grows",
        title=(
            f"The reward rises from {before:.3g} to {after:.3g} ({rows[0].label} to {rows[-1].label})"
            + (f" with a KL of {kl[-1]:.3g}" if kl else "")
            + ": the policy learns; the loss that PPO or GRPO prints is no measure of it, it may start at 0, rise or be "
            "negative, and answers that get shorter or a slowly falling entropy are normal with it"
        ),
        level=Level.BENIGN,
        category=Category.NUMERICAL,
        evidence=tuple(Evidence(file, r.number, r.text.strip()[:600]) for r in (rows[0], rows[-1])),
        facts={"reward_before": before, "reward_after": after},
    )


def _name_cut_off(rows: Sequence[Row]) -> str:
    """Words where (nearly) every answer ends at the length limit, so that none can earn a reward."""
    shares, lengths = _column(rows, "cut_off"), _column(rows, "length")
    if len(shares) < len(rows) or min(shares) < CUT_OFF:
        return ""
    limit = f" of {lengths[-1]:g} tokens" if lengths else ""
    return (
        f"; every answer is cut off at the length limit{limit} (clipped ratio {shares[-1]:g}) before it reaches its result, which "
        "is why none earns a reward: raise max_completion_length (max response length)"
    )


def judge_signal(rows: Sequence[Row], file: str) -> Finding | None:
    """All rewards of a group equal for many steps, so that every gradient is zero."""
    late = rows[len(rows) // 3 :] if len(rows) >= LEAST else rows
    spread, grads = _column(late, "reward_std"), _column(late, "grad_norm")
    rewards = _column(late, "reward")
    shown = ", reward_std 0" if spread else ""
    if not spread:
        spread = rewards  # a reward of exactly 0 has none
    still = [r for r in late if not r.values.get("reward_std", r.values["reward"])]
    empty = len(spread) - sum(map(bool, spread))
    if len(spread) < LEAST // 2 or empty < MOST * len(spread) or len(grads) < LEAST // 2 or median(grads) > 0:  # fmt: skip
        return None
    first = next((r for r in rows if not r.values.get("reward_std", r.values["reward"])), still[0])
    reward = median(rewards)
    often = "" if empty == len(spread) else f" in {empty} of {len(spread)} rows"
    quoted = {r.number: r for r in (first, rows[-1])}
    return Finding(
        kind="metrics.rl_no_signal",
        title=(
            f"{'Next to nothing' if often else 'Nothing'} is learned since {first.label}: all rewards of a group are equal{often} (reward "
            f"{reward:g}{shown}), so advantages and gradient norm are 0" + _name_cut_off(late)
        ),
        level=Level.CAUSE,
        category=Category.NUMERICAL,
        evidence=tuple(Evidence(file, r.number, r.text.strip()[:600]) for r in quoted.values()),
        facts={
            "reward": reward,
            "since": first.label,
            "starts_at": 1,
        },
        strength=Strength(Together.SERIES),
    )
