"""A quantity is fine only where it was read and ends as it should."""

from __future__ import annotations

from tests.rows import each_row

from firstfault.investigation.curves import Curve
from firstfault.investigation.steadiness import ends_well, is_worse


@each_row(
    ("quantity", "values", "fine"),
    [
        ("loss", (3.0, 2.8, 2.5, 2.6, 2.2, 2.1), True),
        ("loss", (2.0, 2.1, 2.2, 2.6, 3.0, 3.1), False),
        ("reward", (0.1, 0.2, 0.3, 0.4, 0.5, 0.5), True),
        ("reward", (0.1, 0.4, 0.5, 0.3, 0.1, 0.1), False),
        ("reward", (0.30, 0.31, 0.30, 0.31, 0.30, 0.31), False),
        ("gradient norm", (1.0, 1.2, 9.0, 1.1, 1.0, 1.0), True),
        ("gradient norm", (1.0, 1.2, 1.1, 4.0, 9.0, 9.0), False),
        ("memory", (40.0, 61.0, 60.9, 61.0, 61.0, 61.0), True),
        ("memory", (40.0, 45.0, 50.0, 55.0, 60.0, 65.0), False),
    ],
)
def test_ends_well(quantity: str, values: tuple[float, ...], fine: bool) -> None:
    places = tuple((n, str(v)) for n, v in enumerate(values))
    assert ends_well(quantity, Curve(quantity, "run.log", "", values, places)) is fine


@each_row(
    ("quantity", "values", "worse"),
    [
        ("loss", (2.0, 2.0, 2.0, 2.5, 2.5, 2.5), True),
        ("loss", (2.0, 2.0, 2.0, 2.01, 2.0, 2.02), False),
        ("loss", (0.01, 0.01, 0.02, 0.03, 0.03, 0.03), False),
        ("gradient norm", (0.3, 0.3, 0.4, 1.1, 1.2, 1.2), True),
        ("reward", (0.5, 0.5, 0.4, 0.3, 0.3, 0.3), True),
        ("reward", (0.0, 0.0, 0.0, 0.0, 0.0, 0.0), False),
    ],
)
def test_plainly_worse(quantity: str, values: tuple[float, ...], worse: bool) -> None:
    places = tuple((n, str(v)) for n, v in enumerate(values))
    assert is_worse(quantity, Curve(quantity, "run.log", "", values, places)) is worse
