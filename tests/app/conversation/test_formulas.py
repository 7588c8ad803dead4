"""Numbers of a sentence choose the formula; what was given is used and never told as assumed."""

from __future__ import annotations

import math

from tests.rows import each_row

from firstfault.conversation.asked import read_asked, read_continued
from firstfault.conversation.calculations import calculate
from firstfault.conversation.derivations import derive
from firstfault.conversation.flags import say_flags
from firstfault.conversation.formulas import choose_formula, load_formulas
from firstfault.conversation.quantities import read_quantities

CHOSEN = [
    ("how many days does a 7B take for 100B tokens on 8 A100 at 50% MFU", "time_of_a_run", 6 * 7e9 * 100e9 / (8 * 0.5 * 312e12)),
    ("bf16 logits size: vocab 32000, seq 4096, mbs 1", "logits", 4096 * 32000 * 2),
    ("a 13B on 300B tokens at 45 % mfu, how many h100 days", "gpu_days_of_a_run", 6 * 13e9 * 300e9 / (0.45 * 989e12) / 86400),
    ("steps per epoch with 1.2M samples and gbs 768", "steps_an_epoch", 1563),
    ("step 12000 of 50000 at 3.2 s/step, when done", "time_left", 38000 * 3.2),
    ("3 failures a week on 128 nodes, mtbf per node?", "mtbf_of_a_node", 604800 / 3 * 128),
    ("saving 45 s every 20 minutes, how much is wasted", "save_overhead", 3.75),
    ("moe of 100B total, 12B active, 1T tokens on 128 h100 at 35% mfu, how long", "time_of_a_run", 6 * 12e9 * 1e12 / (128 * 0.35 * 989e12)),
]  # fmt: skip
DERIVED = [
    ("2,048 GPUs, MTBF of one GPU is 40000 hours. time between failures of the job?", 40000 * 3600 / 2048),
    ("how often will a job on 512 gpus fail if each card fails every 3 years", 3 * 31_557_600 / 512),
    ("how many iterations are 1T tokens at sequence length 8192 and global batch size 1024?", 119_210),
    ("how many H100 nodes for 8B with 1T tokens within 10 days", 18),
    ("kv cache of llama-3-70b at 32k context, batch 8", 2 * 80 * 8 * 128 * 32768 * 8 * 2),
    ("all-reduce of 14 GB over 400 Gb/s, 16 ranks, how long", 2 * 15 / 16 * 14 / 50),
    ("kv cache, layers 40 kv heads 4 head dim 128, bf16, 8k context, 6 requests", 2 * 40 * 4 * 128 * 8192 * 6 * 2),
    ("how long for 3T tokens at 1.2 million tokens/s", 3e12 / 1.2e6),
    ("zero3 communication volume of an 8B on 64 gpus in bf16", 3 * 63 / 64 * 16e9),
    ("gbs 2097152 tokens, sequence 4096, mbs 2, 64 gpus, tp 4: accumulation steps?", 16),
    ("13b model, bf16 weights and bf16 grads, fp32 master, adam 8bit moments. no sharding, how many gb without activations", 13e9 * 10),
    ("ckpt of 20b model: bf16 weights + fp32 master + 2 fp32 moments. how big is it", 20e9 * 14),
    ("512 GPUs sat idle 2h40, we pay 2.35 dollars per gpu hour, what does it cost", 512 * 160 / 60 * 2.35),
    ("a step of 3.2 s of which 2.6 compute .6 exposed, one gpu gets 30% slower in compute: new step?", 3.98),
    ("128 nodes each mtbf 10000 hours: mtbf of the job?", 10000 / 128 * 3600),
    ("30 days, 40 failures, each 20 min restart and half of a 1h checkpoint interval, goodput?", 1 - 40 * 50 / 43200),
]  # fmt: skip
NOT_CHOSEN = [
    "how many steps are 300B tokens?",
    "how long does a checkpoint take?",
    "16 stages, 32 micro-batches: how large is the bubble?",
    "how often should we checkpoint with 1024 GPUs if a save takes 60 s?",
    "why did rank 3 time out after 600 seconds?",
]


