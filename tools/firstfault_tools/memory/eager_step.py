"""How does memory move through one eager training step, and where is its peak?

Forward, loss, backward and optimizer step of a Hugging Face style model on one rank, plain, under DDP,
ZeRO-1 or FSDP2. Layers are replayed once and multiplied: they are all alike.
"""

from __future__ import annotations

from functools import lru_cache

from firstfault_tools.memory.architecture import Architecture
from firstfault_tools.memory.eager_block import EagerBlock
from firstfault_tools.memory.eager_diffusion import (
    count_text,
    replay_diffusion,
    replay_diffusion_head,
    size_inputs,
)
from firstfault_tools.memory.eager_hybrid import replay_hybrid_layers
from firstfault_tools.memory.eager_special import (
    encoder_block,
    replay_pair_layer,
    replay_state_space_layer,
)
from firstfault_tools.memory.eager_tower import replay_tower_layer
from firstfault_tools.memory.eager_types import EagerTypes
from firstfault_tools.memory.estimate import Moment, Phase, StepMemory
from firstfault_tools.memory.scaling import Groups, SpanLaw, find_laws
from firstfault_tools.memory.setup import (
    Attention,
    Framework,
    LayerSetup,
    Precision,
    Recompute,
    Sharding,
    TrainingSetup,
)
from firstfault_tools.memory.states import MIB, REDUCE_BUCKET, size_states
from firstfault_tools.memory.tape import Span

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


def gathers_weights(setup: TrainingSetup) -> bool:
    """Whether weights are shards that a wrapper gathers for use (FSDP, and ZeRO-3)."""
    if setup.sharding is Sharding.ZERO2:
        return setup.framework is not Framework.DEEPSPEED
    return setup.sharding in (Sharding.FSDP, Sharding.ZERO3)


def choose_types(shape: Architecture, setup: TrainingSetup) -> EagerTypes:
    """Element widths inside the layers."""
    wrapped = gathers_weights(setup) or setup.framework is Framework.DEEPSPEED
    frozen = bool(setup.lora_rank)
    keeps = setup.sharding not in (Sharding.DDP, Sharding.ZERO1)
    if wrapped and setup.precision is not Precision.FP32:
        # Mixed precision by the wrapper: layers see half-precision weights and hidden states.
        return EagerTypes(
            weight=2,
            compute=2,
            residual=2,
            gradient=2,
            cast=False,
            frozen=frozen,
            lora_rank=setup.lora_rank,
            quantized=bool(setup.quantized_bits),
        )
    return EagerTypes(
        weight=setup.weight_bytes,
        compute=setup.compute_bytes,
        residual=setup.weight_bytes if not setup.quantized_bits else 2,
        gradient=setup.weight_bytes,
        cast=setup.autocast,
        keeps_gradients=keeps and setup.micro_batches == 1,
        frozen=frozen,
        lora_rank=setup.lora_rank,
        quantized=bool(setup.quantized_bits),
    )


@lru_cache(maxsize=256)
def _find_laws(
    shape: Architecture, layer: LayerSetup, types: EagerTypes, single: bool
) -> tuple[tuple[SpanLaw, int], ...] | None:
    """How the layers of a model grow, and its head as the last; `layer` stands for every length and batch."""

    def replay(sequence: int, batch: int) -> Groups:
        sized = layer._replace(sequence=sequence, micro_batch=batch)
        head = _replay_head(shape, sized, types)
        return (*_replay_layers(shape, sized, types), (head, 1))

    return find_laws(replay, single=single)


