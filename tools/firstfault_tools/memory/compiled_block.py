"""What does a layer keep under torch.compile?

Inductor's default partition (torch/_functorch/partitioners.py, min_cut_rematerialization_partition)
recomputes what is pointwise and keeps what is costly: inputs and outputs of matmuls and of attention,
each once, with the residual stream. Norms, activations and the softmax of the loss leave nothing but
statistics; weights are cast again instead of kept.
"""

from __future__ import annotations

from firstfault_tools.memory.eager_operations import EagerOperations
from firstfault_tools.memory.tape import Span


def replay_compiled_layer(block: EagerOperations, *, moe: bool = False) -> Span:
    """One decoder layer."""
    shape, types, tokens = block.shape, block.types, block.tokens
    h, qw, kw = shape.hidden, shape.query_width, shape.kv_width
    attention = (
        h + 2 * qw + 3 * kw + (qw if shape.latent is None else shape.heads * shape.latent.value)
    )
    if moe:
        k, f = shape.experts_per_token, shape.expert_ffn
        mlp = h + k * (2 * h + (shape.mlp_matrices) * f) + 4 * shape.shared_expert_ffn
    else:
        mlp = h + shape.mlp_matrices * shape.ffn
    stream = tokens * h * types.residual
    kept = tokens * (attention + mlp) * types.compute + 2 * stream + 4 * tokens * (shape.heads + 2)
    parameters = shape.moe_layer_parameters if moe else shape.dense_layer_parameters
    gradients = 0 if types.frozen or not types.keeps_gradients else parameters * types.gradient
    widest = tokens * max(shape.ffn, qw, h) * types.compute
    return Span(
        kept=kept,
        cast=0,
        forward_peak=kept + stream,
        transient_peak=stream + 3 * widest,
        backward_peak=kept + stream + 2 * widest + gradients,
        weight_gradients=gradients,
        output=stream,
        largest=("activation", widest),
    )


def replay_compiled_head(block: EagerOperations) -> Span:
    """Output projection and loss in one graph: half-precision logits are all that stands."""
    shape, types, tokens = block.shape, block.types, block.tokens
    logits = tokens * shape.vocab * types.compute
    table = 0 if types.frozen else shape.vocab * shape.hidden * types.gradient
    kept = logits + tokens * shape.hidden * types.compute
    return Span(
        kept=kept,
        cast=0,
        forward_peak=kept,
        transient_peak=kept,
        backward_peak=kept + logits + table,
        weight_gradients=table if types.keeps_gradients else 0,
        output=4,
        largest=("logits", logits),
    )
