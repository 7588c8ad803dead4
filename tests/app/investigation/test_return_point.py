"""Does the fix that goes back name the checkpoint, or say that none is left?"""

from __future__ import annotations

from typing import Any

import pytest
from evals.cases import find_case

from firstfault.investigation.diagnosis import Fix
from firstfault.investigation.return_point import name_return_point, says_none_left
from firstfault.workspace import Workspace
from firstfault_tools.findings import Category, Finding, Level

BACK = Fix(
    "Return to a checkpoint before the departure and lower the rate.", "immediate", False, ()
)
OTHER = Fix("Clip the gradient norm.", "immediate", False, ())


class Digest:
    """A log with its lines."""

    file = "a.log"

    def __init__(self, *lines: str) -> None:
        self.kept = list(enumerate(lines, 1))


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (["saved checkpoint at step 24000 to /c", "saved checkpoint at step 25000 to /c"], "that of iteration 24000"),
        (["saved checkpoint at step 26000 to /c (keep last 2: 25000, 26000)"], "None that is kept (25000, 26000)"),
        (["saved checkpoint at step 25000 to /c"], ""),
        ([], ""),
    ],
)  # fmt: skip
def test_what_is_left_to_go_back_to(lines: list[str], said: str) -> None:
    finding = Finding("metrics.divergence", "diverged", Level.CAUSE, Category.NUMERICAL, facts={"last_good": "iteration 24910"})  # fmt: skip
    digests: Any = [Digest(*lines)]
    first, second = name_return_point((OTHER, BACK), finding, digests)
    assert first == OTHER
    assert (said in second.text) if said else second == BACK
    assert says_none_left((second,)) is ("None" in said)
    assert name_return_point((BACK,), None, digests) == (BACK,)


def test_the_first_fix_of_a_divergence_says_that_none_is_old_enough() -> None:
    told = Workspace().diagnose_paths([find_case("num-spike-not-recovered") / "log.txt"])
    assert "None that is kept (25000, 26000) is as old as iteration 24910" in told.fixes[0].text
