import itertools
from dataclasses import replace

import pytest
from tests.rows import each_row

from firstfault_tools.errors import InvalidParameter
from firstfault_tools.memory.calibration import apply_calibration, calibrate
from firstfault_tools.memory.cards import find_card, list_cards
from firstfault_tools.memory.changes import rank_changes
from firstfault_tools.memory.configuration import build_run
from firstfault_tools.memory.estimate import Fit
from firstfault_tools.memory.models import find_model
from firstfault_tools.memory.plan import plan_changes
from firstfault_tools.memory.setup import (
    Attention,
    Framework,
    Precision,
    Recompute,
    Sharding,
    TrainingSetup,
)
from firstfault_tools.memory.sizes import GIB
from firstfault_tools.memory.verdict import count_communicators, estimate_step, judge

L8 = build_run(find_model("llama-3-8b")).shape
L70 = build_run(find_model("llama-3-70b")).shape
MIXTRAL = build_run(find_model("mixtral-8x7b")).shape
BASE = {
    "framework": Framework.MEGATRON, "attention": Attention.FLASH, "distributed_optimizer": True,
    "sequence": 8192,
}  # fmt: skip
EIGHT = TrainingSetup(**BASE, world=8, micro_batches=16)
SEVENTY = TrainingSetup(
    **BASE, world=64, tensor=8, pipeline=4, sequence_parallel=True, micro_batches=64
)
H100 = find_card("H100-80GB")


def saved(shape, setup, card=None):
    return {change.name: change for change in rank_changes(shape, setup, card)}


def test_ranking_of_eight_billion_on_one_node():
    found = saved(L8, EIGHT, H100)
    expected = {
        "tensor parallelism 2 with sequence parallelism": 42.4,
        "full activation recomputation": 31.0,
        "pipeline parallelism 2": 28.4,
        "context parallelism 2": 20.0,
        "half the sequence length": 20.0,
        "fused or chunked cross-entropy": 3.9,
    }
    for name, size in expected.items():
        assert found[name].saved_gib == pytest.approx(size, abs=0.1), name
    assert found["tensor parallelism 2 with sequence parallelism"].fits
    assert not found["fused or chunked cross-entropy"].fits
    fsdp = next(change for name, change in found.items() if name.startswith("FSDP"))
    assert 35 < fsdp.saved_gib < 41.2


def test_ranking_of_seventy_billion():
    found = saved(L70, SEVENTY)
    assert found["full activation recomputation"].saved_gib == pytest.approx(19.4, abs=0.1)
    assert found["twice the data-parallel ranks (twice the GPUs)"].saved_gib == pytest.approx(
        6.3, abs=0.1
    )
    assert found["pipeline parallelism 8"].saved_gib == pytest.approx(5.2, abs=0.1)
    interleaved = found["interleaved schedule, 2 chunks a stage"]
    assert interleaved.saved_gib == pytest.approx(-7.9, abs=0.1)
    assert "VPP raises memory" in interleaved.side_effects
    assert "first stage" in found["pipeline parallelism 8"].side_effects


def test_those_that_fit_come_first_then_by_saving():
    ranked = rank_changes(L8, EIGHT, H100)
    fits = [change.fits for change in ranked]
    assert fits == sorted(fits, reverse=True)
    for left, right in itertools.pairwise(ranked):
        if left.fits == right.fits:
            assert left.saved_gib >= right.saved_gib


def test_selective_under_flash_says_it_does_nothing():
    change = saved(L8, EIGHT)["selective recomputation of the attention core"]
    assert change.saved_gib < 0.1
    assert "flash" in change.side_effects


def test_expert_parallelism_says_what_it_does_not_divide():
    setup = TrainingSetup(**BASE, world=64, pipeline=4, expert=4, micro_batches=16)
    change = saved(MIXTRAL, setup)["expert parallelism 8"]
    assert change.saved_gib > 0
    assert "does not divide expert activations" in change.side_effects


@each_row(
    ("change", "name"),
    [
        ({"attention": Attention.EAGER}, "flash attention instead of written-out scores"),
        ({"micro_batch": 8}, "half the micro-batch, twice the accumulation"),
        ({"optimizer": "adamw_foreach"}, "fused optimizer step"),
        ({"precision": Precision.AMP}, "bf16 weights and optimizer throughout"),
        ({"world": 8, "sharding": Sharding.DDP},
         "ZeRO-1: optimizer states split over the data-parallel ranks"),
        ({"lora_rank": 16}, "QLoRA: the frozen base in NF4"),
    ],
)  # fmt: skip
def test_eager_runs_get_their_own_changes(change, name):
    setup = TrainingSetup(sequence=2048, **change)
    assert saved(L8, setup)[name].saved_gib >= 0


