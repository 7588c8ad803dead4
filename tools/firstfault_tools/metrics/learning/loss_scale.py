"""Did dynamic loss scaling collapse, or is it only finding its level?"""

from __future__ import annotations

from collections import Counter

from firstfault_tools.findings import Category, Confidence, Finding, Json, Level
from firstfault_tools.metrics.series import Event
from firstfault_tools.metrics.view import Curve, View, make_finding, number

ENDLESS = 10
"""Reductions in a row with no step between them."""


def _before_scaling(view: View, reduced: list[Event]) -> tuple[str, list[Event]]:
    """Values that were no numbers before the first step: no scale of the loss mends those."""
    if not reduced:
        return "", []
    told = [e for e in view.events("value_not_finite") if e.line < reduced[0].line]
    if told:
        return (
            "; the forward pass gives NaN in fp16 (half precision) already before the first step, as quoted, so the scale is "
            "only the messenger, which comes from the weights or the input",
            told[:1],
        )
    if reduced[0].row == 0 and not len(view.lead):
        return (
            "; not one step succeeded, so a value leaves the range of fp16 (half precision) in every forward or backward pass",
            [],
        )
    return "", []


def _find_longest(reduced: list[Event]) -> tuple[int, int]:
    """(how many, row) of the longest run of reductions with no finished step between them, once
    training was under way."""
    runs = Counter(event.row for event in reduced if event.row > 0)
    row, count = max(runs.items(), key=lambda run: run[1], default=(0, 0))
    return count, row


def _count_early(reduced: list[Event], curve: Curve, rows: int) -> int:
    """Reductions in the first tenth of the run, or while the scale falls row after row from the first."""
    import numpy as np

    begun = max(5, rows // 10)
    if reduced:
        return sum(1 for event in reduced if event.row <= begun)
    falls = np.flatnonzero(np.diff(curve.values) < 0)
    run = int(np.flatnonzero(np.diff(np.append(falls, -9)) != 1)[0]) + 1
    return max(int(np.sum(falls <= begun)), run if falls[0] <= 1 else 0)


def judge_loss_scale(view: View) -> list[Finding]:
    """Collapse of the dynamic loss scale against its normal search for a level."""
    import numpy as np

    reduced = view.events("scale_reduced")
    floor = view.events("scale_at_minimum")
    curve = view.curve("loss_scale")
    falls = np.flatnonzero(np.diff(curve.values) < 0)
    if not reduced and not floor and not len(falls):
        return []
    first, last = _read_ends(reduced, curve)
    count = max(len(reduced), len(falls))
    worst, row = _find_longest(reduced)
    span = f"{f'from {number(first)}' if first is not None else 'down'} to {number(last or 0)}"
    facts: dict[str, Json] = {
        "reductions": count,
        "first_scale": first,
        "last_scale": last,
        "longest_run_without_a_step": worst,
    }
    shown = [*reduced[:1], *reduced[-1:]] if len(reduced) > 1 else reduced
    quoted = view.event_evidence([*shown, *floor[:1]])
    if len(falls) and not reduced:
        quoted += view.evidence([*curve.rows[falls[:1]], *curve.rows[falls[-1:] + 1]])
    rows = len(view.lead)
    at_floor = bool(floor) or _ends_at_one(first, last, count)
    if at_floor or worst >= ENDLESS:
        said, unwell = _before_scaling(view, reduced)
        where = ""
        if worst >= ENDLESS and rows:
            where = f" after {view.lead.label(min(rows, row) - 1)}"
        return [
            make_finding(
                "loss_scale_collapse",
                f"The loss scale collapsed{where}: {count} reductions {span}"
                + (", its minimum" if at_floor else "")
                + "; every step overflows, so nothing is learned"
                + said,
                Level.CAUSE,
                Category.NUMERICAL,
                quoted + view.event_evidence(unwell),
                confidence=Confidence.CONFIRMED if at_floor else Confidence.LIKELY,
                facts=facts,
            )
        ]
    early = _count_early(reduced, curve, rows)
    late = count - early
    if late > max(4, 0.05 * max(rows, 1)) and late > early:
        return []
    return [
        make_finding(
            "loss_scale_warmup",
            f"{count} loss-scale reduction(s), {span}: "
            "normal dynamic loss scaling finding its level; each skips one step",
            Level.BENIGN,
            Category.NUMERICAL,
            quoted,
            confidence=Confidence.CONFIRMED,
            facts=facts,
        )
    ]


def _read_ends(reduced: list[Event], curve: Curve) -> tuple[float | None, float | None]:
    """The first and the last scale: as the reductions say it, else as the column does."""
    first = reduced[0].values.get("from") if reduced else None
    last = reduced[-1].values.get("to") if reduced else None
    if len(curve):
        first = float(curve.values[0]) if first is None else first
        last = float(curve.values[-1]) if last is None else last
    return first, last


def _ends_at_one(first: float | None, last: float | None, count: int) -> bool:
    """A scale of 1 that it came down to: a run that scales nothing begins there."""
    return last is not None and last <= 1.0 and ((first or 0) > 1.0 or count > 1)
