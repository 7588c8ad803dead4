"""Which tensors does a block of a vision tower keep? Qwen2-VL's and Qwen2.5-VL's, as eager code runs them.

modeling_qwen2_5_vl.py: one projection for queries, keys and values, rotation in fp32, attention window
by window whose results are joined in a copy, a gated MLP (Qwen2-VL: layer norm and a plain MLP).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from firstfault_tools.memory.architecture import Norm, Tower
from firstfault_tools.memory.tape import Span, Tape

if TYPE_CHECKING:
    from firstfault_tools.memory.eager_block import EagerBlock


def replay_tower_layer(block: EagerBlock, tower: Tower) -> Span:
    """One block of the tower over the patches of a micro-batch."""
    from firstfault_tools.memory.eager_block import EagerBlock

    shape = replace(
        block.shape, hidden=tower.hidden, heads=tower.heads, kv_heads=tower.heads, ffn=tower.ffn,
        head_dim=tower.hidden // tower.heads, gated=tower.gated, tower=None,
        norm=Norm.RMS if tower.gated else Norm.LAYER,
    )  # fmt: skip
    inner = EagerBlock(shape, block.setup._replace(sequence=block.setup.image_patches), block.types)
    types, tokens, h = block.types, inner.tokens, tower.hidden
    stream, part = tokens * h * types.residual, tokens * h * types.compute
    inner.tape = tape = Tape(stream, "patches")
    both = inner.linear(inner.norm(0), h, 3 * h, "query-key-value")
    turned = []
    for name in ("query", "key"):
        wide = tape.run(f"{name} in fp32", (both,), tokens * h * 4)
        wide = tape.run(f"{name} rotated", (wide,), tokens * h * 4, scratch=tokens * h * 8)
        turned.append(tape.run(f"{name} rotated", (wide,), part))
    mixed = tape.run(
        "attention", (*turned, both), part, save=(*turned, both), save_output=True,
        saved_bytes=4 * tokens * tower.heads, back_scratch=2 * part,
    )  # fmt: skip
    joined = tape.run("attention of all windows", (mixed,), part)
    middle = tape.run(
        "attention residual", (0, inner.linear(joined, h, h, "attention output")), stream, passes=0
    )
    tape.run("layer output", (middle, inner.mlp(inner.norm(middle))), stream, passes=0)
    return tape.replay()
