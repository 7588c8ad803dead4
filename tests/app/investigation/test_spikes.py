"""A jump that came back is told as over; one that stays, a curve that ends above, or NaN is not."""

from __future__ import annotations

from math import nan
from pathlib import Path

import pytest
from tests.rows import each_row

from firstfault.investigation.spikes import read_spikes
from firstfault.workspace import Workspace

LEVEL = [2.0 + 0.01 * (n % 3) for n in range(60)]
SPIKE = [2.9, 3.4, 2.6]


@each_row(
    ("values", "found"),
    [
        (LEVEL, 0),
        (LEVEL + SPIKE + LEVEL, 1),
        (LEVEL + SPIKE + LEVEL + SPIKE + LEVEL, 2),
        (LEVEL + [3.4] * 40, None),
        (LEVEL + SPIKE + [2.0] * 20 + [2.2] * 60, None),
        ([*LEVEL, nan, *LEVEL], None),
    ],
    ids=["level", "once", "twice", "stays", "ends above", "not a number"],
)
def test_spikes_that_came_back(values: list[float], found: int | None) -> None:
    spikes = read_spikes(values, 1.15)
    assert (None if spikes is None else len(spikes)) == found


@pytest.mark.parametrize(
    ("tail", "verdict"), [(LEVEL, "healthy"), ([3.4] * 60, "warning")], ids=["over", "stays"]
)
def test_a_spike_that_is_spoken_of(tmp_path: Path, tail: list[float], verdict: str) -> None:
    log = tmp_path / "train.log"
    rows = enumerate(LEVEL + SPIKE + tail, 1000)
    log.write_text("".join(f"iteration {n} | lm loss: {v:.4f} | grad norm: 0.4\n" for n, v in rows))
    diagnosis = Workspace().diagnose_paths(
        [log], "There is a loss spike at 1060. Anything to worry about?"
    )
    said = str(diagnosis.verdict)
    assert said == verdict if verdict == "healthy" else said != "healthy"
