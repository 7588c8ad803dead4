"""What do weights, gradients and optimizer states take on one rank, before any activation?"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from firstfault_tools.dataclass import dataclass
from firstfault_tools.memory.architecture import Architecture
from firstfault_tools.memory.eager_diffusion import is_adapted, list_matrices
from firstfault_tools.memory.setup import Framework, Precision, Sharding, TrainingSetup

MIB = 1024**2

SEGMENT_ROUNDING = 2 * MIB
SMALL_SPLIT = MIB
LARGE_BUFFER = 20 * MIB
"""c10/core/AllocatorConfig.h: segments of 10 MiB and more are rounded up to 2 MiB, smaller ones come
out of 20 MiB segments, and a rest of at most 1 MiB stays with its block, so it counts as allocated."""


@dataclass(frozen=True, slots=True)
class States:
    """Bytes per rank. weights, master and moments live always; gradients from backward to step."""

    weights: int
    master: int
    moments: int
    gradients: int
    buckets: int
    rounding: int
    trained: int

    @property
    def resident(self) -> int:
        """What is alive between steps."""
        return self.weights + self.master + self.moments + self.buckets + self.rounding


REDUCE_BUCKET = 500_000_000
"""DeepSpeed's default reduce_bucket_size, in elements."""


def offloads_whole_step(setup: TrainingSetup) -> bool:
    """FSDP's CPU offload keeps shards of weights, gradients and moments on the host; the step runs there
    (CPUOffloadPolicy in torch/distributed/fsdp/_fully_shard/_fsdp_api.py)."""
    return (
        setup.offload_parameters
        and setup.framework is not Framework.DEEPSPEED
        and setup.sharding in (Sharding.FSDP, Sharding.ZERO3, Sharding.ZERO2)
    )


def count_lora(shape: Architecture, setup: TrainingSetup) -> int:
    """Adapter parameters: r (d_in + d_out) for every targeted matrix."""
    rank = setup.lora_rank
    if not rank:
        return 0
    if shape.diffusion is not None:
        return rank * sum(
            count * (matrix.inside + matrix.outside)
            for matrix, count in list_matrices(shape)
            if is_adapted(setup.lora_targets, matrix.name)
        )
    wanted = setup.lora_targets
    names = {_short(name.strip()) for name in wanted.split(",")}
    total = 0
    for name, inside, outside, count in _list_linears(shape, setup):
        if wanted == "all-linear" or name in names:
            # DoRA has one magnitude for every output channel.
            total += count * (rank * (inside + outside) + outside * setup.dora)
    return total


def _list_linears(shape: Architecture, setup: TrainingSetup) -> Iterator[tuple[str, int, int, int]]:
    """Short name, widths and number of the linear layers that take an adapter; experts that are one tensor
    (transformers 5) take none."""
    h, q, k, n = shape.hidden, shape.query_width, shape.kv_width, shape.layers
    latent = shape.latent
    if latent is not None:
        width = shape.heads * latent.key
        if latent.q_rank:
            yield "q_a", h, latent.q_rank, n
        yield ("q_b", latent.q_rank, width, n) if latent.q_rank else ("q", h, width, n)
        yield "kv_a_proj_with_mqa", h, latent.kv_rank + latent.rope, n
        yield "kv_b", latent.kv_rank, shape.heads * (latent.nope + latent.value), n
        yield "o", shape.heads * latent.value, h, n
    elif shape.fused_qkv:
        yield "qkv", h, q + 2 * k, n
        yield "o", q, h, n
    else:
        yield from (("q", h, q, n), ("k", h, k, n), ("v", h, k, n), ("o", q, h, n))
    inward = ("gate", "up") if shape.gated else ("up",)
    mlps = [(shape.ffn, n - shape.moe_layers), (shape.shared_expert_ffn, shape.moe_layers)]
    if setup.experts_loop:
        mlps.append((shape.expert_ffn, shape.moe_layers * shape.experts))
    for width, count in mlps:
        if width and count:
            if shape.fused_gate_up:
                yield "gate_up", h, 2 * width, count
            else:
                yield from ((name, h, width, count) for name in inward)
            yield "down", width, h, count


def _short(name: str) -> str:
    return name.removesuffix("_proj")


def count_quantized(shape: Architecture, setup: TrainingSetup) -> int:
    """Bytes of a frozen, quantised base: linears in 4 or 8 bits, the rest in two bytes.

    NF4 keeps one fp32 scale per block of 64 (0.5625 B); double quantisation makes it 8-bit with an
    fp32 scale per 256 blocks (0.5159 B). int8 keeps one fp16 scale a row.
    """
    linears = shape.layers * sum(shape.attention_weights)
    linears += (shape.layers - shape.moe_layers) * sum(shape.dense_mlp_weights)
    if setup.experts_loop and shape.experts:
        # One module a matrix; where experts are one tensor (transformers 5) bitsandbytes leaves them alone.
        linears += (
            shape.moe_layers
            * shape.experts
            * sum((shape.hidden * shape.expert_ffn,) * shape.mlp_matrices)
        )
    rest = shape.parameters - linears
    if setup.quantized_bits == 8:
        return linears + 2 * rest
    width = 0.5 + (1 / 64 + 4 / (64 * 256) if setup.double_quant else 4 / 64)
    return int(linears * width) + 2 * rest


