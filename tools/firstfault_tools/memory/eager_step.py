"""How does memory move through one eager training step, and where is its peak?

Forward, loss, backward and optimizer step of a Hugging Face style model on one rank, plain, under DDP,
ZeRO-1 or FSDP2. Layers are replayed once and multiplied: they are all alike.
"""

from __future__ import annotations

from functools import lru_cache

from firstfault_tools.memory.architecture import Architecture
from firstfault_tools.memory.eager_diffusion import count_text, size_inputs
from firstfault_tools.memory.eager_layers import Keeping, walk_layers
from firstfault_tools.memory.eager_types import EagerTypes
from firstfault_tools.memory.estimate import Moment, Phase, StepMemory
from firstfault_tools.memory.setup import (
    FULL_WEIGHTS,
    Attention,
    Framework,
    Precision,
    Recompute,
    Sharding,
    TrainingSetup,
)
from firstfault_tools.memory.states import MIB, REDUCE_BUCKET, size_states, splits_weights

WORKSPACE = 2 * 32 * MIB
"""cuBLAS workspace of Hopper (32 MiB, getChosenWorkspaceSize in aten/src/ATen/cuda/CublasHandlePool.cpp),
once for the thread that runs forward and once for the autograd thread."""

LIVE_PARAMETERS = 1_000_000_000
"""DeepSpeed stage 3 lets this many gathered elements stay (stage3_max_live_parameters, the default of
deepspeed/runtime/zero/config.py); below it nothing is released between forward and backward."""


def estimate_eager(
    shape: Architecture, setup: TrainingSetup, *, peak_only: bool = False
) -> StepMemory:
    """Bytes over one step. Raises InvalidParameter where shape and setup do not fit each other."""
    setup.check(shape)
    return _Step(shape, setup).walk(peak_only=peak_only)


def choose_types(setup: TrainingSetup) -> EagerTypes:
    """Element widths inside the layers."""
    return _choose_types(
        setup.precision,
        splits_weights(setup) or setup.framework is Framework.DEEPSPEED,
        setup.micro_batches == 1 and setup.sharding not in (Sharding.DDP, Sharding.ZERO1),
        setup.lora_rank,
        setup.quantized_bits,
    )


@lru_cache(maxsize=128)
def _choose_types(
    precision: Precision, wrapped: bool, keeps_gradients: bool, lora_rank: int, quantized_bits: int
) -> EagerTypes:
    wide = 4 if precision in FULL_WEIGHTS else 2
    if wrapped and precision is not Precision.FP32:
        # Mixed precision by the wrapper: layers see half-precision weights and hidden states.
        return EagerTypes(
            weight=2,
            compute=2,
            residual=2,
            gradient=2,
            cast=False,
            frozen=bool(lora_rank),
            lora_rank=lora_rank,
            quantized=bool(quantized_bits),
        )
    return EagerTypes(
        weight=wide,
        compute=4 if precision is Precision.FP32 else 2,
        residual=2 if quantized_bits else wide,
        gradient=wide,
        cast=precision in (Precision.AMP, Precision.FP16_AMP),
        keeps_gradients=keeps_gradients,
        frozen=bool(lora_rank),
        lora_rank=lora_rank,
        quantized=bool(quantized_bits),
    )


