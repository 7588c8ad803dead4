"""Warnings that name a cause, and those that are only printed at every start."""

from __future__ import annotations

from tests.rows import each_row

from firstfault.investigation.told_causes import names_cause


@each_row(
    ("text", "named"),
    [
        ("WARNING eval set has 12 samples, fewer than the 16 ranks: set drop_last=False or use more samples", True),
        ("2026-01-02 10:00:00 [WARN] the buffer is smaller than one batch, increase prefetch to 4", True),
        ("UserWarning: the tokenizer does not match the model, please resize the embeddings", True),
        ("WARNING retrying", False),
        ("INFO the buffer is smaller than one batch, increase prefetch to 4", False),
        ("FutureWarning: this argument is deprecated because of X, please use Y instead", False),
        ("W0426 09:14:03 torch/distributed/run.py:757] Setting OMP_NUM_THREADS instead of 1, please tune", False),
    ],
)  # fmt: skip
def test_a_warning_names_a_cause_with_its_mending(text: str, named: bool) -> None:
    assert names_cause(text) is named
