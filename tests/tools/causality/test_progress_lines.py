"""Which lines are a step of training?"""

from __future__ import annotations

from tests.rows import each_row

from firstfault_tools.causality.progress import read_progress


@each_row(
    ("text", "training"),
    [
        ("Epoch 3/40 - train_loss: 1.7400 - val_loss: 1.4700 - lr: 0.0003", True),
        ("Epoch [3/100] Batch 10/938 D_loss: 0.6912 G_loss: 0.7412", True),
        ("Epoch 12 train_acc 0.86 train_loss 0.4000 test_acc 0.8", True),
        ("{'loss': '-0.0001', 'grad_norm': '0.175', 'reward': '0.2'}", True),
        ("Training epoch 0, iteration 19/60 | lr: 2.4e-04 | reduced_train_loss: 2.166", True),
        ("epoch_size: 400, loss: cross_entropy", False),
        ("{'train_runtime': 100.0, 'train_loss': 1.1, 'epoch': 1.0}", False),
        ("Epoch 3 finished in 12 s", False),
    ],
)
def test_lines(text: str, training: bool) -> None:
    found = read_progress(1, text)
    assert (found is not None and found.training) is training
