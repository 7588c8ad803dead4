"""Do most gradients vanish? The number of zeros that Megatron prints, against the number of parameters."""

from __future__ import annotations

from firstfault_tools.findings import Category, Confidence, Finding, Level
from firstfault_tools.metrics.view import View, make_finding

MOST, LEAST_ROWS = 0.5, 10
"""Share of zeros from which on gradients vanish (seed 000: below 5 % is healthy, above 50 % is not)."""


def judge_zeros(view: View) -> list[Finding]:
    """More than half of all gradients are zero in the median of the last third of the run."""
    import numpy as np

    curve = view.curve("num_zeros")
    counts = {e.text.strip(): e.values["count"] for e in view.events("parameter_count")}
    total = sum(counts.values())
    late = curve.values[2 * len(curve) // 3 :]
    if len(curve) < LEAST_ROWS or total <= 0:
        return []
    share = float(np.median(late)) / total
    if not MOST < share <= 1:
        return []
    return [
        make_finding(
            "gradients_zero",
            f"{share:.0%} of the gradients are 0 (num zeros {float(np.median(late)):.3g} of {total:.3g} parameters): they "
            "vanish before they reach most weights, or most of the model takes no part (frozen layers, idle experts)",
            Level.FAILURE,
            Category.NUMERICAL,
            view.event_evidence(view.events("parameter_count")[:1])
            + view.evidence([int(curve.rows[-1])]),
            confidence=Confidence.LIKELY,
            facts={"share": round(share, 3), "explains": {"unlearned": 0.6}},
        )
    ]
