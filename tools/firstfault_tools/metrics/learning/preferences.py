"""Does preference training (DPO and its kin) learn to tell the answers apart? Margins, not rewards.

The loss rewards the margin between the chosen and the rejected answer. Both rewards may fall below zero
while it learns; a loss of ln 2 with rewards of 0 that never move means that the policy still equals its
reference.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isnan

from firstfault_tools.averages import median
from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.findings import (
    Category,
    Confidence,
    Evidence,
    Finding,
    Json,
    Level,
    Strength,
    Together,
)
from firstfault_tools.hardware.excerpt import keep_marked

GATE = ("rewards/margins", "rewards_train/margins", "reward_margin")
LEAST, MAX_ROWS = 8, 20_000
STILL = 20
"""Rows after which rewards that are exactly zero are no start-up any more."""

_PAIR = expression(
    r"['\"]?(?<![\w/])(?P<name>[A-Za-z][\w/]*)['\"]?\s?[:=]\s?['\"]?(?P<value>[-+]?(?:nan|NaN|\d[\d.]*(?:[eE][-+]?\d+)?))"
)
_NAMES = {
    "loss": "loss",
    "margin": "rewards/margins",
    "chosen": "rewards/chosen",
    "rejected": "rewards/rejected",
    "accuracy": "rewards/accuracies",
    "rate": "learning_rate",
    "likelihood": "logps/chosen",
    "right": "mean_token_accuracy",
}
FEW, LOST, LOWER, WRONG = 5, -5.0, 2.5, 0.3
"""Rows; reward of the chosen answer below which it is lost; times its log-probability must have fallen; share of its token
accuracy that is left."""


@dataclass(frozen=True, slots=True)
class Row:
    """One step line; values by the names above."""

    number: int
    text: str
    values: dict[str, float]


def find_in_lines(lines: Sequence[tuple[int, str]], file: str) -> tuple[Finding, ...]:
    """Whether the margin grows, or nothing moves."""
    rows = []
    for number, text in keep_marked(lines, GATE)[:MAX_ROWS]:
        if len(text) > 8_000 or "eval_" in text:
            continue
        told = {n.replace("rewards_train/", "rewards/"): v for n, v in _PAIR.findall(text)}
        try:
            values = {k: float(told[n]) for k, n in _NAMES.items() if n in told}
        except ValueError:
            continue
        if "margin" in values:
            rows.append(Row(number, text, values))
    lost = _both_lost(rows, file) if len(rows) >= FEW else None
    if lost is not None:
        return (lost,)
    if len(rows) < LEAST:
        return ()
    found = _not_numbers(rows, file) or _never_moves(rows, file) or _margin_grows(rows, file)
    return (found,) if found is not None else ()


def _not_numbers(rows: Sequence[Row], file: str) -> Finding | None:
    """Rewards that are NaN although the loss may be printed as a number."""
    bad = [r for r in rows if isnan(r.values["margin"])]
    if len(bad) < LEAST // 2 or bad[-1] is not rows[-1]:
        return None
    start = next(i for i, r in enumerate(rows) if isnan(r.values["margin"]))
    loss = rows[-1].values.get("loss")
    return _describe(
        "nan",
        (
            f"The rewards of chosen and rejected answers are NaN since line {rows[start].number} ({len(bad)} logged "
            f"steps){f', while the loss is printed as {loss:g}' if loss is not None and not isnan(loss) else ''}: the "
            "log-probabilities overflowed (float16, a logit of -inf, an answer cut to no tokens), and nothing is "
            "learned"
        ),
        Level.CAUSE,
        Confidence.CONFIRMED,
        file,
        (rows[max(0, start - 1)], bad[0], bad[-1]),
        {"rows": len(bad), "starts_at": 1},
        Strength(Together.SERIES),
    )


def _never_moves(rows: Sequence[Row], file: str) -> Finding | None:
    last = rows[-STILL:]
    if len(last) < STILL or any(
        r.values.get(name) != 0.0 for r in last for name in ("margin", "chosen", "rejected")
    ):
        return None
    rates = [r.values["rate"] for r in last if "rate" in r.values]
    if rates and not any(rates):
        why = "the learning rate is 0"
    else:
        why = (
            "policy and reference are the same weights (the reference follows the policy, or the trained "
            "parameters take no part in the forward pass), or the update is lost to rounding"
        )
    loss = last[-1].values.get("loss")
    return _describe(
        "still",
        (
            f"The policy still equals its reference after {len(rows)} logged steps: rewards and margins of "
            f"chosen and rejected answers are exactly 0{f' and the loss stays at {loss:g} (ln 2)' if loss else ''}, "
            f"so the model never learned; {why}"
        ),
        Level.CAUSE,
        Confidence.LIKELY,
        file,
        (rows[0], rows[-1]),
        {"rows": len(rows), "starts_at": 1},
        Strength(Together.SERIES),
    )


def _both_lost(rows: Sequence[Row], file: str) -> Finding | None:
    """The margin grows while the model unlearns the chosen answers as well."""
    head, tail = rows[:2], rows[-2:]
    chosen = [r.values["chosen"] for r in rows if "chosen" in r.values]
    likely = [r.values["likelihood"] for r in (*head, *tail) if "likelihood" in r.values]
    right = [r.values["right"] for r in (*head, *tail) if "right" in r.values]
    if len(chosen) < len(rows) or max(chosen[-2:]) > LOST or max(chosen[-2:]) > min(chosen[:2]):
        return None
    fell = len(likely) == 4 and likely[0] < 0 and max(likely[2:]) < LOWER * min(likely[:2])
    worse = len(right) == 4 and max(right[2:]) < WRONG * min(right[:2])
    if not worse and not (fell and max(chosen[-2:]) < 4 * LOST):
        return None
    seen = f"its log-probability fell from {likely[0]:.4g} to {likely[3]:.4g}" if fell else ""
    if worse:
        seen += f"{' and ' if seen else ''}its token accuracy from {right[0]:.3g} to {right[3]:.3g}"
    return _describe(
        "lost",
        (
            f"The policy unlearns the chosen answers as well: their reward fell to {chosen[-1]:.4g}, {seen}, while the margin to the "
            f"rejected ones still grows (now {rows[-1].values['margin']:.3g}): the likelihood of both collapses and the model degenerates, "
            "which loss and margin hide. A lower learning rate, a larger beta or a term for the chosen answer (rpo_alpha, SFT loss) "
            "keeps it; a tokenizer or an embedding changed since the reference was made does the same"
        ),
        Level.CAUSE,
        Confidence.LIKELY,
        file,
        (rows[0], rows[-1]),
        {"chosen": chosen[-1], "starts_at": 1},
        Strength(Together.SERIES),
    )


def _margin_grows(rows: Sequence[Row], file: str) -> Finding | None:
    """The rewards fall, as may be; the margin grows, as it should."""
    third = max(2, len(rows) // 3)
    head, tail = rows[:third], rows[-third:]

    def level(part: Sequence[Row], name: str) -> float:
        return median([r.values[name] for r in part if name in r.values] or [0.0])

    before, after = level(head, "margin"), level(tail, "margin")
    chosen, accuracy = level(tail, "chosen"), level(tail, "accuracy")
    if not after > max(1.2 * before, 0.05) or chosen >= level(head, "chosen") or accuracy < 0.55:
        return None
    if level(tail, "loss") > level(head, "loss"):
        return None
    return _describe(
        "margin",
        (
            f"The margin between chosen and rejected answers grows from {before:.3g} to {after:.3g} (accuracy "
            f"{accuracy:.2g}): preference training works as expected; a reward of the chosen answer that falls "
            f"(now {chosen:.3g}) is normal, since only the difference is trained"
        ),
        Level.BENIGN,
        Confidence.CONFIRMED,
        file,
        (rows[0], rows[-1]),
        {"margin_before": before, "margin_after": after},
    )


ONE_LINE = Strength()


def _describe(
    kind: str,
    title: str,
    level: Level,
    confidence: Confidence,
    file: str,
    rows: Sequence[Row],
    facts: Mapping[str, Json],
    strength: Strength = ONE_LINE,
) -> Finding:
    quoted = {r.number: r for r in rows}.values()
    return Finding(
        kind=f"metrics.preference_{kind}",
        title=title,
        level=level,
        category=Category.NUMERICAL,
        confidence=confidence,
        evidence=tuple(Evidence(file, r.number, r.text.strip()[:600]) for r in quoted),
        page="preference-training",
        facts=facts,
        strength=strength,
    )
