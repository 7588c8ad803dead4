"""Does the height of the loss mean what it seems to: a placeholder, a sum over micro-batches?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from firstfault_tools.findings import Category, Confidence, Finding, Level
from firstfault_tools.metrics.series import MISSING, NO_RANK
from firstfault_tools.metrics.view import (
    PLACEHOLDER_LOSS,
    View,
    make_finding,
)

if TYPE_CHECKING:
    pass
from firstfault_tools.metrics.learning.loss_shape import usable_loss


def judge_placeholder_loss(view: View) -> list[Finding]:
    """A loss of -1 on a rank that does not compute one, as in pipeline parallelism."""
    import numpy as np

    series = view.all
    loss, ranks = series.values("loss"), series.ranks()
    shown = loss != MISSING
    if not shown.any() or not np.any(loss == PLACEHOLDER_LOSS):
        return []
    placeholder = []
    for rank in np.unique(ranks[shown]).tolist():
        mine = loss[shown & (ranks == rank)]
        if len(mine) >= 2 and np.all(mine == PLACEHOLDER_LOSS):
            placeholder.append(int(rank))
    if not placeholder:
        return []
    elsewhere = np.flatnonzero(shown & (loss != PLACEHOLDER_LOSS) & np.isfinite(loss))
    pipeline = view.events("pipeline_rank")
    rows = np.flatnonzero(shown & (loss == PLACEHOLDER_LOSS))
    named = [r for r in placeholder if r != NO_RANK]
    who = (
        f"rank{'s' if len(named) > 1 else ''} {', '.join(map(str, named[:8]))}" if named else "here"
    )
    title = (
        f"The loss reads -1 on {who} in every row ({series.label(int(rows[0]))} to "
        f"{series.label(int(rows[-1]))}): a placeholder. "
        if named
        else f"The loss reads -1 in every row ({series.label(int(rows[0]))} to "
        f"{series.label(int(rows[-1]))}): a placeholder. "
    )
    title += (
        "With pipeline parallelism only the last stage computes the loss; read the log of the last "
        "pipeline rank"
    )
    sure = bool(pipeline) or bool(len(elsewhere))
    return [
        make_finding(
            "pipeline_loss_minus_one",
            title,
            Level.BENIGN,
            Category.NUMERICAL,
            view.evidence([int(rows[0]), int(rows[-1])], series)
            + view.event_evidence(pipeline[:1]),
            confidence=Confidence.CONFIRMED if sure else Confidence.LIKELY,
            facts={"ranks": named, "rows": len(rows)},
        )
    ]


def judge_inflated_loss(view: View) -> list[Finding]:
    """A training loss that is the evaluation loss times the accumulation steps: a reporting matter."""
    import numpy as np

    factor = next((e.values.get("steps", 0) for e in view.events("accumulation")), 0)
    train, held_out = usable_loss(view), view.curve("eval_loss")
    if factor < 2 or len(train) < 3 or not len(held_out):
        return []
    near = train.values[np.abs(train.rows - held_out.rows[0]).argsort()[:5]]
    ratio = float(np.median(near)) / max(float(held_out.values[0]), 1e-9)
    if abs(ratio / factor - 1) > 0.25:
        return []
    series = view.lead
    return [
        make_finding(
            "loss_inflated",
            f"The training loss is about {ratio:.1f} times the evaluation loss, close to the "
            f"{factor:.0f} gradient-accumulation steps: it is summed and not averaged over "
            "micro-batches when logged. Harmless for the gradients of that trainer version",
            Level.BENIGN,
            Category.NUMERICAL,
            view.evidence([int(train.rows[-1]), int(held_out.rows[0])])
            + view.event_evidence(view.events("accumulation")[:1]),
            facts={
                "ratio": ratio,
                "accumulation_steps": factor,
                "last": series.label(int(train.rows[-1])),
            },
        )
    ]
