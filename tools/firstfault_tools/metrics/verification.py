"""Did the fix work? Trials before and after, with a verdict that admits when there are too few."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any

from firstfault_tools.dataclass import dataclass
from firstfault_tools.errors import InvalidParameter
from firstfault_tools.findings import Finding, Json
from firstfault_tools.metrics.series import StepSeries
from firstfault_tools.metrics.view import View, lead_of
from firstfault_tools.registry import Calculator


class FixVerdict(StrEnum):
    """What the trials say about a fix."""

    FIXED = "fixed"
    NOT_FIXED = "not_fixed"
    REGRESSION = "regression"
    INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True, slots=True)
class Trial:
    """One run. problem: whether the fault showed. metrics: name -> value, by the names below."""

    problem: bool
    metrics: Mapping[str, float]


# Whether more is worse (1) or better (-1); metrics not named here are compared and never judged.
WORSE = {
    "step_time_ms": 1,
    "loss": 1,
    "eval_loss": 1,
    "mem_peak_gib": 1,
    "host_mem_gib": 1,
    "tokens_per_s": -1,
    "samples_per_s": -1,
    "tflops": -1,
    "mfu_pct": -1,
}


@dataclass(frozen=True, slots=True)
class MetricChange:
    """A metric before and after. change: relative. worse: beyond tolerance and beyond the scatter."""

    name: str
    before: float
    after: float
    change: float
    worse: bool
    better: bool


@dataclass(frozen=True, slots=True)
class Verification:
    """The verdict with its reason. p_value: chance of so few problems if nothing had changed."""

    verdict: FixVerdict
    reason: str
    problems_before: int
    trials_before: int
    problems_after: int
    trials_after: int
    p_value: float
    changes: tuple[MetricChange, ...]


def chance_of(problems_before: int, before: int, problems_after: int, after: int) -> float:
    """Fisher's one-sided exact probability of this few problems after, with nothing changed."""
    total, problems = before + after, problems_before + problems_after
    ways = math.comb(total, problems)
    least = max(0, problems - before)
    return sum(
        math.comb(after, k) * math.comb(before, problems - k)
        for k in range(least, problems_after + 1)
    ) / max(1, ways)


def _change(
    name: str, before: Sequence[float], after: Sequence[float], tolerance: float
) -> MetricChange:
    old, new = sum(before) / len(before), sum(after) / len(after)
    relative = (new - old) / abs(old) if old else (0.0 if new == old else math.inf)

    def variance(values: Sequence[float], mean: float) -> float:
        return sum((v - mean) ** 2 for v in values) / max(1, len(values) - 1)

    error = math.sqrt(variance(before, old) / len(before) + variance(after, new) / len(after))
    beyond = abs(relative) > tolerance and abs(new - old) > 2 * error
    sign = WORSE.get(name, 0) * (1 if new > old else -1)
    return MetricChange(name, old, new, relative, beyond and sign > 0, beyond and sign < 0)


def verify_fix(
    before: Sequence[Trial], after: Sequence[Trial], tolerance: float = 0.05, chance: float = 0.05
) -> Verification:
    """Compare trials before and after a fix.

    tolerance: relative change of a metric that is still the same. chance: how unlikely the after-trials
    must be without a fix (three of three failing before and none of three after is just enough).
    """
    if not before or not after:
        raise InvalidParameter("trials", "needs at least one trial before and one after")
    if not 0 <= tolerance < 1:
        raise InvalidParameter("tolerance", f"must lie between 0 and 1, got {tolerance}")
    bad, still = sum(t.problem for t in before), sum(t.problem for t in after)
    p_value = chance_of(bad, len(before), still, len(after))
    changes = _list_changes(before, after, tolerance)
    worse = [c for c in changes if c.worse]
    verdict, words = FixVerdict.FIXED, f", and no metric got worse beyond {tolerance:.0%}"
    if bad == 0:
        verdict = FixVerdict.REGRESSION if still or worse else FixVerdict.INCONCLUSIVE
        words = ": the problem was never reproduced before the fix"
    elif still and still / len(after) >= 0.5 * bad / len(before):
        verdict, words = FixVerdict.NOT_FIXED, ": the problem still occurs"
    elif still:
        verdict, words = FixVerdict.INCONCLUSIVE, ": rarer, but it still occurs"
    elif p_value > chance + 1e-9:
        verdict = FixVerdict.INCONCLUSIVE
        words = _ask_for_trials(bad, len(before), p_value, chance)
    elif worse:
        verdict, words = FixVerdict.REGRESSION, _say_worse(worse)
    told = f"{bad} of {len(before)} trials failed before, {still} of {len(after)} after"
    return Verification(
        verdict, told + words, bad, len(before), still, len(after), p_value, tuple(changes)
    )


