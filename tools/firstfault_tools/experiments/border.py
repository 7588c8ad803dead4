"""Between which two neighbours does it begin to fail? Sizes, commits and other ordered values.

Explanations: the border lies behind the k-th value, from "the first already fails" to "none fails".
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from firstfault_tools.experiments.search import Space, Subject

if TYPE_CHECKING:
    from numpy.typing import NDArray

ENDS = 0.05
"""Share of belief that an end does not behave as told: the good one fails, or the bad one works."""


def border_space(values: Sequence[str]) -> Space:
    """Explanation k: the first k values work, those from k on fail; the last one: none fails."""
    import numpy as np

    count = len(values)
    at = {value: i for i, value in enumerate(values)}
    names = ("all fail", *(f"{a} works, {b} fails" for a, b in pairwise(values)), "none fails")  # fmt: skip
    inner = (1 - 2 * ENDS) / max(1, count - 1)
    priors = (ENDS, *([inner] * (count - 1)), ENDS)

    def allows(subjects: Sequence[Subject]) -> NDArray[Any]:
        places = np.array([at[s[0]] for s in subjects])
        return np.arange(count + 1)[:, None] <= places[None, :]

    return Space(names, priors, allows, lambda _weights: [(v,) for v in values])