@lru_cache(maxsize=64)
def list_spans(shape: Architecture, layer: LayerSetup, types: EagerTypes) -> tuple[Groups, Span]:
    """Runs of like layers in order, and the head, by their laws where they have some.

    Kept: most single changes leave every layer's tensors alone.
    """
    laws = None
    if layer.sequence % chunk_of(shape) == 0:
        laws = _find_laws(shape, layer.without_tokens, types, layer.micro_batch == 1)
    if laws is None:
        return _replay_layers(shape, layer, types), _replay_head(shape, layer, types)
    tokens, batch = layer.sequence * layer.micro_batch, layer.micro_batch
    spans = {id(law): law.at(tokens, batch) for law in {id(law): law for law, _ in laws}.values()}
    *groups, (head, _) = ((spans[id(law)], count) for law, count in laws)
    return tuple(groups), head


def chunk_of(shape: Architecture) -> int:
    """Tokens of a chunk of state-space layers, which need not divide the sequence."""
    hybrid = shape.hybrid
    if hybrid is None:
        return 1
    return max((part.chunk for part in (hybrid.scan, hybrid.delta) if part is not None), default=1)


def _replay_layers(shape: Architecture, layer: LayerSetup, types: EagerTypes) -> Groups:
    """Runs of like layers in order, tensor by tensor."""
    if shape.diffusion is not None:
        return tuple(replay_diffusion(shape, layer, types))
    block = EagerBlock(shape, layer, types)
    groups: list[tuple[Span, int]] = []
    if shape.encoder_layers:
        source = encoder_block(block)
        groups.append((replay_pair_layer(source, decoder=False), shape.encoder_layers))
        groups.append((replay_pair_layer(block, decoder=True), shape.layers))
    elif shape.hybrid is not None:
        groups = replay_hybrid_layers(block, shape.hybrid)
    elif shape.state_space is not None:
        groups.append((replay_state_space_layer(block, shape.state_space), shape.layers))
    elif shape.layers - shape.moe_layers:
        groups.append((block.replay_layer(), shape.layers - shape.moe_layers))
    if shape.moe_layers and not shape.encoder_layers and shape.hybrid is None:
        groups.append((block.replay_layer(moe=True), shape.moe_layers))
    return tuple(groups)


def _replay_head(shape: Architecture, layer: LayerSetup, types: EagerTypes) -> Span:
    if shape.diffusion is not None:
        return replay_diffusion_head(shape, layer, types)
    return EagerBlock(shape, layer, types).replay_head(
        fused=layer.loss_fused, eager=layer.loss_eager
    )