@lru_cache(maxsize=64)
def round_weights(shape: Architecture, width: int) -> int:
    """Allocator rounding of freshly placed weights that counts as allocated."""
    if shape.diffusion is not None:
        # None was lost in any measured one: their modules are cast in place of larger ones.
        return 0
    matrices = list(shape.attention_weights)
    if shape.experts:
        inner = shape.mlp_matrices - 1
        per = shape.experts * shape.hidden * shape.expert_ffn
        matrices += [per * inner, per]
        matrices += [shape.hidden * shape.shared_expert_ffn] * shape.mlp_matrices
    else:
        matrices += shape.dense_mlp_weights
    waste = 0.0
    for elements in matrices:
        waste += shape.layers * _waste(elements * width)
    waste += _waste(shape.embedding_parameters * width) * (1 if shape.tied else 2)
    return int(waste)


def _waste(size: int) -> float:
    """Bytes lost per tensor of this size; small tensors share 512-byte bins and lose next to none."""
    if size <= MIB:
        return 0.0
    if size < LARGE_BUFFER // 2:
        per_segment = LARGE_BUFFER // size
        rest = LARGE_BUFFER - per_segment * size
        return rest / per_segment if rest <= SMALL_SPLIT else 0.0
    rest = -size % SEGMENT_ROUNDING
    return float(rest) if rest <= SMALL_SPLIT else 0.0


def size_states(shape: Architecture, setup: TrainingSetup) -> States:
    """States of an eager run (Hugging Face, torchtitan, DeepSpeed) on one data-parallel rank."""
    split = splits_weights(setup)
    shard = setup.data * setup.context if split else 1
    if setup.lora_rank:
        return _size_adapter_states(shape, setup, shard)
    width = setup.weight_bytes
    learned = shape.parameters - (shape.extra_parameters if setup.tower_frozen else 0)
    master, moments = _size_optimizer(setup, learned)
    gradients, buckets = _size_gradients(shape, setup, learned)
    weights = 0
    if not _keeps_weights_on_host(setup):
        weights = width * shape.parameters // shard
        weights += width * shape.diffusion.buffer if shape.diffusion is not None else 0
    rounded = (width, 4) if master else (width,)
    return States(
        weights=weights,
        master=master,
        moments=moments,
        gradients=gradients,
        buckets=buckets,
        rounding=0 if split else sum(round_weights(shape, size) for size in rounded),
        trained=learned // shard,
    )


def splits_weights(setup: TrainingSetup) -> bool:
    """Whether weights are shards that a wrapper gathers for use (FSDP, and ZeRO-3)."""
    if setup.sharding is Sharding.ZERO2:
        return setup.framework is not Framework.DEEPSPEED
    return setup.sharding in (Sharding.FSDP, Sharding.ZERO3)


def _is_deepspeed(setup: TrainingSetup) -> bool:
    """Whether DeepSpeed's own optimizer holds the states."""
    return setup.framework is Framework.DEEPSPEED and setup.sharding is not Sharding.NONE


def _keeps_weights_on_host(setup: TrainingSetup) -> bool:
    by_deepspeed = _is_deepspeed(setup) and splits_weights(setup) and setup.offload_parameters
    return by_deepspeed or offloads_whole_step(setup)


def _size_optimizer(setup: TrainingSetup, learned: int) -> tuple[int, int]:
    """(fp32 copy of the weights, moments) on the card."""
    if offloads_whole_step(setup) or setup.offload_optimizer:
        return 0, 0
    states, width = setup.states, setup.weight_bytes
    by_stages = setup.sharding in (Sharding.ZERO1, Sharding.ZERO2, Sharding.ZERO3)
    ranks = setup.data * setup.context if by_stages or splits_weights(setup) else 1
    has_copy = setup.precision is Precision.BF16_MASTER or _is_deepspeed(setup)
    moment_width = 4 if has_copy else width
    moments = int((states.moments * moment_width + states.state_bytes) * learned / ranks)
    return (4 * learned // ranks if has_copy else 0), (0 if states.paged else moments)


def _size_gradients(shape: Architecture, setup: TrainingSetup, learned: int) -> tuple[int, int]:
    """(gradients that the step frees, buckets that stay)."""
    if offloads_whole_step(setup):
        return 0, 0
    split, deepspeed = splits_weights(setup), _is_deepspeed(setup)
    ranks = setup.data * setup.context if split or setup.sharding is Sharding.ZERO2 else 1
    gradients = (setup.gradient_bytes or setup.weight_bytes) * learned // ranks
    if split and deepspeed:
        # Stage 3 keeps a rank's gradient partition and the reduce buffer from step to step
        # (grad_partitions_flat_buffer and the IPG buffer in deepspeed/runtime/zero/stage3.py).
        return 0, (0 if setup.offload_optimizer else gradients) + REDUCE_BUCKET * 2
    buckets = 0
    if setup.sharding is Sharding.DDP or (setup.sharding is Sharding.ZERO1 and not deepspeed):
        gradients, buckets = 0, gradients
    if deepspeed and setup.offload_optimizer:
        # temp_grad_buffer_for_gpu_offload in deepspeed/runtime/zero/stage_1_and_2.py.
        buckets += 2 * shape.vocab * shape.hidden
    return gradients, buckets


def _size_adapter_states(shape: Architecture, setup: TrainingSetup, shard: int) -> States:
    adapter = count_lora(shape, setup)
    if setup.quantized_bits:
        base = count_quantized(shape, setup)
    else:
        base = setup.weight_bytes * shape.parameters
    states, width = setup.states, 4
    if shape.diffusion is not None:
        # diffusers puts adapters in the base's type, and its position table is no weight.
        width = setup.weight_bytes
        base += width * shape.diffusion.buffer
    return States(
        weights=base // shard + width * adapter,
        master=0,
        moments=0 if states.paged else int((states.moments * width + states.state_bytes) * adapter),
        gradients=width * adapter,
        buckets=0,
        rounding=0,
        trained=adapter,
    )