def _list_changes(
    before: Sequence[Trial], after: Sequence[Trial], tolerance: float
) -> list[MetricChange]:
    """Changes of the metrics that every trial has as finite numbers."""
    changes = []
    for name in sorted(set.intersection(*(set(t.metrics) for t in [*before, *after]))):
        old, new = [t.metrics[name] for t in before], [t.metrics[name] for t in after]
        if all(map(math.isfinite, [*old, *new])):
            changes.append(_change(name, old, new, tolerance))
    return changes


def _ask_for_trials(bad: int, before: int, p_value: float, chance: float) -> str:
    """Words for trials that are too few to tell a fix from chance."""
    need = _trials_needed(bad, before, chance)
    what = f"{need} clean trials would settle it" if need else "reproduce the problem more often first"  # fmt: skip
    return f": chance alone does this with probability {p_value:.2f}; {what}"


def _say_worse(worse: Sequence[MetricChange]) -> str:
    told = (f"{c.name} {c.before:.4g} to {c.after:.4g} ({c.change:+.1%})" for c in worse)
    return f": gone, but worse: {', '.join(told)}"


def _trials_needed(bad: int, before: int, chance: float) -> int | None:
    for count in range(1, 201):
        if chance_of(bad, before, 0, count) <= chance + 1e-9:
            return count
    return None


def trial_of(series: StepSeries, findings: Sequence[Finding], kinds: Sequence[str]) -> Trial:
    """A trial from a run's log: the problem is any finding of these kinds."""
    import numpy as np

    view = View(all=series, lead=lead_of(series), file="")
    metrics = {}
    for name in WORSE:
        curve = view.curve(name)
        if len(curve) >= 5:
            part = curve.values[len(curve) // 5 :]
            metrics[name] = float(np.max(part) if name.endswith("_gib") else np.median(part))
    return Trial(any(f.kind in kinds for f in findings), metrics)


def _trial(entry: object) -> Trial:
    if isinstance(entry, bool):
        return Trial(entry, {})
    if isinstance(entry, Mapping) and isinstance(entry.get("problem"), bool):
        metrics = entry.get("metrics", {})
        if isinstance(metrics, Mapping) and all(
            isinstance(v, int | float) and not isinstance(v, bool) for v in metrics.values()
        ):
            return Trial(entry["problem"], {str(k): float(v) for k, v in metrics.items()})
    raise InvalidParameter(
        "trials", "each is true, false or {problem: bool, metrics: {name: number}}"
    )


def calculate_verification(
    before: Sequence[object] = (), after: Sequence[object] = (), tolerance: float = 0.05
) -> Mapping[str, Json]:
    """`verify_fix` for the command line, MCP and the model."""
    made = verify_fix(
        [_trial(entry) for entry in before], [_trial(entry) for entry in after], tolerance
    )
    return {
        "verdict": made.verdict.value,
        "reason": made.reason,
        "p_value": made.p_value,
        "changes": [
            {
                "name": c.name,
                "before": c.before,
                "after": c.after,
                "change": c.change,
                "worse": c.worse,
            }
            for c in made.changes
        ],
    }


_TRIALS: dict[str, Any] = {
    "type": "array",
    "minItems": 1,
    "items": {
        "anyOf": [
            {"type": "boolean", "description": "whether the problem showed"},
            {
                "type": "object",
                "required": ["problem"],
                "properties": {"problem": {"type": "boolean"}, "metrics": {"type": "object"}},
            },
        ]
    },
}

CALCULATOR = Calculator(
    name="verify_fix",
    summary="Did a fix work? Trials before and after give fixed, not_fixed, regression or inconclusive.",
    parameters={
        "type": "object",
        "required": ["before", "after"],
        "additionalProperties": False,
        "properties": {
            "before": _TRIALS,
            "after": _TRIALS,
            "tolerance": {"type": "number", "minimum": 0, "exclusiveMaximum": 1},
        },
    },
    run=calculate_verification,
)