class _Step:
    __slots__ = (
        "attention_kept",
        "every_other",
        "groups",
        "head",
        "highest",
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
        self.types = choose_types(shape, setup)
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
        layer = setup.layer
        self.groups, self.head = list_spans(shape, layer, self.types)
        if shape.tower is not None and setup.image_patches and not setup.tower_frozen:
            tower = replay_tower_layer(EagerBlock(shape, layer, self.types), shape.tower)
            self.groups = ((tower, shape.tower.layers), *self.groups)
        self.attention_kept = 0
        if setup.recompute is Recompute.SELECTIVE and setup.attention is Attention.EAGER:
            scores = tokens * (setup.sequence // setup.context) * shape.heads
            wide = 4 if shape.softmax_upcast or self.types.residual == 4 else self.types.compute
            self.attention_kept = scores * (wide + self.types.compute * (wide != 2))
        self.every_other = 0
        titan = setup.framework is Framework.TORCHTITAN and not shape.experts
        if titan and setup.recompute is Recompute.SELECTIVE:
            # Selective checkpointing by operation: the layer's input, every other matmul's result
            # (query, value, gate, down) and attention's are kept, all else is computed again. That was
            # torchtitan's rule in 2024 and 2025; a later one takes a list of names.
            self.attention_kept = 0
            width = 2 * shape.hidden + 2 * shape.query_width + shape.kv_width + shape.ffn
            self.every_other = tokens * width * self.types.compute
        self.wrapped = gathers_weights(setup)
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

    def kept_by(self, span: Span) -> int:
        """Bytes one layer keeps from its forward to its backward."""
        if self.setup.activation_offload:
            return 0
        if self.setup.recompute is Recompute.FULL:
            return self.stream
        if self.every_other:
            return min(self.every_other, span.kept)
        return span.kept - self.attention_kept

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

    def add(self, phase: Phase, **terms: int) -> None:
        """Note a moment beside what is alive through the whole step; of a phase's moments the highest stays."""
        total = sum(terms.values())
        if phase not in self.highest or total > self.highest[phase][0]:
            self.highest[phase] = total, terms

    def list_moments(self, base: dict[str, int], peak_only: bool) -> tuple[Moment, ...]:
        """One moment a phase, with its terms by name; or the highest alone."""
        found = self.highest
        if peak_only:
            top = max(found, key=lambda phase: found[phase][0])
            found = {top: found[top]}
        return tuple(
            Moment(
                phase,
                base | {name.replace("_", " "): size for name, size in terms.items() if size},
            )
            for phase, (_, terms) in found.items()
        )

    def walk(self, *, peak_only: bool = False) -> StepMemory:
        """All phases in order."""
        setup, states, head = self.setup, self.states, self.head
        base = self.base()
        resident = sum(base.values())
        full = setup.recompute is Recompute.FULL
        held = states.gradients if setup.micro_batches > 1 else 0
        runs = self.list_runs(full)
        activations = sum(kept * count for _, count, kept, _ in runs)
        casts = sum(span.cast * count for span, count in self.groups) if full else 0
        # Autocast's cache holds every cast weight until the context ends; without recomputation the
        # same copies are kept by autograd anyway.
        cache = casts if full and not self.types.frozen else 0
        spare = self.spare
        stood = highest = 0
        for span, count, kept, _ in runs:
            stood += kept * count
            inside = span.transient_peak if full else span.forward_peak
            highest = max(highest, stood - kept + inside)
        self.add(
            Phase.FORWARD,
            gradients=held,
            unsharded_weights=self.root + self.unit + self.prefetch + spare,
            cast_weights=cache,
            activations=highest + self.stream,
            attention_mask=self.mask,
        )
        # Checkpointing keeps the mask with its arguments; otherwise it dies with the decoder.
        mask = self.mask if full else 0
        self.add(
            Phase.LOSS,
            gradients=held,
            unsharded_weights=self.root + self.unit + spare,
            cast_weights=cache,
            activations=activations,
            logits_and_loss=head.forward_peak,
            attention_mask=mask,
        )
        kept = 0 if setup.activation_offload else head.kept
        after_forward = resident + held + self.root + spare + activations + kept + mask
        self.add(
            Phase.LOSS_BACKWARD,
            gradients=held,
            unsharded_weights=self.root + self.prefetch + spare,
            activations=activations,
            logits_and_loss=head.backward_peak,
            attention_mask=mask,
        )
        self.walk_backward(runs, activations, held)
        after_backward = resident + states.gradients
        self.step()
        if setup.resume:
            # torch.load with map_location on the device: the read states stand beside their copies.
            self.add(Phase.LOAD, loaded_states=states.moments + states.master)
        return StepMemory(
            moments=self.list_moments(base, peak_only),
            weights=states.weights + states.rounding + states.buckets + states.master,
            after_forward=after_forward,
            after_backward=after_backward,
            after_step=resident,
            largest_tensor=max(
                (head.largest, *(span.largest for span, _ in self.groups)), key=lambda t: t[1]
            ),
        )

    def list_runs(self, full: bool) -> list[tuple[Span, int, int, int]]:
        """Runs of like layers with what one keeps, and how high its backward rises above what others keep."""
        found: dict[int, tuple[int, int]] = {}
        for span, _ in self.groups:
            if id(span) in found:
                continue
            inside = span.backward_peak
            if full:
                missing = 0 if self.keeps_input(span) else self.stream
                inside = max(inside, self.stream + span.forward_peak) + missing
            elif self.attention_kept or self.every_other:
                inside = max(inside, span.forward_peak + self.stream)
            found[id(span)] = self.kept_by(span), inside
        return [(span, count, *found[id(span)]) for span, count in self.groups]

    def walk_backward(
        self, runs: list[tuple[Span, int, int, int]], activations: int, held: int
    ) -> None:
        """Backward through the layers: the first and the last of each kind bound the rest."""
        setup, states, head, shape = self.setup, self.states, self.head, self.shape
        full = setup.recompute is Recompute.FULL
        # Under FSDP the root keeps its unsharded gradient to the end, layers keep their shards.
        produced = 0 if held else head.weight_gradients
        sharded = 0
        remaining = activations
        unsharded = self.root + self.prefetch + (self.spare or self.unit)
        # One layer's packed gradients, in fp32, wait for their reduce-scatter.
        reduce = 4 * self.unit // self.types.weight
        bucket = 0
        if setup.framework is Framework.DEEPSPEED:
            bucket = min(REDUCE_BUCKET, shape.parameters) * self.types.gradient
        start: tuple[int, ...] = ()
        end: tuple[int, ...] = ()
        split = self.wrapped or setup.sharding is Sharding.ZERO2
        whole = max(1, shape.parameters * self.types.gradient)
        for span, count, kept, inside in reversed(runs):
            gradient = 0 if held else span.weight_gradients
            shard = 0
            if split:
                shard = states.gradients * span.weight_gradients // whole
                gradient = 0
            for done in (0, count - 1) if count > 1 else (0,):
                sizes: tuple[int, ...] = (
                    held + produced + done * gradient + sharded + done * shard,
                    unsharded - (done * self.unit if self.spare else 0),
                    (reduce if done else 0) + bucket,
                    remaining - kept * (done + 1) + inside,
                )
                if not start:
                    start = sizes
                elif not end or sum(sizes) > sum(end):
                    end = sizes
            remaining -= kept * count
            produced += count * gradient
            sharded += count * shard
        for phase, parts in ((Phase.BACKWARD_START, start), (Phase.BACKWARD_END, end)):
            if parts:
                self.add(
                    phase,
                    gradients=parts[0],
                    unsharded_weights=parts[1],
                    reduce_scatter=parts[2],
                    activations=parts[3],
                    attention_mask=self.mask if full else 0,
                )
        table = 0 if self.types.frozen else shape.embedding_parameters * self.types.gradient
        total = held or states.gradients
        if self.wrapped:
            root_gradient = self.root * self.types.gradient // self.types.weight
            self.add(
                Phase.EMBEDDING_BACKWARD,
                gradients=sharded,
                unsharded_weights=self.root,
                unsharded_gradients=root_gradient + (table if shape.tied else 0),
                reduce_scatter=reduce,
                activations=self.stream,
            )
            # Its gradients are packed, freed and reduced in fp32. A loop variable in FSDP2's
            # foreach_reduce still holds the last one, which is the output matrix unless it is tied.
            last = shape.head_parameters * self.types.gradient
            outside = self.root // self.types.weight
            ranks = setup.data * setup.context
            narrow = 4 * outside // ranks if setup.weight_bytes < 4 else 0
            self.add(
                Phase.EMBEDDING_BACKWARD,
                gradients=total,
                unsharded_gradients=last,
                reduce_scatter=4 * outside + narrow,
            )
        else:
            # Gradients of a shared table come from both ends: two and their sum stand side by side.
            extra = table if shape.tied or held or states.buckets else 0
            extra += table if shape.tied and not (held or states.buckets) else 0
            self.add(Phase.EMBEDDING_BACKWARD, gradients=total + extra, activations=self.stream)

    def keeps_input(self, span: Span) -> bool:
        """Whether the layer's input is among what autograd saves of it."""
        return self.types.residual == 4 or self.shape.norm.value == "layer"

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
            gradients=states.gradients,
            fp32_gradients=master,
            step_temporaries=lists,
        )
