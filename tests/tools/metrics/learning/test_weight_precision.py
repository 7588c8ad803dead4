"""Are the updates too small for the precision of the weights?"""

from __future__ import annotations

from tests.rows import each_row

from firstfault_tools.metrics.learning.weight_precision import find_in_lines


def run(setting: str, rate: str, fall: float) -> list[tuple[int, str]]:
    texts = [setting]
    texts += [
        f"step {100 * n} | loss {1.44 - fall * n + 0.003 * (n % 3):.4f} | lr {rate} | grad_norm 1.9"
        for n in range(12)
    ]
    return list(enumerate(texts, 1))


@each_row(
    ("setting", "rate", "fall", "lost"),
    [
        ("dtype: bf16", "3.0e-07", 0.0, True),
        ("param dtype torch.bfloat16, master copy: none", "3.0e-07", 0.0, True),
        ("dtype: bf16", "3.0e-07", 0.02, False),
        ("dtype: bf16", "3.0e-04", 0.0, False),
        ("precision: bf16-mixed", "3.0e-07", 0.0, False),
        ("dtype: fp32", "3.0e-07", 0.0, False),
    ],
)
def test_flat_loss_of_weights_in_bf16(setting: str, rate: str, fall: float, lost: bool) -> None:
    assert bool(list(find_in_lines(run(setting, rate, fall), "log.txt"))) is lost
