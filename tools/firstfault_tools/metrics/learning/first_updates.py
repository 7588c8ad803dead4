"""Did the first updates after a load throw the model off? Weights that were restored without their optimizer state.

The first loss is that of the loaded weights; then it climbs, since the moments of the optimizer start from zero
while the learning rate is that of the middle of the run.
"""

from __future__ import annotations

from firstfault_tools.expressions import expression
from firstfault_tools.findings import Category, Finding, Level
from firstfault_tools.metrics.learning.loss_shape import usable_loss
from firstfault_tools.metrics.series import Event
from firstfault_tools.metrics.view import View, make_finding, number

CLIMBED, LEFT = 1.3, 1.05
"""Times the first loss that the peak must reach, and above which the log must end."""

SOON, LEAST_ROWS, RISING = 60, 12, 3
"""Rows within which the peak comes; rows that a log must have; rows that rise at first."""

BEFORE = 400
"""Lines before the first row among which the setting is looked for."""

_LEFT_OUT = expression(
    r"(?i)(?:--|\b)(?P<name>no[-_]load[-_]optim\w*)(?![\s.:=]*(?:false|none|0)\b)|"
    r"\b(?P<other>load_optim\w*|load_optimizer_states?)\b['\"]?\s?[:=]\s?(?:false|0)\b"
)


def judge_first_updates(view: View) -> list[Finding]:
    """A loss that is right at the first row after a load and climbs from there, to stay above it."""
    loss, series = usable_loss(view), view.lead
    if len(loss) < LEAST_ROWS:
        return []
    values, first = loss.values, int(loss.rows[0])
    loads = [e for e in view.events("checkpoint_loaded") if e.line < series.line[first]]
    if not loads or series.step[first] <= 1 or values[0] <= 0:
        return []
    start, last = float(values[0]), float(values[-1])
    at = int(values[:SOON].argmax())
    rises = all(values[i + 1] > values[i] for i in range(RISING))
    if not rises or values[at] < CLIMBED * start or last < LEFT * start:
        return []
    peak = int(loss.rows[at])
    setting = _find_setting(view, series.line[first])
    why = (
        f"`{setting[1]}` left the optimizer state out"
        if setting
        else "the optimizer state did not come back as it was saved (lost, reset, or left out)"
    )
    title = (
        f"The loss is {number(start)} at {series.label(first)}, the first after the checkpoint was loaded, and climbs to {number(float(values[at]))} "
        f"by {series.label(peak)}: the weights were restored, {why}; the moments of Adam start from zero at the full learning rate, so the first "
        f"updates throw the model off. At {series.label(int(loss.rows[-1]))} it is still at {number(last)}"
    )
    quoted = [Event("setting", setting[0], setting[2], first, {})] if setting else []
    return [
        make_finding(
            "optimizer_not_restored",
            title,
            Level.CAUSE if setting else Level.FAILURE,
            Category.CHECKPOINT,
            view.evidence([first, peak], usual=[first]) + view.event_evidence([loads[-1], *quoted]),
            facts={"first": start, "peak": float(values[at]), "last": last},
        )
    ]


def _find_setting(view: View, end: int) -> tuple[int, str, str] | None:
    """(line, name, text) of a setting before the first row that leaves the optimizer state out."""
    if view.quote is None:
        return None
    for line in range(max(1, end - BEFORE), end):
        text = view.quote(line) or ""
        if "optim" in text and (found := _LEFT_OUT.search(text[:4000])) is not None:
            return line, (found["name"] or found["other"]), text[:600]
    return None
