"""What a resume did not bring back: the order of the data, the precision, any step to train."""

from __future__ import annotations

from pathlib import Path

import pytest

from firstfault.workspace import Workspace

STEPS = ["step 10 loss 1.0", "step 20 loss 0.9", "step 30 loss 0.8"]
TOLD = [
    ("checkpoint.order_replayed", ["epoch 2 step 10 loss 1.0", "Resuming from out/checkpoint-900", "DistributedSampler: seed 1, epoch 0", *STEPS]),
    ("checkpoint.nothing_left", ["Restored all states from the checkpoint at a/epoch=9-step=500.ckpt", "`Trainer.fit` stopped: `max_steps=500` reached."]),
    ("checkpoint.nothing_left", ["max_steps=200", "Resumed at step 200", "waiting for batch of step 200"]),
    ("checkpoint.narrowed", ["lora dtype torch.float32", "Resuming from checkpoint a", "lora dtype torch.float16", *STEPS]),
]  # fmt: skip
QUIET = [
    ["DistributedSampler: seed 1, epoch 0", *STEPS],
    ["epoch 2 step 10 loss 1.0", "Resuming from out/checkpoint-900", "DistributedSampler: seed 1, epoch 2", *STEPS],
    ["Restored all states from the checkpoint at a/epoch=9-step=500.ckpt", *STEPS, "`Trainer.fit` stopped: `max_steps=500` reached."],
    ["max_steps=900", "Resumed at step 200", "waiting for batch of step 200"],
    ["max_steps=200", "Resumed at step 200", *STEPS],
    ["lora dtype torch.float32", "Resuming from checkpoint a", "lora dtype torch.float32", *STEPS],
]  # fmt: skip


def kind_of(lines: list[str], tmp_path: Path) -> str:
    path = tmp_path / "train.log"
    path.write_text("\n".join(lines) + "\n")
    return str(Workspace().diagnose_paths([path]).signature)


@pytest.mark.parametrize(("kind", "lines"), TOLD)
def test_told(kind: str, lines: list[str], tmp_path: Path) -> None:
    assert kind_of(lines, tmp_path) == kind


@pytest.mark.parametrize("lines", QUIET)
def test_quiet(lines: list[str], tmp_path: Path) -> None:
    assert not kind_of(lines, tmp_path).startswith("checkpoint.")
