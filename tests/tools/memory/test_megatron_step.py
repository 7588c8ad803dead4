"""Acceptance values of the per-stage model: reference rows, Korthikanti's table, recorded peaks."""

from dataclasses import replace

import pytest
from tests.rows import each_row

from firstfault_tools.errors import InvalidParameter
from firstfault_tools.memory.architecture import Activation, Architecture, Norm
from firstfault_tools.memory.configuration import build_run
from firstfault_tools.memory.megatron_step import (
    count_in_flight,
    count_layer_coefficient,
    count_stage_parameters,
    estimate_megatron,
    size_layer,
    size_loss,
    size_stage,
)
from firstfault_tools.memory.models import find_model
from firstfault_tools.memory.setup import (
    Attention,
    Framework,
    Precision,
    Recompute,
    TrainingSetup,
)
from firstfault_tools.memory.sizes import GIB

L8 = build_run(find_model("llama-3-8b")).shape
L70 = build_run(find_model("llama-3-70b")).shape
MIXTRAL = build_run(find_model("mixtral-8x7b")).shape
SEVEN = Architecture(
    hidden=4096, layers=32, heads=32, kv_heads=8, ffn=16384, vocab=131072, gated=False,
    activation=Activation.GELU, norm=Norm.LAYER, positions=8192, qkv_bias=True,
    attention_out_bias=True, mlp_bias=True,
)  # fmt: skip
FIFTEEN = Architecture(
    hidden=6144, layers=32, heads=48, kv_heads=8, ffn=24576, vocab=256000, gated=False,
    activation=Activation.SQUARED_RELU, norm=Norm.LAYER,
)  # fmt: skip


def setup(**given):
    return TrainingSetup(
        **{
            "framework": Framework.MEGATRON, "attention": Attention.FLASH,
            "distributed_optimizer": True, **given,
        }
    )  # fmt: skip


ROW5 = setup(sequence=8192, world=8, micro_batches=16)
ROW6 = setup(sequence=8192, world=8, tensor=2, sequence_parallel=True, micro_batches=32)
ROW7 = setup(
    sequence=8192, world=64, tensor=8, pipeline=4, sequence_parallel=True, micro_batches=64
)
ROW8 = setup(
    sequence=8192, world=64, tensor=4, pipeline=4, virtual=5, sequence_parallel=True,
    micro_batches=32,
)  # fmt: skip
ROW9 = setup(sequence=4096, world=64, pipeline=4, expert=8, micro_batches=16)
ROW10 = setup(
    sequence=4096, world=64, tensor=2, pipeline=4, expert=4, expert_tensor=1,
    sequence_parallel=True, micro_batches=32,
)  # fmt: skip
ROW11 = setup(
    sequence=8192, micro_batch=2, world=8, tensor=4, dropout=True, micro_batches=2,
    pad_vocab=131584,
)  # fmt: skip
ROW12 = setup(
    sequence=8192, world=8, pipeline=4, virtual=8, dropout=True, micro_batches=4,
    pad_vocab=131200,
)  # fmt: skip


def parts(shape, run, stage):
    terms = size_stage(shape, run, stage)
    static = sum(terms[name] for name in ("weights", "gradients", "optimizer"))
    dynamic = terms["activations"] + terms.get("embedding", 0)
    return static / GIB, dynamic / GIB, terms.get("logits and loss", 0) / GIB


@each_row(
    ("shape", "run", "stage", "static", "activations", "logits", "total"),
    [
        (L8, ROW5, 0, 56.09, 34.03, 6.00, 96.12),
        (L8, ROW6, 0, 33.66, 17.02, 3.00, 53.67),
        (L70, ROW7, 0, 25.38, 20.96, 0, 46.33),
        (L70, ROW8, 0, 38.06, 48.20, 0, 86.27),
        (MIXTRAL, ROW9, 0, 18.69, 31.52, 0, 50.20),
        (MIXTRAL, ROW10, 0, 25.26, 15.76, 0, 41.01),
        (SEVEN, ROW11, 0, 19.15, 30.58, 3.26, 52.99),
        (SEVEN, ROW12, 3, 21.76, 28.12, 6.13, 56.01),
    ],
    ids=["5", "6", "7", "8", "9", "10", "11", "12"],
)
def test_reference_rows(shape, run, stage, static, activations, logits, total):
    found = parts(shape, run, stage)
    assert found[0] == pytest.approx(static, rel=0.001)
    assert found[1] == pytest.approx(activations, abs=0.01)
    assert found[2] == pytest.approx(logits, abs=0.01)
    assert sum(found) == pytest.approx(total, abs=0.02)


