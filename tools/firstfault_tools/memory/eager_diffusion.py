"""Which tensors does a block of a diffusion transformer keep? FLUX, SD3, Wan and Qwen-Image as diffusers run them.

Modules: diffusers/models/transformers/transformer_{flux,sd3,wan,qwenimage}.py, attention.py (JointTransformerBlock),
normalization.py. Latents and text stand in one stream or in two that meet in attention; norms without weights are
scaled and shifted by what the time embedding says. `rows` below are tokens of a stream, batch included.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache, partial
from typing import Any

from firstfault_tools.dataclass import dataclass
from firstfault_tools.memory.architecture import Architecture, Diffusion, DiffusionKind
from firstfault_tools.memory.eager_types import EagerTypes
from firstfault_tools.memory.setup import LayerSetup, TrainingSetup
from firstfault_tools.memory.tape import Span, Tape

ADAPTED = ("to_q", "to_k", "to_v", "to_out.0")
"""What diffusers' training scripts adapt where nothing is named (examples/text_to_image)."""


@dataclass(frozen=True, slots=True)
class Matrix:
    """One linear layer of a block, by its module's name."""

    name: str
    inside: int
    outside: int


@dataclass(frozen=True, slots=True)
class Stream:
    """One line of tokens in a block: its handle, how many rows, the prefix of its modules' names."""

    tensor: int
    rows: int
    text: bool


def is_adapted(targets: str, name: str) -> bool:
    """Whether an adapter sits on this module: PEFT takes a target as the end of a module's name."""
    wanted = ADAPTED if targets == "all-linear" else tuple(t.strip() for t in targets.split(","))
    return any(name == target or name.endswith("." + target) for target in wanted)


def count_text(diffusion: Diffusion, tokens: int) -> int:
    """Text tokens that stand in a stream beside the latents; Wan's text is only looked at."""
    return 0 if diffusion.kind is DiffusionKind.WAN else tokens


def size_inputs(shape: Architecture, setup: TrainingSetup) -> int:
    """Bytes of a batch that stands through the step: latents, text states, and the position table."""
    diffusion = shape.diffusion
    if diffusion is None:
        return 0
    sample = setup.sequence * diffusion.channels + setup.text_tokens * diffusion.text_width
    return setup.weight_bytes * setup.micro_batch * sample


def replay_diffusion(
    shape: Architecture, layer: LayerSetup, types: EagerTypes
) -> list[tuple[Span, int]]:
    """Runs of like blocks in order."""
    return [(span, count) for _, span, count in _replay_blocks(shape, layer, types)]


def _replay_blocks(
    shape: Architecture, layer: LayerSetup, types: EagerTypes
) -> Iterator[tuple[_Block, Span, int]]:
    """One block of each kind in order, replayed, with how many there are."""
    diffusion = shape.diffusion
    assert diffusion is not None
    joint, last = (_Block.replay_joint, int(diffusion.kind is DiffusionKind.SD3))
    plain = shape.layers - diffusion.singles - diffusion.dual - last
    kinds = (
        (partial(joint, dual=True), diffusion.dual),
        (_Block.replay_cross if diffusion.kind is DiffusionKind.WAN else joint, plain),
        (partial(joint, last=True), last),
        (_Block.replay_single, diffusion.singles),
    )
    first = types.frozen
    for replay, count in kinds:
        if count and first:
            # The patches take no gradient: what stands before the first adapter is not kept.
            block = _Block(shape, layer, types, first=True)
            yield block, replay(block), 1
            count -= 1
            first = False
        if count:
            block = _Block(shape, layer, types)
            yield block, replay(block), count


def replay_diffusion_head(shape: Architecture, layer: LayerSetup, types: EagerTypes) -> Span:
    """Last norm, projection to the patches and their squared error in fp32."""
    diffusion = shape.diffusion
    assert diffusion is not None
    block = _Block(shape, layer, types)
    tape = block.begin(block.rows)
    wide = diffusion.kind is DiffusionKind.WAN
    normed = block.half(block.modulated(0, block.rows, wide=wide), block.rows)
    out = block.linear(normed, block.rows, Matrix("proj_out", shape.hidden, diffusion.patch))
    size = 4 * block.rows * diffusion.patch
    if tape.size(out) != size:
        out = block.run("fp32 output", (out,), size)
    block.run("squared error", (out,), 4, save=(out,), saved_bytes=size, scratch=size)
    return tape.replay(4)


