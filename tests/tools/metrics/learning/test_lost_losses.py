"""A loss under any name that turns NaN and stays so; others are left alone."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.rows import each_row

from firstfault_tools.metrics.learning.lost_losses import find_in_incident


def incident(lines: Sequence[str]) -> SimpleNamespace:
    kept = tuple(enumerate(lines, start=1))
    return SimpleNamespace(
        digests=(SimpleNamespace(file="t.log", kept=kept, lines_total=len(kept)),)
    )


@each_row(
    ("form", "name"),
    [
        ("Epoch[1] Batch[{n}] Speed: 141.2 samples/sec,  IDLoss={v},", "IDLoss"),
        ("steps:   {n}%|#         | {n}/1600 [01:00<1:05:02,  1.98s/it, avr_loss={v}]", "avr_loss"),
        ("INFO: 1epoch:train:{n}-200batch: loss_ctc={v}, acc=0.1, backward_time=0.2", "loss_ctc"),
        ("{{'step': {n}, 'train_loss': tensor({v})}}", "train_loss"),
    ],
)
def test_the_name_the_place_and_the_value_before(form: str, name: str) -> None:
    lines = [form.format(n=n, v="nan" if n > 5 else 60.0 + n) for n in range(1, 10)]
    (found,) = find_in_incident(incident(lines), [])
    assert found.title.startswith(f"{name} became NaN")
    assert "65.0 just before" in found.title
    assert found.evidence[-1].line == 6


@each_row(
    "form",
    [
        "epoch {n} val_loss={v}",
        "epoch {n} best_loss: {v}",
        "epoch {n} min_loss_scale={v}",
    ],
)
def test_values_that_may_be_infinite(form: str) -> None:
    lines = [form.format(n=n, v="inf") for n in range(9)]
    assert find_in_incident(incident(lines), []) == ()


def test_a_loss_that_comes_back() -> None:
    lines = [f"batch {n} my_loss={'nan' if 2 < n < 5 else 1.5}" for n in range(9)]
    assert find_in_incident(incident(lines), []) == ()


@settings(max_examples=60, deadline=None)
@given(st.lists(st.text(alphabet="loss=:nan'0.1,[] \n", max_size=60), max_size=30))
def test_damage_raises_nothing(lines: list[str]) -> None:
    tuple(find_in_incident(incident(lines), []))