@each_row(("text", "formula", "value"), CHOSEN)
def test_what_is_asked_and_given_chooses_the_formula(text: str, formula: str, value: float) -> None:
    chosen = choose_formula(text, read_quantities(text))
    assert chosen is not None
    assert chosen.formula.id == formula
    assert math.isclose(chosen.evaluate(), value, rel_tol=1e-3)


@each_row(("text", "value"), DERIVED)
def test_what_is_asked_follows_from_the_numbers(text: str, value: float) -> None:
    numbers = say_flags(text)
    derived = derive(numbers, read_quantities(numbers))
    assert derived is not None
    assert any(math.isclose(k.value, value, rel_tol=1e-3) for g in derived.results for k in g)


@each_row("text", NOT_CHOSEN)
def test_without_its_quantities_no_formula_is_taken(text: str) -> None:
    assert choose_formula(text, read_quantities(text)) is None


def test_a_rate_is_told_by_its_name() -> None:
    said = calculate(read_asked("2 TB checkpoint: weka 40 GB/s, nfs 1 GB/s, how long?", False)).text
    assert said.startswith("50 s at weka")
    assert "33 min at nfs" in said


@each_row(
    ("text", "given"),
    [
        ("interleaved, pp 4, m 16, vpp 3: bubble?", "chunks"),
        ("mtbf 12h, saves hourly, a save costs 1 min, restart 20 min: goodput?", "restart"),
        ("how long for 8B on 1T tokens with 64 H100 at 35% MFU", "mfu"),
    ],
)
def test_a_given_number_is_not_told_as_assumed(text: str, given: str) -> None:
    said = calculate(read_asked(text, False)).text
    assert given not in said.partition("Assumed")[2]


def test_every_formula_has_a_source_and_says_what_it_takes_as_given() -> None:
    assert all(f.source and f.holds for f in load_formulas())


@each_row(
    ("text", "first"),
    [
        ("--pipeline-model-parallel-size 4 --num-layers-per-virtual-pipeline-stage 2 --num-layers 32 --micro-batch-size 1 --global-batch-size 128 dp 8, bubble?", "4.5 %"),
        ("how many microbatches for less than 5% bubble with 8 stages", "133 micro-batches"),
        ("rank 77 with tp=8 pp=4 dp=8, which stage?", "Rank 77 is pipeline stage 1"),
        ("crashes 1 in 20 runs, 30 clean ones. fixed?", "Not proven yet"),
        ("dp=? world 256 tp 4 pp 4 cp 2", "Data-parallel size 8"),
        ("2000 h100, 37 min hang then restart 12 min, $2.5 per hour. damage?", "1,633.3 GPU-hours, $4,083"),
        ("how many GPUs of 80GB H100 do I need for a 30B model?", "16 x H100"),
    ],
)  # fmt: skip
def test_terse_numbers_find_their_calculator(text: str, first: str) -> None:
    asked = read_asked(text, False)
    assert asked.family.value == "calculator"
    assert calculate(asked).text.startswith(first)


@each_row("text", ["40 layers 4 kv heads 32 heads", "layers 40 kv heads 4 heads 32"])
def test_a_number_is_that_of_the_noun_beside_it(text: str) -> None:
    q = read_quantities(text)
    assert (q.layers, q.kv_heads, q.heads) == (40, 4, 32)


def test_failures_of_one_node_give_those_of_the_run() -> None:
    said = calculate(read_asked("64 servers, each server fails every 100 days, saving takes 30 s, how often to save?", False)).text  # fmt: skip
    assert "a failure every 37.5 h" in said
    assert "one node fails every 100 days" in said


def test_failures_that_are_not_understood_are_asked_for() -> None:
    said = calculate(read_asked("about 9 fails on 512 gpus, a save is 60 s: how often should we save?", False)).text  # fmt: skip
    assert said.startswith("I did not understand how often it fails")


def test_a_message_goes_on_with_the_calculation_before_it() -> None:
    asked = read_continued("and with zero3?", ["7B zero2 on 4 a100 40gb, fits?"], False)
    assert asked is not None
    assert (asked.quantities.sharding, asked.quantities.billions) == ("zero3", 7)
    assert read_continued("and what is xid 79?", ["7B zero2 on 4 a100 40gb, fits?"], False) is None