def test_last_stage_is_the_peak_of_the_interleaved_seven_billion():
    """Tools that look at the first stage only say 53.3."""
    step = estimate_megatron(SEVEN, ROW12)
    assert step.peak.stage == 3
    assert sum(parts(SEVEN, ROW12, 0)) == pytest.approx(53.29, abs=0.02)


@each_row(
    ("case", "predicted", "measured_gb", "bound"),
    [
        ("row 11 peak", lambda: sum(parts(SEVEN, ROW11, 0)), 57.144, 0.03),
        ("row 11 static", lambda: parts(SEVEN, ROW11, 0)[0], 20.664, 0.01),
        ("row 12 peak", lambda: sum(parts(SEVEN, ROW12, 3)), 60.721, 0.03),
        ("row 12 static", lambda: parts(SEVEN, ROW12, 3)[0], 24.809, 0.07),
    ],
)
def test_recorded_peaks(case, predicted, measured_gb, bound):
    assert predicted() * GIB / 1e9 == pytest.approx(measured_gb, rel=bound), case


@each_row("world", [8, 64, 512])
def test_fifteen_billion_dynamic_does_not_depend_on_replicas(world):
    run = setup(
        sequence=4096, micro_batch=4, world=world, tensor=8, sequence_parallel=True,
        pad_vocab=256000,
    )  # fmt: skip
    _, activations, logits = parts(FIFTEEN, run, 0)
    assert (activations + logits) * GIB / 1e9 == pytest.approx(14.888, rel=0.03)


@each_row(
    ("tensor", "batch", "static", "activations", "bound"),
    [
        (2, 1, 5.3, 1.3, 0.10),
        (2, 2, 5.3, 2.7, 0.10),
        (1, 1, 8.8, 2.4, 0.10),
        (1, 2, 8.8, 5.0, 0.10),
    ],
)
def test_experts_against_a_published_table(tensor, batch, static, activations, bound):
    shape = Architecture(
        hidden=2048, layers=4, heads=16, kv_heads=8, ffn=5440, vocab=32000, experts=8,
        experts_per_token=2,
    )  # fmt: skip
    run = setup(
        sequence=4096, micro_batch=batch, world=8, tensor=tensor, sequence_parallel=tensor > 1
    )
    found = parts(shape, run, 0)
    assert found[0] == pytest.approx(static, rel=0.02)
    assert found[1] + found[2] == pytest.approx(activations, rel=bound)


MEBI = 1024**2
KORTHIKANTI = [
    # hidden, heads, batch, then MiB a layer: none, TP, TP+SP, TP+selective, all three, full
    (6144, 64, 4, (6752, 1264, 844, 624, 204, 96)),
    (12288, 96, 1, (2736, 552, 342, 312, 102, 48)),
    (20480, 128, 1, (3920, 840, 490, 520, 170, 80)),
    (25600, 160, 1, (4900, 1050, 612.5, 650, 212.5, 100)),
]
KINDS = (
    {},
    {"tensor": 8},
    {"tensor": 8, "sequence_parallel": True},
    {"tensor": 8, "recompute": Recompute.SELECTIVE},
    {"tensor": 8, "sequence_parallel": True, "recompute": Recompute.SELECTIVE},
    {"recompute": Recompute.FULL},
)


@each_row(("hidden", "heads", "batch", "expected"), KORTHIKANTI)
def test_table_of_korthikanti(hidden, heads, batch, expected):
    shape = Architecture(
        hidden=hidden, layers=8, heads=heads, ffn=4 * hidden, vocab=51200, gated=False
    )
    for kind, size in zip(KINDS, expected, strict=True):
        run = TrainingSetup(
            sequence=2048, micro_batch=batch, framework=Framework.MEGATRON, dropout=True,
            attention=Attention.EAGER, world=8, **kind,
        )  # fmt: skip
        kept = size_layer(shape, run).kept / MEBI
        if kind == {}:
            # The paper writes 34 + 5as/h for one GPU.
            scores = 5 * heads * 2048 / hidden
            assert kept == pytest.approx(2048 * batch * hidden * (34 + scores) / MEBI, rel=1e-9)
        assert kept == pytest.approx(size, rel=1e-6), kind


