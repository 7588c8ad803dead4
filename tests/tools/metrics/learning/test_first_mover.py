"""What left its course before the loss is told, and named as the cause where it is known to be one."""

from __future__ import annotations

import math

import pytest

from firstfault_tools.findings import Finding
from firstfault_tools.metrics.log_lines import find_in_lines


def _run(name: str, mover: list[float], first: int = 0) -> Finding:
    """A run of 60 rows whose loss turns at row 40; the other column as given."""
    lines = []
    for row, value in enumerate(mover):
        loss = 3.0 - 0.02 * row if row <= 40 else 2.2 + 0.15 * (row - 40)
        noise = 0.01 * math.sin(7 * row)
        lines.append(
            (first + row + 1, f"iteration {10 * row}/ 5000 | lm loss: {loss + noise:.4f} | {name}: {value:.4f}")
        )  # fmt: skip
    found = [f for f in find_in_lines(lines, "log.txt") if "loss left" in f.title]
    assert len(found) == 1
    return found[0]


def _leaves(at: int, level: float = 0.05) -> list[float]:
    return [level + 0.001 * math.cos(row) + max(0, row - at) * level / 2 for row in range(60)]


@pytest.mark.parametrize(
    ("name", "at", "kind"),
    [
        ("max_expert_share", 35, "metrics.router_collapse"),
        ("attn_logit_max", 30, "metrics.logit_growth"),
        ("some quantity", 35, "metrics.divergence"),
        # what moves after the loss is no cause of it
        ("max_expert_share", 55, "metrics.divergence"),
    ],
)
def test_first_mover(name: str, at: int, kind: str) -> None:
    found = _run(name, _leaves(at))
    assert found.kind == kind
    told = f"{name} left its usual" in found.title
    assert told is (at < 50)
    assert ("learning rate too high" in found.title) is not told


def test_what_only_drifts_or_comes_back_has_not_moved() -> None:
    drift = [0.05 + 0.0001 * row for row in range(60)]
    back = [0.05 + 0.001 * math.cos(row) + (0.3 if 30 < row < 38 else 0) for row in range(60)]
    for values in (drift, back):
        assert "left its usual" not in _run("max_expert_share", values).title
