"""Which lines are a step of training?"""

from __future__ import annotations

from pathlib import Path

from tests.rows import each_row

from firstfault_tools.causality.advance import read_advance
from firstfault_tools.causality.progress import ProgressReader, read_progress
from firstfault_tools.log.scan import build_set, scan_file


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


TABLE = "timestamp,host,free_gb,step\n" + "".join(
    f"2025-03-09T00:{i:02d}:00Z,a7,{90 - i},{{{i}}}\n" for i in range(6)
)


@each_row(
    ("steps", "last"),
    [((4, 8, 12, 16, 20, 24), 24), ((4, 8, 2, 6, 10, 14), None), ((4, 4, 4, 4, 4, 4), None)],
)
def test_a_table_of_times_and_steps_tells_where_the_run_stood(
    steps: tuple[int, ...], last: int | None, tmp_path: Path
) -> None:
    path = tmp_path / "watch.csv"
    path.write_text(TABLE.format(*steps), encoding="utf-8")
    signatures = build_set(())
    advance = read_advance(ProgressReader(scan_file(path, "watch.csv", signatures)))
    told = advance.counter if advance is not None and not advance.halted else None
    assert told == last