@each_row(
    ("shape", "run", "moe", "coefficient"),
    [
        (L8, ROW5, False, 34.03),
        (L8, ROW6, False, 17.02),
        (L70, ROW7, False, 4.191),
        (MIXTRAL, ROW9, True, 63.03),
    ],
)
def test_layer_coefficients(shape, run, moe, coefficient):
    found = count_layer_coefficient(shape, run, moe=moe)
    assert found == pytest.approx(coefficient, abs=0.005)


def total(shape, run):
    return estimate_megatron(shape, run).peak.total / GIB


def test_full_recomputation_is_not_priced_as_none():
    assert total(L8, replace(ROW5, recompute=Recompute.FULL)) == pytest.approx(65.15, abs=0.02)
    assert total(L70, replace(ROW7, recompute=Recompute.FULL)) == pytest.approx(26.89, abs=0.02)


def test_selective_recomputation_does_nothing_under_flash():
    less = total(L8, ROW5) - total(L8, replace(ROW5, recompute=Recompute.SELECTIVE))
    assert 0 <= less < 0.05
    eager = replace(ROW5, attention=Attention.EAGER)
    saved = total(L8, eager) - total(L8, replace(eager, recompute=Recompute.SELECTIVE))
    assert saved > 100


def test_context_parallelism_divides_activations_and_logits():
    halved = replace(ROW5, context=2)
    assert total(L8, halved) == pytest.approx(56.09 + 34.03 / 2 + 3.0, abs=0.03)


def test_chunks_in_flight_are_capped_by_the_micro_batches():
    few = replace(ROW12, micro_batches=1)
    assert count_in_flight(few, 0) == 8
    assert count_in_flight(replace(ROW12, micro_batches=100), 0) == 35
    assert count_in_flight(replace(ROW7, micro_batches=2), 0) == 2


def test_pipeline_does_not_shrink_the_first_stage_and_interleaving_grows_it():
    def activations(run):
        return size_stage(L70, run, 0)["activations"]

    deeper = replace(ROW7, pipeline=8, micro_batches=128)
    assert activations(deeper) == activations(ROW7)
    interleaved = replace(ROW7, virtual=2)
    assert (activations(interleaved) - activations(ROW7)) / GIB == pytest.approx(7.9, abs=0.1)


def test_expert_parallelism_does_not_divide_expert_activations():
    eight, two = ROW9, replace(ROW9, expert=2)
    assert (
        size_stage(MIXTRAL, eight, 0)["activations"] == size_stage(MIXTRAL, two, 0)["activations"]
    )
    assert size_stage(MIXTRAL, eight, 0)["weights"] < size_stage(MIXTRAL, two, 0)["weights"]


def test_top_k_multiplies_expert_activations():
    one = replace(MIXTRAL, experts_per_token=1)
    first = count_layer_coefficient(one, ROW9, moe=True)
    second = count_layer_coefficient(MIXTRAL, ROW9, moe=True)
    assert second - first == pytest.approx(4 + 6 * 14336 / 4096)


def test_imbalance_scales_the_worst_expert():
    worse = replace(ROW9, imbalance=1.5)
    assert total(MIXTRAL, worse) > total(MIXTRAL, ROW9) + 8


def test_grouped_heads_shrink_keys_and_values_only():
    plain = replace(L8, kv_heads=32)
    difference = count_layer_coefficient(plain, ROW5) - count_layer_coefficient(L8, ROW5)
    assert difference == pytest.approx(4 * (1 - 0.25))


def test_gated_mlp_has_its_third_tensor():
    plain = replace(L8, gated=False)
    difference = count_layer_coefficient(L8, ROW5) - count_layer_coefficient(plain, ROW5)
    assert difference == pytest.approx(2 * 14336 / 4096)


def test_gradients_are_divided_by_tensor_and_pipeline():
    """175 billion on 64 GPUs: not 652 GiB of gradients on each."""
    large = Architecture(hidden=12288, layers=96, heads=96, ffn=49152, vocab=51200, gated=False)
    run = setup(sequence=2048, world=64, tensor=8, pipeline=8, micro_batches=64)
    assert size_stage(large, run, 0)["gradients"] / GIB < 12


def test_states_gradients_and_activations_add_up_at_the_peak():
    """Main gradients persist, so a peak is no maximum of gradients and activations."""
    terms = size_stage(L8, ROW5, 0)
    assert estimate_megatron(L8, ROW5).peak.total == sum(terms.values())
    assert terms["gradients"] == L8.parameters * 4


