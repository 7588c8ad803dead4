"""Measured steps on H200, where the file is at hand: mean and worst error, and every phase."""

import json
from pathlib import Path

import pytest

from firstfault_tools.memory.check import read_rows, score_rows

TRUTH = Path(__file__).resolve().parents[3].parent / "shared" / "truth" / "memory_measured.jsonl"

pytestmark = pytest.mark.skipif(not TRUTH.is_file(), reason="no measured rows at hand")


@pytest.fixture(scope="module")
def scored():
    rows = read_rows(TRUTH.read_text(), TRUTH.name)
    return rows, score_rows(rows)


def test_peak_of_every_row(scored):
    _, result = scored
    for row in result["rows"]:
        print(f"{row['predicted_gib']:9.3f} {row['measured_gib']:9.3f} {row['error']:+.4f} "
              f"{row['label']}")  # fmt: skip
    print(f"mean {result['mean_error']:.4f} worst {result['worst_error']:.4f}")
    assert result["rows_measured"] == len(result["rows"]) > 0
    assert result["mean_error"] <= 0.015
    assert result["worst_error"] <= 0.05


@pytest.mark.parametrize(
    ("phase", "bound"),
    [("params", 0.01), ("after_forward", 0.01), ("peak_forward", 0.01), ("after_backward", 0.01),
     ("peak_backward", 0.01), ("after_step", 0.015)],
)  # fmt: skip
def test_every_phase(scored, phase, bound):
    rows, result = scored
    for row, predicted in zip(rows, result["rows"], strict=True):
        measured = row["measured"][phase]
        assert predicted["phases_gib"][phase] == pytest.approx(measured, rel=bound), predicted[
            "label"
        ]


def test_measured_values_are_not_read(scored):
    rows, result = scored
    bare = [{key: value for key, value in row.items() if key not in ("measured", "params", "loss")}
            for row in rows]  # fmt: skip
    again = score_rows(json.loads(json.dumps(bare)))
    assert [row["predicted_gib"] for row in again["rows"]] == [
        row["predicted_gib"] for row in result["rows"]
    ]
    assert again["mean_error"] is None