class _Step:
    __slots__ = (
        "head",
        "highest",
        "layers",
        "mask",
        "prefetch",
        "root",
        "setup",
        "shape",
        "spare",
        "states",
        "stream",
        "types",
        "unit",
        "wrapped",
    )

    def __init__(self, shape: Architecture, setup: TrainingSetup) -> None:
        self.shape, self.setup = shape, setup
        self.types = choose_types(setup)
        self.states = size_states(shape, setup)
        tokens = setup.micro_batch * setup.sequence // setup.context
        self.mask = 0
        if setup.attention is Attention.EAGER:
            length = setup.sequence // setup.context
            self.mask = setup.micro_batch * length * length * self.types.residual
        self.stream = tokens * shape.hidden * self.types.residual
        if shape.diffusion is not None:
            tokens += setup.micro_batch * count_text(shape.diffusion, setup.text_tokens)
            self.stream = tokens * shape.hidden * self.types.compute
        attention_kept = every_other = 0
        if setup.recompute is Recompute.SELECTIVE and setup.attention is Attention.EAGER:
            scores = tokens * (setup.sequence // setup.context) * shape.heads
            wide = 4 if shape.softmax_upcast or self.types.residual == 4 else self.types.compute
            attention_kept = scores * (wide + self.types.compute * (wide != 2))
        titan = setup.framework is Framework.TORCHTITAN and not shape.experts
        if titan and setup.recompute is Recompute.SELECTIVE:
            # Selective checkpointing by operation: the layer's input, every other matmul's result
            # (query, value, gate, down) and attention's are kept, all else is computed again. That was
            # torchtitan's rule in 2024 and 2025; a later one takes a list of names.
            attention_kept = 0
            width = 2 * shape.hidden + 2 * shape.query_width + shape.kv_width + shape.ffn
            every_other = tokens * width * self.types.compute
        keeping = Keeping(
            self.stream,
            setup.recompute is Recompute.FULL,
            setup.activation_offload,
            attention_kept,
            every_other,
            tower=bool(setup.image_patches) and not setup.tower_frozen,
        )
        self.layers = walk_layers(shape, setup.layer, self.types, keeping)
        self.head = self.layers.head
        self.wrapped = splits_weights(setup)
        largest = max(
            (shape.moe_layer_parameters if shape.moe_layers else 0), shape.dense_layer_parameters
        )
        outside = shape.parameters - shape.layer_parameters
        self.unit = largest * self.types.weight if self.wrapped else 0
        self.root = outside * self.types.weight if self.wrapped else 0
        # SHARD_GRAD_OP keeps every layer unsharded from forward to backward: nothing to prefetch.
        keeps = setup.sharding is Sharding.ZERO2 and self.wrapped
        self.spare = self.unit * shape.layers if keeps else 0
        self.prefetch = 0 if keeps else self.unit
        if self.wrapped and setup.framework is Framework.DEEPSPEED:
            live = min(shape.parameters, LIVE_PARAMETERS) * self.types.weight
            self.unit = self.root = self.prefetch = 0
            self.spare = live
        self.highest: dict[Phase, tuple[int, dict[str, int]]] = {}

    def base(self) -> dict[str, int]:
        """Terms alive through the whole step."""
        states = self.states
        terms = {
            "weights": states.weights + states.rounding,
            "master weights": states.master,
            "optimizer": states.moments,
            "gradient buckets": states.buckets,
            "workspace": WORKSPACE,
            "inputs": size_inputs(self.shape, self.setup),
        }
        return {name: size for name, size in terms.items() if size}

    def add(self, phase: Phase, terms: dict[str, int]) -> None:
        """Note a moment beside what is alive through the whole step; of a phase's moments the highest stays."""
        total = sum(terms.values())
        if phase not in self.highest or total > self.highest[phase][0]:
            self.highest[phase] = total, terms

    def list_moments(self, base: dict[str, int], peak_only: bool) -> tuple[Moment, ...]:
        """One moment a phase with its terms, or the highest alone."""
        found = self.highest
        if peak_only:
            top = max(found, key=lambda phase: found[phase][0])
            found = {top: found[top]}
        return tuple(
            Moment(phase, base | {name: size for name, size in terms.items() if size})
            for phase, (_, terms) in found.items()
        )

    def walk(self, *, peak_only: bool = False) -> StepMemory:
        """All phases in order."""
        setup, states, head, layers = self.setup, self.states, self.head, self.layers
        base = self.base()
        resident = sum(base.values())
        full = setup.recompute is Recompute.FULL
        held = states.gradients if setup.micro_batches > 1 else 0
        activations = layers.activations
        # Autocast's cache holds every cast weight until the context ends; without recomputation the
        # same copies are kept by autograd anyway.
        cache = layers.cast if full and not self.types.frozen else 0
        spare = self.spare
        self.add(
            Phase.FORWARD,
            {
                "gradients": held,
                "unsharded weights": self.root + self.unit + self.prefetch + spare,
                "cast weights": cache,
                "activations": layers.forward_peak + self.stream,
                "attention mask": self.mask,
            },
        )
        # Checkpointing keeps the mask with its arguments; otherwise it dies with the decoder.
        mask = self.mask if full else 0
        self.add(
            Phase.LOSS,
            {
                "gradients": held,
                "unsharded weights": self.root + self.unit + spare,
                "cast weights": cache,
                "activations": activations,
                "logits and loss": head.forward_peak,
                "attention mask": mask,
            },
        )
        kept = 0 if setup.activation_offload else head.kept
        after_forward = resident + held + self.root + spare + activations + kept + mask
        self.add(
            Phase.LOSS_BACKWARD,
            {
                "gradients": held,
                "unsharded weights": self.root + self.prefetch + spare,
                "activations": activations,
                "logits and loss": head.backward_peak,
                "attention mask": mask,
            },
        )
        self.walk_backward(held)
        after_backward = resident + states.gradients
        self.step()
        if setup.resume:
            # torch.load with map_location on the device: the read states stand beside their copies.
            self.add(Phase.LOAD, {"loaded states": states.moments + states.master})
        return StepMemory(
            moments=self.list_moments(base, peak_only),
            weights=states.weights + states.rounding + states.buckets + states.master,
            after_forward=after_forward,
            after_backward=after_backward,
            after_step=resident,
            largest_tensor=layers.largest,
        )

    def walk_backward(self, held: int) -> None:
        """Backward through the layers."""
        states, layers, shape = self.states, self.layers, self.shape
        part, whole = (0 if held else 1), 1
        if self.wrapped or self.setup.sharding is Sharding.ZERO2:
            part, whole = states.gradients, max(1, shape.parameters * self.types.gradient)
        # One layer's packed gradients, in fp32, wait for their reduce-scatter.
        reduce = 4 * self.unit // self.types.weight
        self._walk_layers(held, part, whole, reduce)
        table = 0 if self.types.frozen else shape.embedding_parameters * self.types.gradient
        total = held or states.gradients
        if self.wrapped:
            sharded = layers.weight_gradients * part // whole
            self._reduce_root(sharded, total, table if shape.tied else 0, reduce)
            return
        # Gradients of a shared table come from both ends: two and their sum stand side by side.
        copies = 1 if held or states.buckets else 2 if shape.tied else 0
        self.add(
            Phase.EMBEDDING_BACKWARD,
            {"gradients": total + copies * table, "activations": self.stream},
        )

    def _walk_layers(self, held: int, part: int, whole: int, reduce: int) -> None:
        """part / whole: the share of the gradients behind a layer that stays. reduce: what waits for its reduce-scatter."""
        setup, layers = self.setup, self.layers
        # Under FSDP the root keeps its unsharded gradient to the end, layers keep their shards.
        produced = held or self.head.weight_gradients
        unsharded = self.root + self.prefetch + (self.spare or self.unit)
        release = self.unit if self.spare else 0
        bucket = 0
        if setup.framework is Framework.DEEPSPEED:
            bucket = min(REDUCE_BUCKET, self.shape.parameters) * self.types.gradient
        mask = self.mask if setup.recompute is Recompute.FULL else 0
        for phase, points in (
            (Phase.BACKWARD_START, layers.first and (layers.first,)),
            (Phase.BACKWARD_END, layers.later),
        ):
            for behind, done, activations in points or ():
                self.add(
                    phase,
                    {
                        "gradients": produced + behind * part // whole,
                        "unsharded weights": unsharded - done * release,
                        "reduce scatter": (reduce if done else 0) + bucket,
                        "activations": activations,
                        "attention mask": mask,
                    },
                )

    def _reduce_root(self, sharded: int, total: int, table: int, reduce: int) -> None:
        """The gradients of embedding and head, unsharded and then packed. table: of a table that both share."""
        setup, shape = self.setup, self.shape
        root_gradient = self.root * self.types.gradient // self.types.weight
        self.add(
            Phase.EMBEDDING_BACKWARD,
            {
                "gradients": sharded,
                "unsharded weights": self.root,
                "unsharded gradients": root_gradient + table,
                "reduce scatter": reduce,
                "activations": self.stream,
            },
        )
        # Its gradients are packed, freed and reduced in fp32. A loop variable in FSDP2's
        # foreach_reduce still holds the last one, which is the output matrix unless it is tied.
        outside = self.root // self.types.weight
        ranks = setup.data * setup.context
        narrow = 4 * outside // ranks if setup.weight_bytes < 4 else 0
        self.add(
            Phase.EMBEDDING_BACKWARD,
            {
                "gradients": total,
                "unsharded gradients": shape.head_parameters * self.types.gradient,
                "reduce scatter": 4 * outside + narrow,
            },
        )

    def step(self) -> None:
        """Optimizer step: fp32 gradients for a master copy, square roots of all moments at once."""
        setup, states = self.setup, self.states
        ranks = setup.data if setup.sharding is Sharding.ZERO1 else 1
        master = states.master
        width = 4 if master else self.setup.weight_bytes
        lists = setup.states.step_lists * width * states.trained // ranks
        largest = min(self.shape.vocab * self.shape.hidden, states.trained) // ranks
        lists += setup.states.step_tensors * width * largest
        lists += 4 * self.shape.hidden**2 if setup.states.gram else 0
        if setup.offload_optimizer:
            lists = 0
        # A master copy steps on fp32 gradients: copies of the half-precision ones (DeepSpeed's
        # single_partition_of_fp32_groups[i].grad, or the usual hand-written loop).
        self.add(
            Phase.STEP,
            {
                "gradients": states.gradients,
                "fp32 gradients": master,
                "step temporaries": lists,
            },
        )
