"""Is the quantity that is asked for the one that is told, and is every number given used or named?"""

from __future__ import annotations

from tests.rows import each_row

from firstfault.conversation.asked import read_asked
from firstfault.conversation.calculations import calculate
from firstfault.conversation.doubts import read_doubts
from firstfault.conversation.forms import Form
from firstfault.conversation.unused import find_unused


@each_row(
    ("text", "begins"),
    [
        ("1024 gpus, mtbf of one gpu about 50000 h, a save blocks us 2 min. what interval?", "Save every 1.8 h"),
        ("mfu? 8.03B dense, 64 h100, global batch 512 x 8192 tokens, 7.1 s per step", "45.0 % MFU"),
        ("980 GB ckpt, our fs does 12 GB/s, sync save every 30 min. how much time do we lose", "4.3 % of the time goes into saves"),
        ("algbw 185 GB/s on 16 gpus at all_reduce, what is the bus bandwidth with 8x400G?", "346.9 GB/s of bus bandwidth"),
        ("all_gather on 64 gpus algbw 210 GB/s, busbw?", "206.7 GB/s of bus bandwidth"),
        ("activation memory: 32 layers, hidden 4096, seq 8192, microbatch 1, flash attention", "34.00 GiB"),
        ("30B with adamw, zero2 vs zero3 on 32 gpus, states per gpu?", "ZeRO-2 73.1 GB"),
        ("13B params, 16x H100 80GB. GB per gpu for zero1, 2 and 3 without activations?", "A GPU holds before activations: ZeRO-1 61.8 GB, ZeRO-2 37.4 GB, ZeRO-3 13.0 GB"),
        ("how many h100 80gb do i need at least to full finetune a 70b with fsdp and adamw bf16", "32 x H100-80GB are enough"),
        ("7B model, batch 4M tokens, 1.5T tokens: how many steps and how long at 3.1 s per step?", "375,000 steps: 1.5T tokens at 4M a step. At 3.1 s a step: 13.5 days"),
        ("how often should I save if it fails every 9 hours? a save takes 133 s", "Save every 47 min"),
        ("24 nodes x 8 gpus, one node dies every 90 days, saves take 90 seconds, best checkpoint interval?", "Save every 2.1 h"),
    ],
)  # fmt: skip
def test_the_quantity_asked_for_is_told_first(text: str, begins: str) -> None:
    asked = read_asked(text, False)
    assert begins in calculate(asked).text.split("\n\n")[0]


def test_a_number_that_did_not_enter_is_named() -> None:
    assert find_unused("algbw 185 GB/s at 8 GiB on 16 gpus", [185e9, 16.0]) == ["8 GiB"]
    assert find_unused("70B on 64 H100 80GB, save every 30 min", [70e9, 64.0, 1800.0]) == []


def test_an_answer_has_to_name_both_sides_of_a_choice() -> None:
    doubts = read_doubts("should I use bf16 or fp16 for pretraining?")
    assert (
        doubts.weigh(None, frozenset({"bf16"}))
        > 0
        == doubts.weigh(None, frozenset({"bf16", "fp16"}))
    )
    assert read_doubts("tensor parallel across nodes ok or no?").sides == ()
    assert read_doubts("what does the watchdog timeout mean?").weigh(Form.HOW, frozenset()) > 0
