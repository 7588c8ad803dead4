"""How wide are the elements of an eager step, and on which matrices does an adapter sit?"""

from __future__ import annotations

from typing import NamedTuple


class EagerTypes(NamedTuple):
    """Element widths of one eager step, in bytes.

    weight: stored weights as the layer sees them. compute: matmul inputs. residual: hidden states.
    gradient: what a weight's gradient is stored in. cast: weights are copied to `compute` for use.
    keeps_gradients: gradients stay with the layer (False where a bucket or a shard receives them).
    """

    weight: int
    compute: int
    residual: int
    gradient: int
    cast: bool
    keeps_gradients: bool = True
    frozen: bool = False
    lora_rank: int = 0
    quantized: bool = False


ADAPTED = {
    "query": ("q", "q_b"), "compressed query": ("q_a",), "compressed key-value": ("kv_a_proj_with_mqa",),
    "key-value": ("kv_b",), "key": ("k",), "value": ("v",), "attention output": ("o",), "query-key-value": ("q", "qkv"),
    "gate projection": ("gate",), "up projection": ("up",), "down projection": ("down",),
    "gate and up projection": ("gate_up", "gate", "up"), "shared expert gate": ("gate",),
    "shared expert up": ("up",), "shared expert down": ("down",),
}  # fmt: skip
"""Short names, without `_proj`, under which each matrix of a layer is targeted."""


def is_adapted(targets: str, name: str) -> bool:
    """Whether an adapter sits on this matrix."""
    if targets == "all-linear":
        return True
    wanted = {part.strip().removesuffix("_proj") for part in targets.split(",")}
    return bool(wanted & set(ADAPTED.get(name, ())))
