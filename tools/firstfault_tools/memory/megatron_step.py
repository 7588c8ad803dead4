"""What does each pipeline stage of a Megatron-style run hold, and which one peaks?

Tensor, sequence, context, pipeline (1F1B and interleaved) and expert parallelism with fused kernels.
Closed forms in units of s x b x h bytes after Korthikanti et al. (arXiv 2205.05198, table 2),
generalised to grouped queries, gated MLPs, flash attention and experts; docs/memory.md has them all.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from firstfault_tools.dataclass import dataclass
from firstfault_tools.memory.architecture import Architecture
from firstfault_tools.memory.estimate import Moment, Phase, StepMemory
from firstfault_tools.memory.setup import (
    LOW_BYTES,
    Attention,
    Framework,
    Precision,
    Recompute,
    Sharding,
    TrainingSetup,
)
from firstfault_tools.memory.states import count_lora

UNFUSED_LOSS_BYTES = 6.0
"""Bytes per logit at the peak of Megatron's own vocabulary-parallel cross-entropy: 2 (bf16 logits) and
4 (fp32 copy, reused in place). Fits the recorded peaks of three of Megatron's own tests."""
EAGER_LOSS_BYTES = 14.0
"""bf16 logits, fp32 copy, log-softmax, its gradient: 2 + 4 + 4 + 4."""
FUSED_LOSS_BYTES = 2.0


@dataclass(frozen=True, slots=True)
class LayerBytes:
    """Bytes per layer and micro-batch: kept whole, kept under the chosen recomputation."""

    whole: float
    kept: float