def test_bytes_per_parameter_of_each_precision():
    def states(**given):
        run = setup(sequence=128, world=1, distributed_optimizer=False, **given)
        terms = size_stage(L8, run, 0)
        total = sum(terms[name] for name in ("weights", "gradients", "optimizer"))
        return total / L8.parameters

    assert states() == pytest.approx(18, abs=0.01)
    assert states(precision=Precision.FP16) == pytest.approx(20, abs=0.01)
    assert states(precision=Precision.FP32) == pytest.approx(16, abs=0.01)
    assert states(gradient_bytes=2) == pytest.approx(16, abs=0.01)
    tables = (L8.embedding_parameters + L8.head_parameters) / L8.parameters
    for precision, copies in (
        (Precision.FP8, 2),
        (Precision.MXFP8, 2.0625),
        (Precision.NVFP4, 1.125),
    ):
        # Both orientations beside the bf16 weight, or alone; tables are never cast.
        beside, alone = 18 + copies * (1 - tables), 16 + copies * (1 - tables) + 2 * tables
        assert states(precision=precision) == pytest.approx(beside, abs=0.01)
        assert states(precision=precision, low_weights=True) == pytest.approx(alone, abs=0.01)
    assert states(moment_bytes=2.0, master_bytes=2.0) == pytest.approx(12, abs=0.01)


@each_row(
    ("stated", "held"),
    [
        ({}, [11, 11, 10]),
        ({"first_stage_layers": 8}, [8, 12, 12]),
        ({"first_stage_layers": 9, "last_stage_layers": 7}, [9, 16, 7]),
    ],
)
def test_stages_of_uneven_layers(stated, held):
    run = setup(sequence=4096, pipeline=3, world=24, micro_batches=24, **stated)
    assert list(run.split_layers(L8)) == held
    terms = size_stage(L8, run, 1)
    layer = size_layer(L8, run).kept
    assert terms["activations"] == held[1] * 2 * int(layer)
    everything = sum(count_stage_parameters(L8, run, stage).common for stage in range(3))
    assert everything == L8.parameters


def test_low_precision_inputs_shrink_and_what_attention_keeps_stays():
    """A layer's two norm outputs, the product and the attention's output as one more copy."""
    half = count_layer_coefficient(L8, ROW5)
    for precision, width in (
        (Precision.FP8, 1),
        (Precision.MXFP8, 33 / 32),
        (Precision.NVFP4, 0.5625),
    ):
        low = count_layer_coefficient(L8, replace(ROW5, precision=precision))
        saved = (2 - width) * (2 + 14336 / 4096) - width
        assert half - low == pytest.approx(saved)


def test_fp32_logits_are_counted_and_fusion_removes_them():
    fused = replace(ROW5, loss_fused=True)
    assert (size_loss(L8, ROW5) - size_loss(L8, fused)) / GIB == pytest.approx(3.91, abs=0.01)


@each_row(
    ("field", "shape", "change"),
    [
        ("tensor", L8, {"tensor": 3, "world": 24}),
        ("pipeline", L8, {"pipeline": 64, "world": 64}),
        ("pipeline", L70, {"pipeline": 8, "virtual": 11}),
        ("first_stage_layers", L8, {"pipeline": 4, "first_stage_layers": 30}),
        ("expert", L8, {"expert": 2}),
        ("expert", MIXTRAL, {"expert": 3}),
        ("sequence", SEVEN, {"sequence": 16384}),
    ],
)
def test_parallel_sizes_that_do_not_divide_name_field_and_rule(field, shape, change):
    with pytest.raises(InvalidParameter) as caught:
        estimate_megatron(shape, setup(**{"sequence": 4096, "world": 64, **change}))
    assert caught.value.field == field


@each_row(
    ("field", "change"),
    [
        ("world", {"world": 10, "tensor": 4}),
        ("virtual", {"virtual": 2}),
        ("micro_batch", {"micro_batch": 0}),
        ("sequence", {"sequence": -1}),
        ("context", {"sequence": 4095, "context": 2, "world": 2}),
        ("optimizer", {"optimizer": "magic"}),
        ("quantized_bits", {"quantized_bits": 3}),
        ("imbalance", {"imbalance": 0.5}),
        ("lora_rank", {"lora_rank": -1}),
    ],
)
def test_bad_setups_name_the_field(field, change):
    with pytest.raises(InvalidParameter) as caught:
        setup(**{"sequence": 4096, **change})
    assert caught.value.field == field