@lru_cache(maxsize=64)
def list_matrices(shape: Architecture) -> tuple[tuple[Matrix, int], ...]:
    """Every linear layer of the blocks with how often it stands there: what adapters and rounding need."""
    layer = TrainingSetup(sequence=1).layer
    types = EagerTypes(weight=2, compute=2, residual=2, gradient=2, cast=False)
    return tuple(
        (matrix, count)
        for block, _, count in _replay_blocks(shape, layer, types)
        for matrix in block.matrices
    )


class _Block:
    __slots__ = ("diffusion", "live", "matrices", "rows", "setup", "shape", "tape", "text", "types")

    def __init__(
        self, shape: Architecture, setup: LayerSetup, types: EagerTypes, *, first: bool = False
    ) -> None:
        diffusion = shape.diffusion
        assert diffusion is not None
        self.shape, self.setup, self.diffusion = shape, setup, diffusion
        # The patch embedding hands on half precision under autocast, and blocks keep its type.
        self.types = types._replace(residual=types.compute)
        self.rows = setup.micro_batch * setup.sequence
        self.text = setup.micro_batch * count_text(diffusion, setup.text_tokens)
        self.matrices: list[Matrix] = []
        self.live: set[int] = set() if first else {0}
        self.tape = Tape(0)

    def run(
        self, name: str, inputs: tuple[int, ...], size: int, *, save: tuple[int, ...] = (),
        saved_bytes: int = 0, weight_gradient: int = 0, **more: Any,
    ) -> int:  # fmt: skip
        """An operation. What takes no gradient saves nothing: in a frozen model, all before the first adapter."""
        live = (
            not self.types.frozen or bool(weight_gradient) or bool(self.live.intersection(inputs))
        )
        out = self.tape.run(
            name, inputs, size, save=save if live else (), saved_bytes=saved_bytes if live else 0,
            weight_gradient=weight_gradient, **{**more, **({} if live else {"save_output": False})},
        )  # fmt: skip
        if live:
            self.live.add(out)
        return out

    def size(self, rows: int, width: int) -> int:
        """Bytes of activations in the residual's type."""
        return rows * width * self.types.residual

    def replay_joint(self, *, dual: bool = False, last: bool = False) -> Span:
        """Latents and text in a stream each, one attention over both. last: SD3's, which lets the text go."""
        h, tape, kind = self.shape.hidden, self.begin(self.rows), self.diffusion.kind
        streams = (
            Stream(0, self.rows, False),
            Stream(self.run("text", (0,), self.size(self.text, h)), self.text, True),
        )
        parts = 9 if dual else 6
        self.modulation("norm1.linear", parts)
        self.modulation("norm1_context.linear", 2 if last else 6)
        norms = [self.norm(stream.tensor, stream.rows) for stream in streams]
        normed = [self.modulate(norm) for norm in norms]
        second = self.modulate(norms[0]) if dual else 0
        mixed = self.joint_attention(streams, normed)
        if self.types.cast and kind in (DiffusionKind.SD3, DiffusionKind.QWEN_IMAGE):
            # The result goes to the type of the queries, which their written-out norm left in fp32.
            mixed = self.run("attention in fp32", (mixed,), 4 * (self.rows + self.text) * h)
        ends = []
        for stream, name in zip(streams, ("attn.to_out.0", "attn.to_add_out"), strict=True):
            if last and stream.text:
                continue
            part = self.part_of(mixed, stream.rows)
            view = part == mixed and not self.types.cast
            out = self.linear(part, stream.rows, Matrix(name, h, h), view=view)
            middle = self.residual(stream.tensor, self.gated(out))
            if dual and not stream.text:
                middle = self.residual(middle, self.gated(self.second_attention(second)))
            ends.append(self.feed_forward(middle, stream))
        self.run("block output", tuple(ends), 0, passes=0)
        return tape.replay(self.size(self.rows + self.text, h))

    def replay_single(self) -> Span:
        """FLUX's later blocks: both lines in one stream, attention and MLP side by side."""
        h, rows, compute = self.shape.hidden, self.rows + self.text, self.types.compute
        tape = self.begin(rows)
        stream = self.run("joined stream", (0,), self.size(rows, h))
        self.modulation("norm.linear", 3)
        normed = self.modulated(stream, rows)
        wide = self.linear(normed, rows, Matrix("proj_mlp", h, self.shape.ffn))
        active = self.run("activation", (wide,), tape.size(wide), save=(wide,))
        query, key, value = (
            self.linear(normed, rows, Matrix(f"attn.to_{name}", h, h)) for name in "qkv"
        )
        query, key = (self.rotated(self.head_norm(part, rows)) for part in (query, key))
        mixed = self.attention(query, key, value, rows)
        both = self.run("attention and MLP", (mixed, active), rows * (h + self.shape.ffn) * compute)
        out = self.linear(both, rows, Matrix("proj_out", h + self.shape.ffn, h))
        self.residual(stream, self.gated(out))
        return tape.replay()

    def replay_cross(self) -> Span:
        """Wan's blocks: self-attention, attention to the text, MLP; norms and gates in fp32."""
        h, rows, tape = self.shape.hidden, self.rows, self.begin(self.rows)
        text = self.setup.micro_batch * self.setup.text_tokens
        states = self.run("text", (), self.size(text, h))
        normed = self.half(self.modulated(0, rows, wide=True), rows)
        query, key, value = (
            self.linear(normed, rows, Matrix(f"attn1.to_{name}", h, h)) for name in "qkv"
        )
        query, key = (self.rotated(self.head_norm(part, rows)) for part in (query, key))
        out = self.linear(
            self.attention(query, key, value, rows), rows, Matrix("attn1.to_out.0", h, h)
        )
        middle = self.residual(0, self.gated(out, wide=True), wide=True)
        normed = middle
        if self.diffusion.cross_norm:
            normed = self.half(self.norm(middle, rows, wide=True), rows)
        query = self.head_norm(self.linear(normed, rows, Matrix("attn2.to_q", h, h)), rows)
        key = self.head_norm(self.linear(states, text, Matrix("attn2.to_k", h, h)), text)
        value = self.linear(states, text, Matrix("attn2.to_v", h, h))
        mixed = self.attention(query, key, value, rows, text)
        middle = self.residual(middle, self.linear(mixed, rows, Matrix("attn2.to_out.0", h, h)))
        normed = self.half(self.modulated(middle, rows, wide=True), rows)
        out = self.mlp(normed, rows, "ffn")
        fp32 = self.run("MLP output in fp32", (out,), 4 * rows * h)
        self.residual(middle, self.gated(fp32, wide=True), wide=True)
        return tape.replay()

    def begin(self, rows: int) -> Tape:
        """A fresh tape whose input is the stream."""
        self.tape = Tape(self.size(rows, self.shape.hidden), "block input")
        return self.tape

    def joint_attention(self, streams: tuple[Stream, ...], normed: list[int]) -> int:
        """Queries, keys and values of both streams put together, then attention."""
        h, tape, rows = self.shape.hidden, self.tape, self.rows + self.text
        flux = self.diffusion.kind is DiffusionKind.FLUX
        turns = self.diffusion.kind is not DiffusionKind.SD3
        joined = []
        for name in "qkv":
            parts = []
            for stream, ready in zip(streams, normed, strict=True):
                named = f"attn.add_{name}_proj" if stream.text else f"attn.to_{name}"
                part = self.linear(ready, stream.rows, Matrix(named, h, h))
                if name != "v" and self.diffusion.head_norm:
                    part = self.head_norm(part, stream.rows)
                    if turns and not flux:
                        part = self.rotated(part)
                parts.append(part)
            size = max(tape.size(part) * rows // stream.rows for part, stream in zip(parts, streams, strict=True))  # fmt: skip
            whole = self.run(f"joined {name}", tuple(parts), size)
            joined.append(self.rotated(whole) if flux and name != "v" else whole)
        query, key, value = joined
        return self.attention(query, key, value, rows)

    def second_attention(self, normed: int) -> int:
        """SD3.5's attention of the latents to themselves, on the same norm scaled and shifted once more."""
        h, rows = self.shape.hidden, self.rows
        query, key, value = (
            self.linear(normed, rows, Matrix(f"attn2.to_{name}", h, h)) for name in "qkv"
        )
        query, key = (self.head_norm(part, rows) for part in (query, key))
        mixed = self.attention(query, key, value, rows)
        return self.linear(mixed, rows, Matrix("attn2.to_out.0", h, h))

    def feed_forward(self, middle: int, stream: Stream) -> int:
        """The second half of a stream's block."""
        normed = self.modulated(middle, stream.rows)
        name = "ff_context" if stream.text else "ff"
        return self.residual(middle, self.gated(self.mlp(normed, stream.rows, name)))

    def mlp(self, normed: int, rows: int, name: str) -> int:
        h, f = self.shape.hidden, self.shape.ffn
        wide = self.linear(normed, rows, Matrix(f"{name}.net.0.proj", h, f))
        active = self.run("activation", (wide,), self.tape.size(wide), save=(wide,))
        return self.linear(active, rows, Matrix(f"{name}.net.2", f, h))

    def linear(self, tensor: int, rows: int, matrix: Matrix, *, view: bool = False) -> int:
        """A linear layer and its adapter. view: the input is a part of a larger tensor that is kept whole."""
        types, tape = self.types, self.tape
        self.matrices.append(matrix)
        size = rows * matrix.inside * types.compute
        if not view and tape.size(tensor) != size:
            tensor = self.run(f"{matrix.name} input", (tensor,), size)
        elements = matrix.inside * matrix.outside
        trains = not types.frozen
        held = elements * types.gradient if trains else 0
        cast = elements * types.compute if types.cast else 0
        out = self.run(
            matrix.name, (tensor,), rows * matrix.outside * types.compute,
            save=(tensor,) if trains else (), saved_bytes=cast,
            weight_gradient=held if types.keeps_gradients else 0,
            back_scratch=(cast if trains else 0) + (0 if types.keeps_gradients else held),
        )  # fmt: skip
        if cast:
            tape.add_cast(cast)
        if types.frozen and types.lora_rank and is_adapted(self.setup.lora_targets, matrix.name):
            return self._adapter(tensor, out, rows, matrix)
        return out

    def _adapter(self, tensor: int, base: int, rows: int, matrix: Matrix) -> int:
        """diffusers puts adapters in the base's type, so nothing is cast."""
        rank, width = self.types.lora_rank, self.types.compute
        low = self.run(
            f"{matrix.name} adapter A", (tensor,), rows * rank * width, save=(tensor,),
            weight_gradient=matrix.inside * rank * self.types.weight,
        )  # fmt: skip
        out = rows * matrix.outside * width
        up = self.run(
            f"{matrix.name} adapter B", (low,), out, save=(low,),
            weight_gradient=matrix.outside * rank * self.types.weight,
        )  # fmt: skip
        scaled = self.run(f"{matrix.name} adapter scaled", (up,), out)
        return self.run(f"{matrix.name} with adapter", (base, scaled), out, passes=0)

    def modulation(self, name: str, parts: int) -> None:
        """Shifts, scales and gates out of the time embedding: small tensors, a large matrix."""
        h, batch = self.shape.hidden, self.setup.micro_batch
        source = self.run("time embedding", (), batch * h * self.types.compute)
        self.linear(source, batch, Matrix(name, h, parts * h))

    def norm(self, tensor: int, rows: int, *, wide: bool = False) -> int:
        """A layer norm in one kernel. wide: fp32 in and out, as autocast has it too."""
        tape, size = self.tape, self.tape.size(tensor)
        if wide or self.types.cast:
            size = 4 * rows * self.shape.hidden
            if tape.size(tensor) != size:
                tensor = self.run("norm input in fp32", (tensor,), size)
        return self.run("norm output", (tensor,), size, save=(tensor,), saved_bytes=8 * rows)

    def modulated(self, tensor: int, rows: int, *, wide: bool = False) -> int:
        """Norm, then scale and shift."""
        return self.modulate(self.norm(tensor, rows, wide=wide))

    def modulate(self, normed: int) -> int:
        """Times 1 + scale, plus shift: the scale's gradient needs the normed value."""
        size = self.tape.size(normed)
        trains = not self.types.frozen
        scaled = self.run(
            "scaled", (normed,), size, save=(normed,) if trains else (),
            back_scratch=size if trains else 0,
        )  # fmt: skip
        return self.run("shifted", (scaled,), size, passes=0)

    def gated(self, tensor: int, *, wide: bool = False) -> int:
        """Times the gate, whose gradient needs the branch's result. wide: by a gate in fp32."""
        trains = not self.types.frozen
        size = 4 * self.rows * self.shape.hidden if wide else self.tape.size(tensor)
        return self.run(
            "gated", (tensor,), size, save=(tensor,) if trains else (),
            back_scratch=size if trains else 0,
        )  # fmt: skip

    def residual(self, stream: int, branch: int, *, wide: bool = False) -> int:
        """The sum; in fp32 and back where wide."""
        tape, size = self.tape, self.tape.size(stream)
        if not wide or self.types.residual == 4:
            return self.run("residual", (stream, branch), size, passes=0)
        both = self.run("residual in fp32", (stream, branch), tape.size(branch), passes=0)
        return self.run("residual", (both,), size)

    def half(self, tensor: int, rows: int) -> int:
        """Back from fp32 to the stream's type."""
        size = self.size(rows, self.shape.hidden)
        if self.tape.size(tensor) == size:
            return tensor
        return self.run("normed input", (tensor,), size)

    def head_norm(self, tensor: int, rows: int) -> int:
        """RMS norm of queries or keys: one kernel (FLUX, Wan) or written out (SD3, Qwen-Image)."""
        tape, types, h = self.tape, self.types, self.shape.hidden
        if not self.diffusion.head_norm:
            return tensor
        elements, size = rows * h, tape.size(tensor)
        lines = rows * (1 if self.diffusion.kind is DiffusionKind.WAN else self.shape.heads)
        wide = tensor
        if self.diffusion.kind in (DiffusionKind.FLUX, DiffusionKind.WAN):
            if types.cast:
                # A bf16 input and an fp32 weight: PyTorch 2.11 takes the written-out form, and goes back.
                wide = self.run("query in fp32", (tensor,), 4 * elements)
                normed = self.run("normalised query", (wide,), 4 * elements, save=(wide,), saved_bytes=4 * lines)  # fmt: skip
                keep = () if types.frozen else (normed,)
                scaled = self.run("normed query in fp32", (normed,), 4 * elements, save=keep)
                return self.run("normed query", (scaled,), size)
            return self.run("normed query", (wide,), tape.size(wide), save=(wide,), saved_bytes=4 * lines)  # fmt: skip
        if size != 4 * elements:
            wide = self.run("query in fp32", (tensor,), 4 * elements)
        rate = self.run(
            "query statistics", (wide,), 4 * lines, save=(wide,), save_output=True,
            scratch=4 * elements, back_scratch=12 * elements,
        )  # fmt: skip
        normed = self.run(
            "normalised query", (tensor, rate), 4 * elements, save=(tensor, rate), back_scratch=4 * elements
        )  # fmt: skip
        if types.weight != 4:
            normed = self.run("normalised query", (normed,), size)
        keep = () if types.frozen else (normed,)
        return self.run("normed query", (normed,), tape.size(normed), save=keep)

    def rotated(self, tensor: int) -> int:
        """Rotation in fp32; cosines and sines take no gradient, so nothing is kept."""
        size = self.tape.size(tensor)
        wide = 4 * size // self.types.compute
        return self.run("rotated", (tensor,), size, scratch=3 * wide, back_scratch=3 * wide)

    def attention(self, query: int, key: int, value: int, rows: int, keys: int = 0) -> int:
        """A flash kernel: keeps its inputs in half precision, its output and a number a head and row."""
        tape, compute, h = self.tape, self.types.compute, self.shape.hidden
        ready = []
        for part, length in ((query, rows), (key, keys or rows), (value, keys or rows)):
            if tape.size(part) != length * h * compute:
                part = self.run("attention input", (part,), length * h * compute)
            ready.append(part)
        size = rows * h * compute
        return self.run(
            "attention", tuple(ready), size, save=tuple(ready), save_output=True,
            saved_bytes=4 * rows * self.shape.heads, back_scratch=size,
        )  # fmt: skip

    def part_of(self, mixed: int, rows: int) -> int:
        """One stream's share of the joint result: a copy, but for a batch of one, where it is a view."""
        if self.setup.micro_batch == 1 or self.types.cast:
            return mixed
        return self.run("stream's part", (mixed,), self.size(rows, self.shape.hidden))
