"""Which tensor is this request? Matches a tried-to-allocate size to the tensors of a run."""

from __future__ import annotations

from collections.abc import Iterator

from firstfault_tools.dataclass import dataclass
from firstfault_tools.memory.architecture import Architecture
from firstfault_tools.memory.setup import Attention, Sharding, TrainingSetup
from firstfault_tools.memory.states import MIB

REQUEST_ROUNDING = 2 * MIB
"""The allocator prints the request after rounding it up to 2 MiB (10 MiB and more), and 20 MiB for
anything between 1 and 10 MiB: sizes below 10 MiB name no tensor."""
SMALLEST_TELLING = 10 * MIB
LOOSE = 0.01


@dataclass(frozen=True, slots=True)
class TensorMatch:
    """A tensor whose size fits. exact: within the rounding of message and allocator."""

    name: str
    formula: str
    bytes: int
    exact: bool
    relative_error: float


def match_tensor(
    tried: int, shape: Architecture, setup: TrainingSetup, step: int = 0
) -> tuple[TensorMatch, ...]:
    """Tensors of this run within 1 % of the request, exact ones first. `step`: printed precision."""
    if tried <= 2 * SMALLEST_TELLING and tried in (2 * MIB, 20 * MIB):
        return ()
    found: dict[int, TensorMatch] = {}
    for name, formula, size in _list_tensors(shape, setup):
        if size < SMALLEST_TELLING:
            continue
        rounded = -(-size // REQUEST_ROUNDING) * REQUEST_ROUNDING
        error = min(abs(rounded - tried), abs(size - tried))
        exact = error <= max(step, 1) or abs(rounded - tried) <= step // 2 + 1
        relative = error / size
        if (exact or relative <= LOOSE) and size not in found:
            found[size] = TensorMatch(name, formula, size, exact, relative)
    # Among exact ones the order of the list decides: the likelier tensor stands first.
    return tuple(
        sorted(
            found.values(),
            key=lambda match: (not match.exact, 0.0 if match.exact else match.relative_error),
        )
    )


def _list_tensors(shape: Architecture, setup: TrainingSetup) -> Iterator[tuple[str, str, int]]:
    """Name, formula and bytes of the tensors a step allocates, the likeliest culprits first."""
    b, s, h = setup.micro_batch, setup.sequence // setup.context, shape.hidden
    t = setup.tensor
    tokens = b * s
    vocab = setup.pad_vocab or -(-shape.vocab // t) * t
    logits = tokens * vocab // t
    yield "fp32 logits (or their log-softmax, or its gradient)", "b s V/t x 4", logits * 4
    yield "logits in half precision", "b s V/t x 2", logits * 2
    shifted = b * (s - 1) * vocab // t
    yield "fp32 logits without the last position", "b (s-1) V/t x 4", shifted * 4
    scores = b * shape.heads * s * s // t
    if setup.attention is not Attention.FLASH:
        yield "attention scores in fp32", "b a s s/t x 4", scores * 4
        yield "attention scores in half precision", "b a s s/t x 2", scores * 2
        yield "attention mask in fp32", "b s s x 4", b * s * s * 4
        yield "attention mask in half precision", "b s s x 2", b * s * s * 2
    width = setup.compute_bytes
    if shape.ffn:
        yield "MLP intermediate", f"b s f/t x {width}", tokens * shape.ffn // t * width
        yield "MLP intermediate in fp32", "b s f/t x 4", tokens * shape.ffn // t * 4
        if shape.gated:
            yield "fused gate and up", f"b s 2f/t x {width}", tokens * 2 * shape.ffn // t * width
    if shape.experts:
        rows = tokens * shape.experts_per_token
        yield "expert intermediate", f"b s k f_e x {width}", rows * shape.expert_ffn * width
        yield "tokens sent to experts", f"b s k h x {width}", rows * h * width
    yield "hidden states", f"b s h x {width}", tokens * h * width
    yield "hidden states in fp32", "b s h x 4", tokens * h * 4
    fused = shape.query_width + 2 * shape.kv_width
    yield "query-key-value", f"b s (q+2k)/t x {width}", tokens * fused // t * width
    yield from _list_state_tensors(shape, setup, vocab // t * h)


def _list_state_tensors(
    shape: Architecture, setup: TrainingSetup, table: int
) -> Iterator[tuple[str, str, int]]:
    h, t = shape.hidden, setup.tensor
    ranks = setup.data * setup.context
    for width, label in ((4, "fp32"), (2, "half precision")):
        yield (
            f"embedding or output matrix (or its gradient) in {label}",
            f"V h/t x {width}",
            (table * width),
        )
        yield f"one MLP matrix in {label}", f"h f/t x {width}", h * shape.ffn // t * width
        if shape.experts:
            yield (
                f"one layer's experts in {label}",
                f"E 2 h f_e x {width}",
                (shape.experts * (shape.mlp_matrices - 1) * h * shape.expert_ffn * width),
            )
        whole = shape.parameters // (t * setup.pipeline)
        yield f"all parameters of the rank, flat, in {label}", f"N/(t p) x {width}", whole * width
        if ranks > 1:
            yield (
                f"one rank's shard of all parameters in {label}",
                f"N/(t p d) x {width}",
                (whole // ranks * width),
            )
        if setup.sharding in (Sharding.FSDP, Sharding.ZERO3):
            yield (
                f"one unsharded layer in {label}",
                f"layer x {width}",
                (shape.dense_layer_parameters * width),
            )
