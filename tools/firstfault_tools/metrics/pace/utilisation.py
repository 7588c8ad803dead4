"""Does the run use what its cards give? Model FLOP utilisation far below what training reaches."""

from __future__ import annotations

from firstfault_tools.findings import Category, Finding, Level
from firstfault_tools.metrics.view import View, make_finding, number

FAR_BELOW_PCT = 10.0
"""Dense models reach 30 to 50 % of a card's peak (Llama 3: 38 to 43 %, PaLM: 46 %); a quarter of that is far below."""

LEAST_ROWS = 8


def judge_low_utilisation(view: View) -> list[Finding]:
    """A note for who asks about speed; small models and short sequences stay low as well."""
    import numpy as np

    curve = view.curve("mfu_pct")
    late = curve.values[len(curve) // 3 :]
    if len(late) < LEAST_ROWS or not 0 < float(np.median(late)) < FAR_BELOW_PCT:
        return []
    rows = [int(curve.rows[len(curve) // 3]), int(curve.rows[-1])]
    return [
        make_finding(
            "low_utilisation",
            f"The model FLOP utilisation (MFU) is {number(float(np.median(late)))} %: training of dense models "
            "reaches 30 to 50 % of what the cards give, so most of a step is waiting (data, communication, host) or kernels "
            "that do not use the tensor cores",
            Level.CONTEXT,
            Category.PERFORMANCE,
            view.evidence(rows),
            facts={"explains": {"slow": 0.5}, "mfu_pct": float(np.median(late))},
        )
    ]
