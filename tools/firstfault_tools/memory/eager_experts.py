"""Which tensors does a mixture-of-experts MLP keep and allocate, written out as eager code runs it?

Routed experts run as grouped matmuls over T x k rows sorted by expert (transformers,
src/transformers/integrations/moe.py, grouped_mm_experts_forward). `grouped_mm` is not among the
functions autocast casts: under autocast experts work in the type of their weights, fp32, and make no
half-precision copy of them.
"""

from __future__ import annotations

from firstfault_tools.memory.eager_operations import EagerOperations


def run_experts(block: EagerOperations, normed: int) -> int:
    """Router, dispatch, experts, weighted sum and shared expert. Returns the branch's result."""
    shape, types, tape = block.shape, block.types, block.tape
    tokens, rows = block.tokens, block.tokens * shape.experts_per_token
    h, f = shape.hidden, shape.expert_ffn
    _run_router(block, normed)
    if block.setup.experts_loop:
        return _add_shared(block, normed, _run_loop(block, normed, rows))
    sent = tape.run(
        "tokens sorted by expert", (normed,), rows * h * types.residual, saved_bytes=33 * rows
    )
    width = types.weight
    if types.residual != width:
        sent = tape.run("expert input", (sent,), rows * h * width)
    inner = f * (2 if shape.gated else 1)
    bias = rows * inner * width if shape.expert_bias else 0
    first = _run_grouped(block, sent, h * inner, rows * inner, "expert gate and up", bias)
    first = tape.run("expert gate and up", (first,), tape.size(first))
    part = rows * f * width
    if shape.expert_bias:
        product = _run_clamped_gate(block, first, part)
    elif shape.gated:
        # gate and up are views of one tensor: their gradients meet in a concatenation.
        active = tape.run("expert activation", (first,), part, save=(first,), back_scratch=part)
        product = tape.run(
            "expert product", (active,), part, save=(active, first), back_scratch=part
        )
    else:
        product = block.activate(first, f, rows)
    bias = rows * h * width if shape.expert_bias else 0
    out = _run_grouped(block, product, f * h, rows * h, "expert down", bias)
    out = tape.run("expert down", (out,), tape.size(out))
    score = 2 if shape.latent is None else 4
    heavy = max(width, score)
    weighted = tape.run("weighted expert output", (out,), rows * h * heavy, save=(out,))
    ordered = tape.run("expert output in token order", (weighted,), rows * h * heavy)
    # Autocast sums in fp32; a sum in half precision stays there.
    wide = 4 if types.residual == 4 else heavy
    total = tape.run("expert sum", (ordered,), tokens * h * wide, back_scratch=0)
    if types.residual != wide:
        total = tape.run("expert sum", (total,), tokens * h * types.residual)
    return _add_shared(block, normed, total)


def _add_shared(block: EagerOperations, normed: int, total: int) -> int:
    if not block.shape.shared_expert_ffn:
        return total
    shared = _run_shared(block, normed)
    return block.tape.run("with shared expert", (total, shared), block.tape.size(total), passes=0)


def _run_loop(block: EagerOperations, normed: int, rows: int) -> int:
    """One expert after the other in Python (MixtralExperts.forward): matmuls under autocast's rules, a
    half-precision copy of every expert's matrices kept; gradients of a slice take a whole tensor."""
    shape, types, tape = block.shape, block.types, block.tape
    h, f, width = shape.hidden, shape.expert_ffn, types.compute
    inner = f * (2 if shape.gated else 1)
    sent = tape.run(
        "tokens of an expert", (normed,), rows * h * types.residual, saved_bytes=33 * rows
    )
    if types.residual != width:
        sent = tape.run("expert input", (sent,), rows * h * width)

    def multiply(tensor: int, elements: int, outside: int, name: str) -> int:
        elements *= shape.experts
        trains = not types.frozen
        return tape.run(
            name, (tensor,), rows * outside * width, save=(tensor,) if trains else (),
            saved_bytes=elements * width if types.cast else 0,
            weight_gradient=elements * types.gradient if trains and types.keeps_gradients else 0,
            back_scratch=elements * types.gradient if trains else 0,
        )  # fmt: skip

    both = multiply(sent, h * inner, inner, "expert gate and up")
    active = tape.run("expert activation", (both,), rows * f * width, save=(both,))
    if shape.gated:
        active = tape.run("expert product", (active, both), rows * f * width, save=(active, both))
    out = multiply(active, f * h, h, "expert down")
    weighted = tape.run(
        "weighted expert output", (out,), rows * h * 4 // shape.experts, save=(out,)
    )
    return tape.run("expert sum", (weighted,), block.tokens * h * types.residual)


def _run_router(block: EagerOperations, normed: int) -> None:
    """A linear layer; DeepSeek's takes its input in fp32 and its scores through a softmax."""
    shape, tape, tokens = block.shape, block.tape, block.tokens
    if shape.latent is None:
        block.linear(normed, shape.hidden, shape.experts, "router", adapter=False)
        return
    wide = normed
    if block.types.residual != 4:
        wide = tape.run("router input in fp32", (normed,), tokens * shape.hidden * 4)
    if block.types.cast:
        wide = tape.run("router input", (wide,), tokens * shape.hidden * block.types.compute)
    keep = () if block.types.frozen else (wide,)
    scores = tape.run("router logits", (wide,), tokens * shape.experts * 4, save=keep)
    tape.run("router scores", (scores,), tokens * shape.experts * 4, save_output=True)


def _run_clamped_gate(block: EagerOperations, both: int, part: int) -> int:
    """GPT-OSS: (up + 1) * gate * sigmoid(alpha gate), both clamped first."""
    tape = block.tape
    gate = tape.run("clamped gate", (both,), part, save=(both,), back_scratch=part)
    up = tape.run("clamped up", (both,), part, save=(both,), back_scratch=part)
    sigmoid = tape.run("gate sigmoid", (gate,), part, save_output=True, scratch=part)
    glu = tape.run("gate times sigmoid", (gate, sigmoid), part, save=(gate, sigmoid))
    raised = tape.run("up plus one", (up,), part, passes=0)
    return tape.run("expert product", (raised, glu), part, save=(raised, glu))


def _run_grouped(
    block: EagerOperations, tensor: int, elements: int, outside: int, name: str, bias: int
) -> int:
    types, tape = block.types, block.tape
    elements *= block.shape.experts
    trains = not types.frozen
    held = elements * types.gradient
    return tape.run(
        name,
        (tensor,),
        outside * types.weight,
        save=(tensor,) if trains else (),
        scratch=bias,
        weight_gradient=held if trains and types.keeps_gradients else 0,
        back_scratch=held if trains and not types.keeps_gradients else 0,
    )


def _run_shared(block: EagerOperations, normed: int) -> int:
    shape, tape = block.shape, block.tape
    h, f = shape.hidden, shape.shared_expert_ffn
    gate = block.linear(normed, h, f, "shared expert gate")
    active = tape.run("shared expert activation", (gate,), tape.size(gate), save=(gate,))
    up = block.linear(normed, h, f, "shared expert up")
    product = tape.run("shared expert product", (active, up), tape.size(up), save=(active, up))
    shared = block.linear(product, f, h, "shared expert down")
    if not shape.shared_expert_gate:
        return shared
    width = block.types.compute
    copied = block.tokens * h * width if block.types.residual != width else 0
    score = tape.run("shared expert score", (normed,), block.tokens * width, saved_bytes=copied)
    size = tape.size(shared)
    return tape.run(
        "scored shared expert", (shared, score), size, save=(shared, score), back_scratch=size
    )
