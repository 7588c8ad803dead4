"""Which tensors do the layers of hybrid models keep: Mamba-2 and gated delta mixers beside attention?

The written-out paths of transformers 5.17, taken where no fused kernel is installed: modeling_mamba2.py
and modeling_nemotron_h.py (mamba2_chunk_scan), modeling_qwen3_next.py (torch_chunk_gated_delta_rule).
A layer is one or more branches, each with its norm and its residual sum.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from firstfault_tools.memory.architecture import Delta, Hybrid, Scan
from firstfault_tools.memory.eager_experts import run_experts
from firstfault_tools.memory.eager_special import norm_bytes, replay_state_space_layer
from firstfault_tools.memory.tape import Span, Tape

if TYPE_CHECKING:
    from firstfault_tools.memory.eager_block import EagerBlock


def replay_hybrid_layers(block: EagerBlock, hybrid: Hybrid) -> list[tuple[Span, int]]:
    """Runs of like layers, in order, each replayed once."""
    spans = {kind: _replay_layer(block, hybrid, kind) for kind in dict.fromkeys(hybrid.layers)}
    return [(spans[kind], len(list(run))) for kind, run in groupby(hybrid.layers)]


def _replay_layer(block: EagerBlock, hybrid: Hybrid, kind: str) -> Span:
    shape, types, tokens = block.shape, block.types, block.tokens
    stream = tokens * shape.hidden * (4 if hybrid.wide_residual else types.residual)
    block.tape = tape = Tape(stream, "layer input")
    inside = 0
    for branch in kind.split():
        ready = inside
        if stream != tokens * shape.hidden * types.residual:
            ready = tape.run("norm input", (inside,), tokens * shape.hidden * types.weight)
        normed = block.norm(ready)
        if branch == "scan+attention" and hybrid.scan is not None:
            # Falcon-H1 scales the norm's result for each of the two, and each one's result.
            size = tape.size(normed)
            first, second = (tape.run("scaled input", (normed,), size) for _ in range(2))
            mixed = run_scan(block, hybrid.scan, first)
            out = tape.run("both", (mixed, block.attention(second)), size, passes=0)
        elif branch == "scan" and hybrid.scan is not None:
            out = run_scan(block, hybrid.scan, normed)
        elif branch == "delta" and hybrid.delta is not None:
            out = run_delta(block, hybrid.delta, normed)
        elif branch == "mamba" and shape.state_space is not None:
            span = replay_state_space_layer(block, shape.state_space)
            own = span.kept - norm_bytes(block)
            out = tape.run("mixer", (normed,), stream, saved_bytes=own,
                           scratch=span.forward_peak - span.kept, back_scratch=span.backward_peak - span.kept)  # fmt: skip
        elif branch == "attention":
            out = block.attention(normed)
        elif branch == "experts":
            out = run_experts(block, normed)
        else:
            out = block.mlp(normed)
        inside = tape.run("layer output", (inside, out), stream, passes=0)
    return tape.replay()


def hold(tape: Tape, *tensors: int) -> None:
    """Tensors that a local name keeps alive up to here."""
    tape.run("names", tensors, 0, passes=len(tensors))


def _convolve(block: EagerBlock, source: int, channels: int) -> int:
    """Depthwise convolution and its activation; the padded result stays for the activation."""
    types, tape, tokens = block.types, block.tape, block.tokens
    size = tokens * channels * types.compute
    out = tape.run("convolution", (source,), size, save=(source,))
    return tape.run("activated convolution", (out,), size, save=(out,))


def run_scan(block: EagerBlock, scan: Scan, normed: int) -> int:
    """A Mamba-2 mixer whose chunks are summed by broadcast products: six-dimensional temporaries."""
    shape, types, tape, tokens = block.shape, block.types, block.tape, block.tokens
    inner, heads, state = scan.heads * scan.width, scan.heads, scan.state
    mixed = inner + 2 * scan.groups * state
    both = block.linear(normed, shape.hidden, inner + mixed + heads, "in projection")
    active = _convolve(block, both, mixed)
    step, wide = tokens * heads * 4, tokens * inner * 4
    # Time step: softplus and clamp keep their inputs; two fp32 copies are kept by two products.
    half = step * types.compute // 4
    rate = tape.run("time step", (both,), half, saved_bytes=half)
    rate = tape.run("clamped time step", (rate,), half, saved_bytes=half + step)
    value = tape.run("values in fp32", (active,), wide)
    row = tokens * heads * state * 4
    left = tape.run("B of every head", (active,), row, scratch=row)
    right = tape.run("C of every head", (active,), row, scratch=row)
    padded = tape.run("padded values", (value,), wide)
    skip = tape.run("D residual", (padded,), wide, save=(padded,), back_scratch=wide)
    stepped = tape.run(
        "values times time step", (value, rate), wide, save=(value,), back_scratch=wide
    )
    chunked = tape.run("values by chunk", (stepped,), wide)
    left = tape.run("B by chunk", (left,), row)
    right = tape.run("C by chunk", (right,), row)
    decay = tape.run("decay", (rate,), step, saved_bytes=step)
    total = tape.run("summed decay", (decay,), step)
    square = tokens * heads * scan.chunk * 4
    steps = tape.run("decay of every pair", (decay,), square, scratch=square)
    steps = tape.run("decay of every pair", (steps,), square, scratch=square)
    mask = tape.run("exponential decay", (steps,), square, save_output=True)
    pair = tokens * heads * scan.chunk * 4 * max(state, 1)
    scores = tape.run(
        "C times B", (right, left), square, save=(right, left), scratch=pair, back_scratch=2 * pair
    )
    product = tape.run("masked scores", (scores, mask), square, save=(scores, mask))
    weights = tape.run("scores", (product,), square)
    pair = tokens * heads * scan.chunk * 4 * scan.width
    near = tape.run("output within a chunk", (weights, chunked), wide, save=(weights, chunked), scratch=pair,
                    back_scratch=2 * pair)  # fmt: skip
    hold(tape, active, steps, mask, scores, weights)
    faded = tape.run("decay to the end", (total,), step, save_output=True)
    driven = tape.run("decayed B", (left, faded), row, save=(left, faded), back_scratch=row)
    every = tokens * inner * state * 4
    chunks = -(-block.seq // scan.chunk)
    states = block.setup.micro_batch * chunks * inner * state * 4
    one = states // chunks
    ends = tape.run("state of a chunk", (driven, chunked), states, save=(driven, chunked), scratch=every,
                    back_scratch=2 * every)  # fmt: skip
    ends = tape.run("states", (ends,), states + one, save_output=True)
    passed = tape.run("passed states", (ends,), states + one, scratch=(states + one) * (chunks + 1),
                      back_scratch=(states + one) * (chunks + 1) * 2)  # fmt: skip
    spread = tape.run(
        "C times states", (right, passed), every, save=(right, passed), back_scratch=every
    )
    far = tape.run("C times states summed", (spread,), wide)
    exponent = tape.run("decay from the start", (total,), step, save_output=True)
    far = tape.run(
        "output from earlier chunks", (far, exponent), wide, save=(far, exponent), back_scratch=wide
    )
    out = tape.run("scan output", (near, far), wide, passes=0)
    out = tape.run("scan output", (out, skip), wide, passes=0)
    hold(tape, spread, left, right, driven, near, far, chunked)
    if not scan.normed:
        part = tokens * inner * types.compute
        gate_on = tape.run("activated gate", (both,), part, save=(both,), save_output=True)
        out = tape.run("gated output", (out, gate_on), wide, save=(out,), back_scratch=wide)
        out = tape.run("out projection input", (out,), part)
        return block.linear(out, inner, shape.hidden, "out projection")
    gate = tape.run("gate in fp32", (both,), wide)
    gate_on = tape.run("activated gate", (gate,), wide, save=(gate,))
    out = tape.run("gated output", (out, gate_on), wide, save=(out, gate_on), back_scratch=wide)
    rows = tokens * (scan.groups if scan.grouped_norm else 1)
    rate = tape.run(
        "norm statistics",
        (out,),
        rows * 4,
        save=(out,),
        save_output=True,
        scratch=wide,
        back_scratch=3 * wide,
    )
    normal = tape.run("normalised", (out, rate), wide, save=(out, rate), back_scratch=wide)
    out = tape.run("norm output", (normal,), wide, save=(normal,), back_scratch=wide)
    if types.compute != 4:
        out = tape.run("out projection input", (out,), tokens * inner * types.compute)
    return block.linear(out, inner, shape.hidden, "out projection")


def run_delta(block: EagerBlock, delta: Delta, normed: int) -> int:
    """A gated delta mixer: a triangular system for every chunk of 64, then chunk after chunk."""
    shape, types, tape, tokens = block.shape, block.types, block.tape, block.tokens
    key, value = delta.key_heads * delta.key_width, delta.heads * delta.value_width
    narrow = types.compute
    both = block.linear(normed, shape.hidden, 2 * key + 2 * value, "query-key-value-gate")
    small = block.linear(normed, shape.hidden, 2 * delta.heads, "beta and decay")
    step, wide_key, wide = (
        tokens * width * 4 for width in (delta.heads, delta.heads * delta.key_width, value)
    )
    gate = tape.run("gate", (both,), tokens * value * narrow)
    joined = tape.run("query, key and value", (both,), tokens * (2 * key + value) * narrow,
                      scratch=tokens * (2 * key + value) * narrow)  # fmt: skip
    hold(tape, both)
    active = _convolve(block, joined, 2 * key + value)
    beta = tape.run("beta", (small,), step * narrow // 4, save_output=True)
    decay = tape.run("decay", (small,), step, saved_bytes=2 * step)

    def normalise(name: str) -> int:
        wide = tape.run(f"{name} in fp32", (active,), wide_key, scratch=wide_key * narrow // 4)
        rate = tape.run(f"{name} length", (wide,), step, save=(wide,), save_output=True, scratch=wide_key,
                        back_scratch=wide_key)  # fmt: skip
        return tape.run(name, (wide, rate), wide_key, save=(wide, rate), back_scratch=wide_key)

    query = tape.run("scaled query", (normalise("query"),), wide_key)
    keys = normalise("key")
    values = tape.run("value in fp32", (active,), wide)
    query = tape.run("padded query", (query,), wide_key)
    keys = tape.run("padded key", (keys,), wide_key)
    values = tape.run("padded value", (values,), wide)
    beta = tape.run("beta in fp32", (beta,), step)
    new = tape.run("beta times value", (values, beta), wide, save=(values, beta), back_scratch=wide)
    driven = tape.run(
        "beta times key", (keys, beta), wide_key, save=(keys, beta), back_scratch=wide_key
    )
    total = tape.run("summed decay", (decay,), step)
    square = tokens * delta.heads * delta.chunk * 4
    pairs = tape.run("decay of every pair", (total,), square, scratch=square)
    pairs = tape.run("exponential decay", (pairs,), square, save_output=True)
    raw = tape.run("keys times keys", (driven, keys), square, save=(driven, keys))
    system = tape.run(
        "triangular system", (raw, pairs), square, save=(raw, pairs), back_scratch=square
    )
    raw = tape.run("queries times keys", (query, keys), square, save=(query, keys))
    near = tape.run(
        "attention within a chunk", (raw, pairs), square, save=(raw, pairs), back_scratch=square
    )
    fade = tape.run("decay from the start", (total,), step, save_output=True)
    faded = tape.run(
        "decayed keys", (driven, fade), wide_key, save=(driven, fade), back_scratch=wide_key
    )
    new = tape.run(
        "new values", (system, new), wide, save=(system,), save_output=True, back_scratch=square
    )
    old = tape.run(
        "keys of the old state",
        (system, faded),
        wide_key,
        save=(system,),
        save_output=True,
        back_scratch=square,
    )
    chunks = -(-block.seq // delta.chunk)
    states = (
        block.setup.micro_batch * chunks * delta.heads * delta.key_width * delta.value_width * 4
    )
    query = tape.run(
        "decayed query",
        (query, fade),
        wide_key,
        save=(query,),
        saved_bytes=step,
        back_scratch=wide_key,
    )
    ends = tape.run(
        "decayed key",
        (keys, total),
        wide_key,
        save=(keys,),
        saved_bytes=step,
        back_scratch=wide_key,
    )
    fresh = tape.run(
        "corrections", (new, old), wide, save=(old,), save_output=True, saved_bytes=states
    )
    out = tape.run("core output", (query, near, fresh, ends), wide, save=(query, near, ends))
    hold(tape, active, beta, decay, values, new, driven, raw, system, faded, old, pairs)
    out = tape.run("core output", (out,), tokens * value * narrow)
    normal = block.rms_norm(out, tokens * value, tokens * delta.heads)
    wide_gate = tape.run("gate in fp32", (gate,), wide)
    gate_on = tape.run("activated gate", (wide_gate,), wide, save=(wide_gate,))
    gated = tape.run(
        "gated output", (normal, gate_on), wide, save=(normal, gate_on), back_scratch=wide
    )
    if narrow != 4:
        gated = tape.run("out projection input", (gated,), tokens * value * narrow)
    return block.linear(gated, value, shape.hidden, "out projection")
