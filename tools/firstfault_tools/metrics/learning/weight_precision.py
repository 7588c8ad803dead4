"""Are the updates too small for the precision of the weights? Flat loss, 16-bit weights, tiny rate.

bfloat16 has 8 bits of mantissa: a change below about 2^-9 of a weight is rounded away. Adam moves a
weight by about the learning rate a step, so weights that are kept in bfloat16 only, without a copy in
fp32 and without stochastic rounding, do not move at small rates although gradients look right.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice

from firstfault_tools.expressions import expression
from firstfault_tools.findings import Category, Evidence, Finding, Level
from firstfault_tools.hardware.excerpt import may_hold
from firstfault_tools.metrics.series import MISSING, NO_STEP, StepSeries

MAX_RATE = 3e-6
"""Far below 2^-9 of a typical weight (0.02): 4e-5."""

MIN_ROWS, MIN_STEPS = 8, 100
MAX_CANDIDATES = 2_000
GATE = ("bf16", "bfloat16", "master")
_NAMES = GATE
"""Lines that speak of the type and are looked at: a program tells its settings at the start."""

_HALF = expression(
    r"(?i)\b(?:dtype|param_dtype|params?_dtype|torch_dtype|model_dtype|precision|param(?:eter)? dtype)"
    r"['\"]?\s{0,3}[:= ]\s{0,3}['\"]?(?:torch\.)?(?:bf16|bfloat16)(?:-true)?\b(?!-mixed)|"
    r"master (?:copy|weights?|params?)['\"]?\s{0,2}[:=]\s{0,2}(?:none|no|false|off)|"
    r"pure bf16|bf16[_-](?:full|true|only)|full[_ ]bf16"
)
_MASTER = expression(
    r"(?i)bf16-mixed|autocast|MixedPrecision|mixed_precision['\"]?\s{0,2}[:=]\s{0,2}['\"]?(?:true|bf16)|stochastic[_ ]round|"
    r"master[_ ](?:weights?|copy|params?)['\"]?\s{0,2}[:=]\s{0,2}['\"]?(?:true|yes|fp32|float32)|use[_-]distributed[_-]optimizer|main_params|param dtype:? (?:torch\.)?float32"
)


def find_in_lines(lines: Sequence[tuple[int, str]], file: str) -> Iterable[Finding]:
    """One finding where the loss stands still, the rate is tiny and the weights are bfloat16 only."""
    if not may_hold(lines, _NAMES):
        return []
    named = islice((row for row in lines if _may_tell(row[1])), MAX_CANDIDATES)
    told = next((row for row in named if _HALF.search(row[1])), None)
    if told is None or any(_MASTER.search(text) for _, text in lines):
        return []
    from firstfault_tools.metrics.log_lines import read_steps

    return _judge(read_steps(lines), told, file)


def _may_tell(text: str) -> bool:
    return any(name in text for name in _NAMES)


def _judge(series: StepSeries, told: tuple[int, str], file: str) -> list[Finding]:
    import numpy as np

    from firstfault_tools.metrics.view import noise_of

    loss, rate, grad = (series.values(name) for name in ("loss", "lr", "grad_norm"))
    rows = np.flatnonzero(np.isfinite(loss) & (loss != MISSING) & (loss > 0))
    steps = [series.step[int(r)] for r in rows]
    if len(rows) < MIN_ROWS or NO_STEP in steps or steps[-1] - steps[0] < MIN_STEPS:
        return []
    rates = rate[rows][(rate[rows] != MISSING) & (rate[rows] > 0)]
    grads = grad[rows][(grad[rows] != MISSING) & np.isfinite(grad[rows])]
    if not len(rates) or float(rates.max()) > MAX_RATE or not len(grads) or grads.min() <= 1e-6:
        return []
    values, third = loss[rows], len(rows) // 3
    before, after = float(values[:third].mean()), float(values[-third:].mean())
    if before - after > max(2 * noise_of(values) / third**0.5, 0.005 * before):
        return []
    first, last = int(rows[0]), int(rows[-1])
    title = (
        f"the loss stands still (step {steps[0]}: {values[0]:.4g}, step {steps[-1]}: {values[-1]:.4g}) "
        f"although gradients are normal ({float(np.median(grads)):.3g}): the weights are kept in bf16 "
        f"without an fp32 master copy, and updates of about the learning rate ({float(rates.max()):.2g}) "
        "are below the bf16 spacing of the weights, so rounding swallows them"
    )
    quoted = [(series.line[r], series.texts.get(r) or "") for r in (first, last)]
    evidence = [Evidence(file, told[0], told[1])]
    evidence += [Evidence(file, number, text) for number, text in quoted if text]
    return [
        Finding(
            kind="metrics.updates_below_precision",
            title=title,
            level=Level.CAUSE,
            category=Category.NUMERICAL,
            evidence=tuple(evidence),
            facts={"rate": float(rates.max()), "loss_first": before, "loss_last": after},
        )
    ]