def pad_vocabulary(vocab: int, tensor: int, multiple: int = 128) -> int:
    """Megatron's padding: up to a multiple of `make_vocab_size_divisible_by` x tensor."""
    step = multiple * tensor
    return -(-vocab // step) * step


def count_layer_coefficient(
    shape: Architecture, setup: TrainingSetup, *, moe: bool = False
) -> float:
    """Bytes one layer keeps, as a multiple of s x b x h (s already divided by context)."""
    return _coefficient(shape, setup, moe=moe, removed=_removed(setup))


def _removed(setup: TrainingSetup) -> frozenset[str]:
    if setup.recompute is Recompute.SELECTIVE:
        return frozenset(setup.recompute_modules)
    return frozenset()


def _coefficient(
    shape: Architecture, setup: TrainingSetup, *, moe: bool, removed: frozenset[str]
) -> float:
    h = shape.hidden
    t = setup.tensor
    spread = t if setup.sequence_parallel else 1
    dropout = 1 if setup.dropout else 0
    width = setup.compute_bytes / 2
    # What matmuls save of their inputs: in a low precision a copy of its own, where it shares none.
    saved = LOW_BYTES.get(setup.precision, 2 * width)
    low = setup.precision in LOW_BYTES
    stream = 4 * width + 2 * saved + 2 * dropout
    if "layernorm" in removed:
        stream -= 2 * saved
    query, kv = shape.query_width / h, shape.kv_width / h
    if moe:
        mlp = _moe_coefficient(shape, setup, removed) * width
    else:
        mlp = (
            _mlp_coefficient(shape, setup, shape.ffn) - (2 - saved) * low * shape.ffn / h / t
        ) * width
    if "mlp" in removed and not moe:
        mlp = 0.0
    heads = shape.heads
    sequence = setup.sequence // setup.context
    if setup.attention is Attention.EAGER:
        scores = (5 if setup.dropout else 2) * heads * sequence / h
        scores *= width
    else:
        scores = 4 * heads / h
    if "core_attn" in removed:
        scores = 0.0
    attention = (4 * query + 4 * kv) * width + saved * query * low
    return stream / spread + attention / t + mlp + scores / t


def _mlp_coefficient(shape: Architecture, setup: TrainingSetup, ffn: int) -> float:
    if not shape.gated:
        return 4 * ffn / shape.hidden / setup.tensor
    return (6 if setup.fused_activation else 8) * ffn / shape.hidden / setup.tensor


def _moe_coefficient(shape: Architecture, setup: TrainingSetup, removed: frozenset[str]) -> float:
    """Top-k rows of every token pass through experts; expert parallelism does not divide them."""
    inner = (6 if shape.gated else 4) * shape.expert_ffn / shape.hidden
    if "moe_act" in removed:
        inner -= 2 * shape.expert_ffn / shape.hidden
    if setup.precision in LOW_BYTES:
        inner -= (2 - LOW_BYTES[setup.precision]) * (1 + shape.expert_ffn / shape.hidden)
    routed = setup.imbalance * shape.experts_per_token * (4 + inner) / setup.expert_tensor
    # With experts not split by tensor parallelism, sequence parallelism has already split the tokens.
    if setup.expert_tensor < setup.tensor and setup.sequence_parallel:
        routed *= setup.expert_tensor / setup.tensor
    if "moe" in removed:
        routed = 0.0
    shared = 0.0
    if shape.shared_expert_ffn:
        shared = _mlp_coefficient(shape, setup, shape.shared_expert_ffn)
    return routed + shared


def size_layer(shape: Architecture, setup: TrainingSetup, *, moe: bool = False) -> LayerBytes:
    """One layer's kept bytes for one micro-batch."""
    unit = setup.micro_batch * (setup.sequence // setup.context) * shape.hidden
    removed = _removed(setup)
    whole = unit * _coefficient(shape, setup, moe=moe, removed=frozenset())
    if setup.recompute is Recompute.FULL:
        spread = setup.tensor if setup.sequence_parallel else 1
        return LayerBytes(whole, unit * setup.compute_bytes / spread)
    if not removed:
        return LayerBytes(whole, whole)
    return LayerBytes(whole, unit * _coefficient(shape, setup, moe=moe, removed=removed))


def size_layers(shape: Architecture, setup: TrainingSetup) -> tuple[LayerBytes, LayerBytes]:
    """A layer with a plain MLP and one with experts."""
    dense = size_layer(shape, setup) if shape.ffn else LayerBytes(0, 0)
    return dense, size_layer(shape, setup, moe=True) if shape.experts else dense


def count_in_flight(setup: TrainingSetup, stage: int) -> int:
    """Chunks of layers whose activations stage `stage` holds at once (1F1B or interleaved)."""
    p, v, m = setup.pipeline, setup.virtual, setup.micro_batches
    if p == 1:
        return 1
    if v == 1:
        return min(m, p - stage)
    return min(m * v, 2 * (p - stage - 1) + (v - 1) * p + 1)


@dataclass(frozen=True, slots=True)
class StageParameters:
    """Elements one rank of a stage holds: ordinary ones and routed experts apart."""

    common: int
    experts: int
    tables: int = 0
    """Of the ordinary ones those of the token table and the output matrix."""


class Split(NamedTuple):
    """How weights are split, all else of a setup left out: two setups that agree here hold the same."""

    tensor: int
    expert: int
    expert_tensor: int
    table: int
    """Rows of the token table with its padding."""
    stages: tuple[int, ...]
    """Layers of each."""


def count_stage_parameters(
    shape: Architecture, setup: TrainingSetup, stage: int
) -> StageParameters:
    """Parameters on one rank of a stage; norms, router and row-parallel biases are not split."""
    split = Split(
        setup.tensor,
        setup.expert,
        setup.expert_tensor,
        _padded(shape, setup),
        setup.split_layers(shape),
    )
    return _count_parameters(shape, split, stage)


@lru_cache(maxsize=256)
def _count_parameters(shape: Architecture, split: Split, stage: int) -> StageParameters:
    t = split.tensor
    per_stage = split.stages[stage]
    dense_here = _dense_layers_on(shape, split.stages, stage)
    moe_here = per_stage - dense_here
    row_bias = shape.hidden * shape.attention_out_bias
    column_bias = (shape.query_width + 2 * shape.kv_width) * shape.qkv_bias
    attention = sum(shape.attention_weights) // t + column_bias // t + row_bias
    attention += 2 * shape.head_dim * shape.qk_norm
    norms = shape.norms_per_layer * shape.norm_parameters
    common = per_stage * (attention + norms)
    mlp_bias = (shape.ffn * (shape.mlp_matrices - 1) // t + shape.hidden) * shape.mlp_bias
    common += dense_here * (sum(shape.dense_mlp_weights) // t + mlp_bias)
    experts = 0
    if moe_here:
        common += moe_here * (shape.experts * shape.hidden + shape.shared_expert_parameters // t)
        held = shape.experts // split.expert
        experts = moe_here * held * shape.expert_parameters // split.expert_tensor
    # What a layer does not spell out (state-space mixers, towers) is taken to lie evenly.
    common += shape.extra_parameters * per_stage // shape.layers // t
    table = split.table * shape.hidden // t
    first, last = stage == 0, stage == len(split.stages) - 1
    tables = table * (first + (last and not (shape.tied and first)))
    common += tables + shape.position_parameters * first + shape.norm_parameters * last
    return StageParameters(common, experts, tables)


def _dense_layers_on(shape: Architecture, held: tuple[int, ...], stage: int) -> int:
    if not shape.experts:
        return held[stage]
    return max(0, min(held[stage], shape.dense_layers - sum(held[:stage])))


def _padded(shape: Architecture, setup: TrainingSetup) -> int:
    if setup.pad_vocab:
        return setup.pad_vocab
    if setup.framework is Framework.MEGATRON:
        return pad_vocabulary(shape.vocab, setup.tensor)
    return -(-shape.vocab // setup.tensor) * setup.tensor


def _size_states(elements: int, ranks: int, setup: TrainingSetup) -> dict[str, float]:
    """Weights, gradients and optimizer of `elements` parameters shared by `ranks` replicas."""
    width = setup.weight_bytes
    moments = setup.states.moments * setup.moment_bytes + setup.states.state_bytes
    if setup.precision in (Precision.FP32, Precision.AMP, Precision.FP16_AMP):
        gradient: float = setup.gradient_bytes or 4
        master = 0.0
    else:
        default = 2 if setup.precision is Precision.FP16 else 4
        gradient = setup.gradient_bytes or (default if setup.framework is Framework.MEGATRON else 2)
        master = setup.master_bytes
        if setup.precision is Precision.FP16:
            # Non-distributed fp16 keeps an fp32 gradient beside the fp16 one for unscaling.
            master += 4
    weights: float = width
    if setup.precision in LOW_BYTES:
        # Both orientations of a matrix, beside the bf16 weight unless it is stored in them.
        weights = 2 * LOW_BYTES[setup.precision] + (0 if setup.low_weights else width)
    optimizer = master + moments
    whole = setup.sharding in (Sharding.FSDP, Sharding.ZERO3)
    if whole:
        # Shards are in the type of the stored weight: fp32 in mixed precision, half in pure bf16, where
        # the moments follow.
        if setup.weight_bytes == 2 and setup.framework is not Framework.MEGATRON:
            moments = setup.states.moments * width + setup.states.state_bytes
            weights, gradient, optimizer = width / ranks, width / ranks, moments / ranks
        else:
            weights, gradient, optimizer = 4 / ranks, 4 / ranks, moments / ranks
    elif setup.distributed_optimizer or setup.sharding in (Sharding.ZERO1, Sharding.ZERO2):
        optimizer /= ranks
        if setup.sharding is Sharding.ZERO2:
            gradient /= ranks
    if setup.offload_optimizer:
        optimizer = 0.0
    return {
        "weights": elements * weights,
        "gradients": elements * gradient,
        "optimizer": elements * optimizer,
    }


def size_stage(
    shape: Architecture,
    setup: TrainingSetup,
    stage: int,
    layers: tuple[LayerBytes, LayerBytes] | None = None,
) -> dict[str, int]:
    """Bytes by term at the peak of one stage. layers: as `size_layers` says, the same for every stage."""
    layers = layers or size_layers(shape, setup)
    held = count_stage_parameters(shape, setup, stage)
    replicas = setup.data * setup.context
    if setup.lora_rank:
        return _add_activations(shape, setup, stage, layers, _size_adapted(shape, setup, held))
    terms = _size_states(held.common, replicas, setup)
    if setup.precision in LOW_BYTES:
        # Tables stay in bf16.
        wide = setup.weight_bytes - 2 * LOW_BYTES[setup.precision]
        terms["weights"] += held.tables * (wide if setup.low_weights else wide - setup.weight_bytes)
    if held.experts:
        expert = _size_states(held.experts, setup.expert_data, setup)
        terms = {name: size + expert[name] for name, size in terms.items()}
    return _add_activations(shape, setup, stage, layers, terms)


def _size_adapted(
    shape: Architecture, setup: TrainingSetup, held: StageParameters
) -> dict[str, float]:
    """A frozen base and adapters split like the matrices they sit on; their states are the trained ones."""
    adapters = count_lora(shape, setup) // (setup.tensor * setup.pipeline)
    terms = _size_states(adapters, setup.data * setup.context, setup)
    terms["weights"] += setup.weight_bytes * (held.common + held.experts)
    return terms


def _add_activations(
    shape: Architecture, setup: TrainingSetup, stage: int,
    layers: tuple[LayerBytes, LayerBytes], terms: dict[str, float],
) -> dict[str, int]:  # fmt: skip
    """The states of a stage with what its layers, its table and its loss hold."""
    terms["activations"] = _size_activations(shape, setup, stage, layers)
    unit = setup.micro_batch * (setup.sequence // setup.context)
    spread = setup.tensor if setup.sequence_parallel else 1
    if stage == 0:
        flying = -(-count_in_flight(setup, 0) // setup.virtual)
        ids = 8 * unit * (setup.pipeline > 1)
        terms["embedding"] = flying * (unit * shape.hidden * setup.dropout / spread + ids)
    if stage == setup.pipeline - 1:
        terms["logits and loss"] = size_loss(shape, setup)
    if setup.sharding in (Sharding.FSDP, Sharding.ZERO3):
        held = count_stage_parameters(shape, setup, stage)
        largest = held.common // max(1, setup.split_layers(shape)[stage])
        terms["unsharded weights"] = 2 * largest * 2 + largest * 2
    return {name: int(size) for name, size in terms.items() if size >= 1}


def size_loss(shape: Architecture, setup: TrainingSetup) -> float:
    """Final norm, logits and cross-entropy of one micro-batch on the last stage."""
    unit = setup.micro_batch * (setup.sequence // setup.context)
    spread = setup.tensor if setup.sequence_parallel else 1
    if setup.loss_bytes:
        per_logit = setup.loss_bytes
    elif setup.loss_fused:
        per_logit = FUSED_LOSS_BYTES
    elif setup.framework is Framework.MEGATRON:
        per_logit = UNFUSED_LOSS_BYTES
    else:
        per_logit = EAGER_LOSS_BYTES
    norm = 4 * unit * shape.hidden / spread
    return norm + unit * _padded(shape, setup) / setup.tensor * per_logit


def _size_activations(
    shape: Architecture, setup: TrainingSetup, stage: int, layers: tuple[LayerBytes, LayerBytes]
) -> float:
    held = setup.split_layers(shape)
    per_stage = held[stage]
    per_chunk = per_stage / setup.virtual
    dense, moe = layers
    dense_share = _dense_layers_on(shape, held, stage) / per_stage
    whole = dense.whole * dense_share + moe.whole * (1 - dense_share)
    kept = dense.kept * dense_share + moe.kept * (1 - dense_share)
    flying = count_in_flight(setup, stage)
    passes = per_chunk * flying
    full = setup.recompute is Recompute.FULL
    if full and setup.recompute_layers and setup.recompute_layers < per_stage:
        share = setup.recompute_layers / per_stage
        return passes * (share * kept + (1 - share) * whole) + whole
    return passes * kept + (whole if full else 0.0)


def estimate_megatron(
    shape: Architecture, setup: TrainingSetup, *, peak_only: bool = False
) -> StepMemory:
    """Every stage's peak, in the backward of its last layer (gradients and optimizer resident)."""
    setup.check(shape)
    moments: list[Moment] = []
    last = setup.pipeline - 1
    layers = size_layers(shape, setup)
    for stage in sorted({0, *((1,) if setup.pipeline > 2 else ()), last}):
        terms = size_stage(shape, setup, stage, layers)
        phase = Phase.LOSS_BACKWARD if stage == last else Phase.BACKWARD_START
        moments.append(Moment(phase, terms, stage))
    peak = max(moments, key=lambda moment: moment.total)
    static = sum(peak.terms.get(name, 0) for name in ("weights", "gradients", "optimizer"))
    return StepMemory(
        moments=(peak,) if peak_only else tuple(moments),
        weights=peak.terms["weights"],
        after_forward=peak.total,
        after_backward=static,
        after_step=static,
        staged=True,
        relative_error=0.1 if setup.precision in LOW_BYTES else 0.06,
        largest_tensor=(
            "fp32 logits",
            int(
                4
                * setup.micro_batch
                * (setup.sequence // setup.context)
                * _padded(shape, setup)
                / setup.tensor
            ),
        ),
    )
