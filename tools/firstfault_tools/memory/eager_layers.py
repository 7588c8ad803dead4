"""What do the layers of an eager step keep together, and how high does memory rise while they run?

A layer's tape stands for all its like (`scaling.py`); here the layers are laid one after the other, forward and
back. States, gradients and what wrappers gather are added in `eager_step.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

from firstfault_tools.dataclass import dataclass
from firstfault_tools.memory.architecture import Architecture
from firstfault_tools.memory.eager_block import EagerBlock
from firstfault_tools.memory.eager_diffusion import replay_diffusion, replay_diffusion_head
from firstfault_tools.memory.eager_hybrid import replay_hybrid_layers
from firstfault_tools.memory.eager_special import (
    encoder_block,
    replay_pair_layer,
    replay_state_space_layer,
)
from firstfault_tools.memory.eager_tower import replay_tower_layer
from firstfault_tools.memory.eager_types import EagerTypes
from firstfault_tools.memory.scaling import Groups, SpanLaw, find_laws
from firstfault_tools.memory.setup import LayerSetup
from firstfault_tools.memory.tape import Span


class Keeping(NamedTuple):
    """What of a layer stays until its backward.

    stream: bytes of hidden states between layers. full: its input alone. offloaded: nothing on the GPU.
    attention: bytes of its attention that are computed again. every_other: bytes kept where every other
    matmul is. tower: the vision tower is trained too.
    """

    stream: int
    full: bool
    offloaded: bool
    attention: int
    every_other: int
    tower: bool


class Point(NamedTuple):
    """A layer in the backward: gradients of layers behind it, how many of its own run those are, activations."""

    gradients: int
    done: int
    activations: int


@dataclass(frozen=True, slots=True)
class LayerWalk:
    """All layers once forward and back, in bytes. Gradients are counted whole, as if nothing was split."""

    head: Span
    activations: int
    cast: int
    forward_peak: int
    weight_gradients: int
    first: Point | None
    """The last layer, whose backward runs first."""
    later: tuple[Point, ...]
    """Of the others those that are highest for some share of the gradients."""
    largest: tuple[str, int]


@lru_cache(maxsize=256)
def walk_layers(
    shape: Architecture, layer: LayerSetup, types: EagerTypes, keeping: Keeping
) -> LayerWalk:
    """Forward and backward through all layers. Kept: changes of states and splits leave it as it is."""
    groups, head = list_spans(shape, layer, types)
    if keeping.tower and shape.tower is not None:
        tower = replay_tower_layer(EagerBlock(shape, layer, types), shape.tower)
        groups = ((tower, shape.tower.layers), *groups)
    holds_input = types.residual == 4 or shape.norm.value == "layer"
    sizes = {span: _size_span(span, keeping, holds_input) for span, _ in groups}
    runs = tuple((span, count, *sizes[span]) for span, count in groups)
    repeats = _count_repeats(groups)
    # Along repeats all heights grow evenly: the first and the last of them bound those between, and so do the
    # first and the last layer of a run.
    turns = (0, repeats - 1) if repeats > 1 else (0,)
    runs = runs[: len(runs) // repeats]
    whole = sum(kept * count for _, count, kept, _ in runs)
    learned = sum(span.weight_gradients * count for span, count, _, _ in runs)
    highest = 0
    points: list[Point] = []
    for turn in turns:
        stood = whole * turn
        remaining = whole * (repeats - turn)
        gradients = learned * turn
        for span, count, kept, _ in runs:
            stood += kept * count
            inside = span.transient_peak if keeping.full else span.forward_peak
            highest = max(highest, stood - kept + inside)
        for span, count, kept, inside in reversed(runs):
            for done in (0, count - 1) if count > 1 else (0,):
                behind = gradients + done * span.weight_gradients
                points.append(Point(behind, done, remaining - kept * (done + 1) + inside))
            remaining -= kept * count
            gradients += count * span.weight_gradients
    return LayerWalk(
        head=head,
        activations=whole * repeats,
        cast=sum(span.cast * count for span, count in groups),
        forward_peak=highest,
        weight_gradients=learned * repeats,
        first=points[0] if points else None,
        later=_keep_highest(points[1:]),
        largest=max((head.largest, *(span.largest for span, _ in groups)), key=lambda t: t[1]),
    )


def _count_repeats(groups: Groups) -> int:
    """How many times over the same runs follow each other, as a hybrid's do."""
    for size in range(1, len(groups) // 2 + 1):
        times, rest = divmod(len(groups), size)
        if not rest and groups[:size] * times == groups:
            return times
    return 1


def _size_span(span: Span, keeping: Keeping, holds_input: bool) -> tuple[int, int]:
    """What one layer keeps, and how high its backward rises above what others keep.

    holds_input: the layer's input is among what autograd saves of it.
    """
    inside = span.backward_peak
    kept = span.kept - keeping.attention
    if keeping.full:
        kept = keeping.stream
        inside = max(inside, keeping.stream + span.forward_peak)
        inside += 0 if holds_input else keeping.stream
    elif keeping.attention or keeping.every_other:
        inside = max(inside, span.forward_peak + keeping.stream)
    if keeping.every_other and not keeping.full:
        kept = min(keeping.every_other, span.kept)
    return 0 if keeping.offloaded else kept, inside


def _keep_highest(points: Iterable[Point]) -> tuple[Point, ...]:
    """The upper hull over gradients and activations, of points with equally many layers done each."""
    hulls: dict[int, list[Point]] = {}
    for point in sorted(points):
        hull = hulls.setdefault(point.done, [])
        while len(hull) > 1 and _lies_under(hull[-2], hull[-1], point):
            hull.pop()
        hull.append(point)
    return tuple(point for hull in hulls.values() for point in hull)


def _lies_under(left: Point, middle: Point, right: Point) -> bool:
    rise = (right.activations - left.activations) * (middle.gradients - left.gradients)
    return (middle.activations - left.activations) * (right.gradients - left.gradients) <= rise


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
    spans = {law: law.at(tokens, batch) for law in dict.fromkeys(law for law, _ in laws)}
    *groups, (head, _) = ((spans[law], count) for law, count in laws)
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
