"""Which tensors does multi-head latent attention keep and allocate in eager code?

The operations of modeling_deepseek_v2.py and modeling_deepseek_v3.py: compressed query and key-value
with a norm each, rotation of a part of every head, keys put together in a new tensor.
"""

from __future__ import annotations

from firstfault_tools.memory.architecture import Latent
from firstfault_tools.memory.eager_operations import EagerOperations
from firstfault_tools.memory.setup import Attention


def run_latent_attention(block: EagerOperations, latent: Latent, normed: int) -> int:
    """The whole branch from the normed input to the output projection."""
    shape, tape, tokens = block.shape, block.tape, block.tokens
    h, heads = shape.hidden, shape.heads
    width = heads * latent.key
    if latent.q_rank:
        low = block.linear(normed, h, latent.q_rank, "compressed query")
        low = block.rms_norm(low, tokens * latent.q_rank, tokens)
        query = block.linear(low, latent.q_rank, width, "query")
    else:
        query = block.linear(normed, h, width, "query")
    both = block.linear(normed, h, latent.kv_rank + latent.rope, "compressed key-value")
    part = tokens * latent.kv_rank * (tape.size(both) // (tokens * (latent.kv_rank + latent.rope)))
    middle = tape.run("compressed key-value part", (both,), 0)
    low = _norm_part(block, middle, part, tokens * latent.kv_rank)
    turned, key_turned = _rotate(block, latent, query, both)
    whole = (
        tokens
        * width
        * max(block.types.compute, tape.size(turned) // (tokens * heads * latent.rope))
    )
    query = tape.run("query with rotation", (query, turned), whole)
    spread = block.linear(low, latent.kv_rank, heads * (latent.nope + latent.value), "key-value")
    key = tape.run("key with rotation", (spread, key_turned), tokens * width * block.types.compute)
    if block.setup.attention is Attention.EAGER:
        mixed = block.score_matrix(query, key, spread)
    else:
        mixed = _run_efficient(block, latent, query, key, spread)
    return block.linear(mixed, heads * latent.value, h, "attention output")


def _norm_part(block: EagerOperations, tensor: int, size: int, elements: int) -> int:
    """A norm over a slice of a wider tensor: the slice is a view, its fp32 copy is not."""
    tape = block.tape
    view = tape.run("compressed key-value view", (tensor,), size)
    return block.rms_norm(view, elements, block.tokens)


def _rotate(block: EagerOperations, latent: Latent, query: int, both: int) -> tuple[int, int]:
    """Rotated parts of query and key: V3 in the residual's width, V2 through complex fp32 back."""
    tape, tokens, heads = block.tape, block.tokens, block.shape.heads
    width = block.types.residual if latent.interleaved else block.types.compute
    size, small = tokens * heads * latent.rope, tokens * latent.rope
    turned = tape.run(
        "rotated query", (query,), size * width, scratch=size * 4, back_scratch=size * 8
    )
    key = tape.run("rotated key", (both,), small * width, scratch=small * 4)
    return turned, key


def _run_efficient(block: EagerOperations, latent: Latent, query: int, key: int, value: int) -> int:
    """Head widths of keys and values differ: the memory-efficient kernel, which keeps like flash."""
    tape, tokens, heads = block.tape, block.tokens, block.shape.heads
    query = block.cast_in(query, heads * latent.key, "attention query")
    out = tokens * heads * latent.value * block.types.compute
    rows = tokens * heads
    return tape.run(
        "attention", (query, key, value), out, save=(query, key, value), save_output=True,
        saved_bytes=4 * rows, back_scratch=4 * rows,
    )  # fmt: skip
