"""What do layers that are no plain decoder layer keep: encoder-decoder pairs, Mamba's slow path?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from firstfault_tools.memory.architecture import StateSpace
from firstfault_tools.memory.tape import Span, Tape

if TYPE_CHECKING:
    from firstfault_tools.memory.eager_block import EagerBlock

SCAN_BYTES_PER_STATE = 14
"""Per token, channel and state: discrete A, its input term and every state in fp32, and every state once
more in half precision for the product with C (modeling_mamba.py, mamba_selective_scan without kernels)."""
SCAN_BYTES_PER_CHANNEL = 28
"""Per token and channel: both halves of the projection, convolution, two activations, time step before
and after its softplus, three fp32 copies; two more bytes under autocast."""


def replay_state_space_layer(block: EagerBlock, mixer: StateSpace) -> Span:
    """One Mamba layer on the reference path, which walks token by token."""
    shape, types, tokens = block.shape, block.types, block.tokens
    wide = tokens * mixer.inner
    weights = sum(mixer.list_weights(shape.hidden))
    casts = weights * types.compute if types.cast else 0
    stream = tokens * shape.hidden * types.residual
    norm = norm_bytes(block)
    scan = wide * SCAN_BYTES_PER_STATE * mixer.state
    channel = SCAN_BYTES_PER_CHANNEL + (2 if types.cast else 0)
    kept = scan + wide * channel + casts + norm
    whole = 4 * wide * mixer.state
    held = shape.dense_layer_parameters * types.gradient
    gradients = 0 if types.frozen or not types.keeps_gradients else held
    return Span(
        kept=kept,
        cast=casts,
        forward_peak=kept + stream + 2 * whole,
        transient_peak=stream + 4 * whole + wide * channel,
        backward_peak=kept + stream + 4 * whole,
        weight_gradients=gradients,
        output=stream,
        largest=("state of every token", whole),
    )


def norm_bytes(block: EagerBlock) -> int:
    """What the norm before a mixer keeps: its input in fp32, the normalised value, the result."""
    return block.tokens * block.shape.hidden * (4 + block.types.residual + block.types.compute)


def encoder_block(block: EagerBlock) -> EagerBlock:
    """The same model and setup at the encoder's length."""
    from firstfault_tools.memory.eager_block import EagerBlock

    length = block.shape.encoder_tokens
    if not length:
        return block
    return EagerBlock(block.shape, block.setup._replace(sequence=length), block.types)


def replay_pair_layer(block: EagerBlock, *, decoder: bool) -> Span:
    """One layer of an encoder-decoder model; the decoder attends to the encoder's result as well."""
    shape, types = block.shape, block.types
    stream = block.tokens * shape.hidden * types.residual
    block.tape = tape = Tape(stream, "layer input")
    inside = 0
    normed = block.norm(inside)
    branch = run_pair_attention(block, normed, normed, block.tokens, biased=shape.score_bias)
    inside = tape.run("attention residual", (inside, branch), stream, passes=0)
    if decoder:
        length = shape.encoder_tokens or block.seq
        tokens = block.setup.micro_batch * length
        source = tape.run("encoder result", (), 0)
        normed = block.norm(inside)
        branch = run_pair_attention(block, normed, source, tokens, biased=False)
        inside = tape.run("cross attention residual", (inside, branch), stream, passes=0)
    branch = block.mlp(block.norm(inside))
    tape.run("layer output", (inside, branch), stream, passes=0)
    return tape.replay()


def run_pair_attention(
    block: EagerBlock, normed: int, source: int, tokens: int, *, biased: bool
) -> int:
    """Queries from one sequence, keys and values from `tokens` positions of `source`."""
    shape, types, tape = block.shape, block.types, block.tape
    h, qw = shape.hidden, shape.query_width
    query = block.linear(normed, h, qw, "query")
    key, value = (_project_source(block, normed, source, tokens, name) for name in ("key", "value"))
    size = block.tokens * qw * types.compute
    if not biased:
        rows = block.tokens * shape.heads
        mixed = tape.run(
            "attention", (query, key, value), size, save=(query, key, value), save_output=True,
            saved_bytes=4 * rows, back_scratch=block.tokens * qw * 4 + 4 * rows,
        )  # fmt: skip
        return block.linear(mixed, qw, h, "attention output")
    # The plain kernel works in fp32 throughout: scaled query and key, value, scores, softmax.
    wide, other = block.tokens * qw * 4, tokens * qw * 4
    query = tape.run("scaled query", (query,), wide)
    key = tape.run("scaled key", (key,), other)
    value = tape.run("value in fp32", (value,), other)
    scores = block.tokens * (tokens // block.setup.micro_batch) * shape.heads * 4
    raw = tape.run("attention scores", (query, key), scores, save=(query, key))
    weights = tape.run("attention softmax", (raw,), scores, save_output=True)
    mixed = tape.run("attention mix", (weights, value), wide, save=(weights, value))
    mixed = tape.run("attention", (mixed,), size)
    return block.linear(mixed, qw, h, "attention output")


def _project_source(block: EagerBlock, normed: int, source: int, tokens: int, name: str) -> int:
    shape, types, tape = block.shape, block.types, block.tape
    h, qw = shape.hidden, shape.query_width
    if normed == source:
        return block.linear(normed, h, qw, name)
    elements = h * qw
    cast = elements * types.compute if types.cast else 0
    copied = tokens * h * types.compute if types.residual != types.compute else 0
    out = tape.run(
        name, (source,), tokens * qw * types.compute, saved_bytes=cast + copied,
        weight_gradient=elements * types.gradient if types.keeps_gradients else 0, back_scratch=cast,
    )  # fmt: skip
    if cast:
        tape.add_cast(cast)
    return out