def test_nothing_offered_is_already_done():
    done = replace(EIGHT, recompute=Recompute.FULL, loss_fused=True)
    names = saved(L8, done)
    assert "full activation recomputation" not in names
    assert "fused or chunked cross-entropy" not in names


def test_verdict_against_cards():
    setup = TrainingSetup(sequence=2048, precision=Precision.BF16)
    small = build_run(find_model("qwen2.5-0.5b")).shape
    assert judge(estimate_step(small, setup), setup, find_card("A100-80GB")).fit is Fit.FITS
    assert judge(estimate_step(L8, setup), setup, find_card("rtx-4090")).fit is Fit.NO
    assert judge(estimate_step(L8, setup), setup).fit is Fit.UNKNOWN


def test_range_is_ordered_and_outside_is_kept_apart():
    setup = replace(SEVENTY)
    verdict = judge(estimate_step(L70, setup), setup, H100)
    assert verdict.needed.low < verdict.needed.expected < verdict.needed.high
    assert count_communicators(setup) == 3
    assert verdict.outside.expected > 1.5
    assert verdict.needed.expected > verdict.allocated.expected + verdict.outside.expected


@each_row("name", ["h100", "NVIDIA H200", "A100", "80", "79.1 GiB", "24gb"])
def test_cards_by_many_names(name):
    assert find_card(name).total_gib > 10


@each_row("name", ["", "warp drive", "-5", "nan", "1e9"])
def test_unknown_cards(name):
    with pytest.raises(InvalidParameter):
        find_card(name)


def test_capacity_is_what_pytorch_reports_not_the_number_on_the_box():
    assert list_cards()["h100-80gb"].total_gib < 79.7


def test_one_observed_peak_corrects_the_dynamic_part_only():
    step = estimate_step(L8, EIGHT)
    factor = calibrate(step, step.peak.total / GIB)
    assert factor.factor == pytest.approx(1)
    observed = step.peak.total / GIB + 4
    corrected = apply_calibration(step, calibrate(step, observed))
    assert corrected.peak.total / GIB == pytest.approx(observed, abs=1e-6)
    assert corrected.peak.terms["weights"] == step.peak.terms["weights"]
    assert corrected.relative_error < step.relative_error


def test_calibration_predicts_another_setup_better():
    step = estimate_step(L8, EIGHT)
    found = calibrate(step, 100.0)
    other = replace(EIGHT, context=2)
    corrected = apply_calibration(estimate_step(L8, other), found).peak.total / GIB
    dynamic = 100.0 - 56.09
    assert corrected == pytest.approx(56.09 + dynamic / 2, abs=0.1)


@each_row("observed", [0, -1, 40.0, float("inf")])
def test_impossible_observation_is_refused(observed):
    with pytest.raises(InvalidParameter):
        calibrate(estimate_step(L8, EIGHT), observed)


def test_implausible_factor_is_flagged():
    assert not calibrate(estimate_step(L8, EIGHT), 200.0).plausible


def test_one_after_the_other_until_it_fits():
    """Each step is weighed on top of those before, and what trains something else comes last."""
    qlora = TrainingSetup(
        attention=Attention.FLASH, sequence=2048, micro_batch=4, quantized_bits=4, lora_rank=16, precision=Precision.BF16
    )  # fmt: skip
    steps = plan_changes(L8, qlora, find_card("T4"))
    assert [s.name for s in steps][:2] == [
        "full activation recomputation",
        "half the micro-batch, twice the accumulation",
    ]
    assert [s.fits for s in steps] == [False] * (len(steps) - 1) + [True]
    assert not any(s.alters for s in steps)
    for before, after in itertools.pairwise(steps):
        assert before.needed_gib - after.needed_gib == pytest.approx(after.saved_gib, rel=0.25)
    far = plan_changes(L70, SEVENTY, find_card("T4"))
    alters = [s.alters for s in far]
    assert alters == sorted(alters)
    assert plan_changes(L8, EIGHT, None) == ()
