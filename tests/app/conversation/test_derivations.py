"""Is a number of the sentence used, or told? Readings of amounts, and what follows from them."""

from __future__ import annotations

import pytest
from evals.questions.__main__ import ask
from tests.rows import each_row

from firstfault.conversation.amounts import read_amounts
from firstfault.conversation.derivations import derive
from firstfault.conversation.quantities import read_quantities

READINGS = [
    ("how many steps for 300B tokens", {"tokens": 300e9}),
    ("seq 4096 vocab 32000 mbs 2", {"sequence": 4096, "vocabulary": 32000, "micro_batch": 2}),
    ("80 layers 8 kv heads dim 128", {"layers": 80, "kv_heads": 8, "head_dim": 128}),
    ("TP8 PP4, 512 H100", {"tp": 8, "pp": 4, "gpus": 512}),
    ("2 nodes with 8 gpus", {"nodes": 2, "per_node": 8}),
    ("15 min lost work and 12 min restart", {"lost_work": 900, "restart": 720}),
    ("a save stops training 20 s every 30 min", {"save_time": 20, "save_every": 1800}),
    ("400 Gb/s", {"link": 50e9}),
    ("45 GB/s", {"link": 45e9}),
    ("13B active of 47B total", {"active": 13e9, "parameters": 47e9}),
]


@each_row(("text", "wanted"), READINGS)
def test_each_number_has_its_quantity(text: str, wanted: dict[str, float]) -> None:
    assert {a.name: a.value for a in read_amounts(text).amounts} == pytest.approx(wanted)


def test_a_second_number_of_a_quantity_is_kept_apart() -> None:
    amounts = read_amounts("12 failures in 30 days on 512 gpus, what mtbf with 4096").amounts
    assert [a.value for a in amounts if a.name == "gpus"] == [512, 4096]


def test_a_number_that_nothing_uses_is_left() -> None:
    text = "perplexity at loss 2.31 with 17 bananas"
    derived = derive(text, read_quantities(text))
    assert derived is not None
    assert [derived.reading.mentions[i].raw for i in derived.left] == ["17"]


def test_results_chain() -> None:
    text = "fsdp 7B in bf16 on 64 gpus: comm volume per gpu and step, and time at 45 GB/s"
    derived = derive(text, read_quantities(text))
    assert derived is not None
    assert not derived.left
    assert [g[0].name for g in derived.results] == ["volume", "volume_time"]
    assert derived.results[1][0].value == pytest.approx(3 * 63 / 64 * 14e9 / 45e9)


def test_steps_are_asked_for_beside_what_they_are_for() -> None:
    text = "how many steps for 300B tokens with a global batch of 1024 x 2048"
    assert "143,052 steps" in ask({"ask": text}).text


def test_open_gradients_are_told_in_fp32_too() -> None:
    text = "zero-1, 7B, 8 gpus, how much per gpu before activations"
    assert "FP32 gradients instead of 16-bit ones: 52.5 GB" in ask({"ask": text}).text
    told = "7B bf16 weights and grads, zero-1 on 8 gpus, how much per gpu before activations"
    assert "FP32 gradients instead" not in ask({"ask": told}).text
