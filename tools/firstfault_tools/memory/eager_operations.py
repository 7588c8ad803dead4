"""Which tensors do the operations of an eager transformer layer keep and allocate?

Matrices with their adapters, norms, activations and scores of attention, as autograd records those of
the Hugging Face modules (modeling_llama.py, modeling_gpt2.py and kin); docs/memory.md lists them. T
below is tokens, b x s.
"""

from __future__ import annotations

from firstfault_tools.memory.architecture import Activation, Architecture, Norm
from firstfault_tools.memory.eager_types import EagerTypes, is_adapted
from firstfault_tools.memory.setup import Attention, LayerSetup
from firstfault_tools.memory.tape import Tape


class EagerOperations:
    """The operations of one model in one setup, each of which runs on a tape."""

    __slots__ = ("seq", "setup", "shape", "tape", "tokens", "types")

    def __init__(self, shape: Architecture, setup: LayerSetup, types: EagerTypes) -> None:
        self.shape = shape
        self.setup = setup
        self.types = types
        self.seq = setup.sequence
        self.tokens = setup.micro_batch * self.seq
        self.tape = Tape(0)

    def cast_in(self, tensor: int, width: int, name: str) -> int:
        """The input in compute width: a copy where autocast makes one (activations are not cached)."""
        size = self.tokens * width * self.types.compute
        if self.tape.size(tensor) == size:
            return tensor
        return self.tape.run(f"{name} input", (tensor,), size)

    def linear(
        self,
        tensor: int,
        inside: int,
        outside: int,
        name: str,
        *,
        adapter: bool = True,
        bias: bool = False,
    ) -> int:
        types, tokens, tape = self.types, self.tokens, self.tape
        elements = inside * outside
        ready = self.cast_in(tensor, inside, name)
        low = self.setup.fp8_bytes if adapter and types.compute == 2 else 0
        dequantised = elements * types.compute if types.quantized and adapter else 0
        gradient, scratch = self._size_backward(elements)
        scratch += dequantised
        # bitsandbytes' 8-bit matmul keeps its input on the node whether the weight trains or not.
        keeps = not types.frozen or (self.setup.quantized_bits == 8 and adapter)
        if low == 1 and keeps:
            # The cast input is kept in its stead; the weight is cast for the moment.
            return tape.run(
                name, (ready,), tokens * outside * types.compute,
                saved_bytes=tokens * inside, scratch=elements, weight_gradient=gradient,
                back_scratch=scratch + tokens * inside * types.compute,
            )  # fmt: skip
        extra = elements * types.compute if types.cast and not types.quantized and not low else 0
        out = tape.run(
            name,
            (ready,),
            tokens * outside * types.compute,
            save=(ready,) if keeps else (),
            saved_bytes=extra,
            scratch=dequantised,
            weight_gradient=gradient,
            back_scratch=scratch,
        )
        if extra:
            tape.add_cast(extra)
        if adapter and self._has_adapter(name):
            return self._adapter(tensor, out, inside, outside, name)
        return out

    def _size_backward(self, elements: int) -> tuple[int, int]:
        """(gradient that is kept, memory for the moment) of a matrix in the backward pass."""
        types = self.types
        if types.frozen:
            return 0, 0
        held = elements * types.gradient
        scratch = elements * types.compute if types.cast else 0
        return (held, scratch) if types.keeps_gradients else (0, scratch + held)

    def _has_adapter(self, name: str) -> bool:
        types = self.types
        return bool(types.frozen and types.lora_rank and is_adapted(self.setup.lora_targets, name))

    def _adapter(self, tensor: int, base: int, inside: int, outside: int, name: str) -> int:
        """PEFT keeps adapters in fp32 and casts their input to it, unless autocast casts it back."""
        types, tokens, tape = self.types, self.tokens, self.tape
        width = types.compute if types.cast else 4
        if types.cast or tape.size(tensor) != tokens * inside * width:
            # Under autocast it goes to fp32 and back, which is a copy of its own.
            tensor = tape.run(f"{name} adapter input", (tensor,), tokens * inside * width)
        rank = types.lora_rank
        low = tape.run(
            f"{name} adapter A",
            (tensor,),
            tokens * rank * width,
            save=(tensor,),
            weight_gradient=inside * rank * 4,
        )
        up = tape.run(
            f"{name} adapter B",
            (low,),
            tokens * outside * width,
            save=(low,),
            weight_gradient=outside * rank * 4,
        )
        if self.setup.dora:
            # peft/tuners/lora/dora.py: the base's result and the adapter's are both kept, each times
            # a magnitude; the whole matrix stands in fp32 four times while its norm is taken.
            whole = 4 * inside * outside * 4
            wide = tokens * outside * width
            base_part = tape.run(
                f"{name} scaled base", (base,), wide, save=(base,), scratch=whole, back_scratch=wide
            )
            up = tape.run(f"{name} magnitude", (up,), wide, save=(up,), back_scratch=wide)
            up = tape.run(f"{name} change", (up, base_part), wide, passes=0)
        scaled = tape.run(f"{name} adapter scaled", (up,), tokens * outside * width)
        mixed = tape.run(f"{name} with adapter", (base, scaled), tokens * outside * width, passes=0)
        if width == types.compute:
            return mixed
        return tape.run(name, (mixed,), tokens * outside * types.compute)

    def norm(self, tensor: int) -> int:
        shape, tokens, types, tape = self.shape, self.tokens, self.types, self.tape
        elements = tokens * shape.hidden
        if shape.norm is Norm.LAYER:
            # One kernel: keeps its input and two fp32 statistics a row.
            return tape.run(
                "norm output",
                (tensor,),
                elements * types.residual,
                save=(tensor,),
                saved_bytes=8 * tokens,
            )
        if shape.norm is Norm.LAYER_WIDE:
            return self._wide_layer_norm(tensor, elements)
        return self.rms_norm(tensor, elements, tokens)

    def _wide_layer_norm(self, tensor: int, elements: int) -> int:
        """(x - mean) twice, once squared, once normalised; the weight in fp32; then back."""
        tape, tokens = self.tape, self.tokens
        size, wide = tape.size(tensor), elements * 4
        if size != wide:
            tensor = tape.run("norm input in fp32", (tensor,), wide)
        first = tape.run("centred", (tensor,), wide)
        rate = tape.run(
            "norm statistics", (first,), 4 * tokens, save=(first,), save_output=True,
            scratch=wide, back_scratch=3 * wide,
        )  # fmt: skip
        second = tape.run("centred again", (tensor,), wide)
        normed = tape.run(
            "normalised", (second, rate), wide, save=(second, rate), back_scratch=wide
        )
        keep = () if self.types.frozen else (normed,)
        out = tape.run("norm output", (normed,), wide, save=keep, back_scratch=wide)
        return out if size == wide else tape.run("norm output", (out,), size)

    def rms_norm(self, tensor: int, elements: int, rows: int) -> int:
        """to(fp32), x * rsqrt(mean(x^2)), back, times the weight: keeps the fp32 input and the
        normalised value, each once. The weight multiplies before the way back in wide forms."""
        tape = self.tape
        width = tape.size(tensor) // elements
        result = max(width, self.types.weight)
        widely = self.shape.norm in (Norm.RMS_WIDE, Norm.RMS_OFFSET)
        wide = tensor
        if width != 4:
            wide = tape.run("norm input in fp32", (tensor,), elements * 4)
        # pow's backward stands four fp32 tensors up at once, one of which is its result.
        rate = tape.run(
            "norm statistics",
            (wide,),
            4 * rows,
            save=(wide,),
            save_output=True,
            scratch=elements * 4,
            back_scratch=elements * 4 * 3,
        )
        normed = tape.run(
            "normalised",
            (wide, rate),
            elements * 4,
            save=(wide, rate),
            back_scratch=elements * 4,
        )
        if self.shape.norm is Norm.RMS_T5 and width != 4:
            # T5 multiplies the half-precision input, which is kept beside its fp32 copy.
            tape.run("norm input kept", (tensor,), 0, save=(tensor,))
        if width != 4 and not widely:
            normed = tape.run("normalised", (normed,), elements * width)
        keep = () if self.types.frozen else (normed,)
        if widely:
            result = 4
        out = tape.run(
            "norm output", (normed,), elements * result, save=keep, back_scratch=elements * result
        )
        if widely and width != 4:
            out = tape.run("norm output", (out,), elements * width)
        return out

    def drop(self, tensor: int) -> int:
        """Hidden dropout keeps a one-byte mask."""
        if not self.setup.dropout:
            return tensor
        size = self.tape.size(tensor)
        elements = self.tokens * self.shape.hidden
        return self.tape.run("dropout", (tensor,), size, saved_bytes=elements)

    def rotate(self, tensor: int, width: int) -> int:
        """x cos + rotate(x) sin in the residual's width; keeps cos and sin only."""
        size = self.tokens * width * self.types.residual
        return self.tape.run("rotated", (tensor,), size, scratch=2 * size, back_scratch=2 * size)

    def fused_attention(self, query: int, key: int, value: int) -> int:
        """Flash kernels keep q, k, v, the output and one fp32 log-sum-exp a head and token."""
        shape, tokens, types, tape = self.shape, self.tokens, self.types, self.tape
        qw, kw = shape.query_width, shape.kv_width
        grouped = shape.kv_heads != shape.heads
        if types.compute == 4 and grouped and self.setup.attention is Attention.SDPA:
            # Neither flash (fp32) nor the memory-efficient kernel (grouped heads) takes this: the
            # math path writes the scores out.
            return self._math_attention(query, key, value)
        out_size = tokens * qw * types.compute
        if query == key:
            inputs: tuple[int, ...] = (query,)
            save: tuple[int, ...] = (query,)
        else:
            query = self.cast_in(query, qw, "attention query")
            key = self.cast_in(key, kw, "attention key")
            if not shape.fused_qkv:
                # Fused projections hand the value over as a view, so all of their output is kept.
                value = self.cast_in(value, kw, "attention value")
            inputs = save = (query, key, value)
        rows = tokens * shape.heads
        wide = 2 * out_size if grouped else 0
        mixed = tape.run(
            "attention",
            inputs,
            out_size,
            save=save,
            save_output=True,
            saved_bytes=4 * rows,
            back_scratch=tokens * qw * 4 + 4 * rows + wide,
        )
        if shape.joined_rotary:
            # Queries put together by a concatenation stand head by head, and so does the result:
            # the output projection reads a copy in token order.
            mixed = tape.run("attention in token order", (mixed,), out_size)
        return mixed

    def _repeated(self, tensor: int, name: str) -> int:
        """Keys or values copied out to all heads, or made contiguous, for a batched matmul."""
        size = self.tokens * self.shape.query_width * self.types.compute
        return self.tape.run(name, (tensor,), size)

    def score_matrix(self, query: int, key: int, value: int) -> int:
        shape, types, tape = self.shape, self.types, self.tape
        scores = self.tokens * self.seq * shape.heads
        if query == key:
            third = self.tokens * shape.query_width * types.compute
            split = tape.run("query-key-value split", (query,), 0)
            query = tape.run("attention query", (split,), third)
            key = tape.run("attention key", (split,), third)
            value = tape.run("attention value", (split,), third)
        else:
            query = self.cast_in(query, shape.query_width, "attention query")
            grouped = shape.kv_heads != shape.heads
            key = (
                self._repeated(key, "repeated keys")
                if grouped
                else self.cast_in(key, shape.kv_width, "attention key")
            )
            value = (
                self._repeated(value, "repeated values")
                if grouped
                else self.cast_in(value, shape.kv_width, "attention value")
            )
        half = scores * types.compute
        raw = tape.run("attention scores", (query, key), half, save=(query, key))
        scaled = tape.run("scaled scores", (raw,), half)
        if shape.score_cap:
            scaled = tape.run("divided scores", (scaled,), half)
            scaled = tape.run("capped scores", (scaled,), half, save_output=True)
            scaled = tape.run("scaled scores", (scaled,), half)
        masked = tape.run("masked scores", (scaled,), scores * types.residual)
        wide = 4 if shape.softmax_upcast or types.residual == 4 else types.compute
        if wide != types.residual:
            masked = tape.run("fp32 scores", (masked,), scores * wide)
        weights = tape.run("attention softmax", (masked,), scores * wide, save_output=True)
        if wide != types.compute:
            weights = tape.run("attention weights", (weights,), half)
        mixed = tape.run(
            "attention mix",
            (weights, value),
            self.tokens * shape.query_width * types.compute,
            save=(weights, value),
        )
        return tape.run("attention", (mixed,), tape.size(mixed))

    def _math_attention(self, query: int, key: int, value: int) -> int:
        """aten::_scaled_dot_product_attention_math on fp32 inputs."""
        shape, types, tape = self.shape, self.types, self.tape
        scores = self.tokens * self.seq * shape.heads * types.compute
        query = tape.run("scaled query", (query,), self.tokens * shape.query_width * types.compute)
        key = self._repeated(key, "repeated keys")
        key = self._repeated(key, "scaled keys")
        value = self._repeated(value, "repeated values")
        raw = tape.run("attention scores", (query, key), scores, save=(query, key))
        weights = tape.run("attention softmax", (raw,), scores, save_output=True)
        mixed = tape.run("attention mix", (weights, value), tape.size(query), save=(weights, value))
        return tape.run("attention", (mixed,), tape.size(mixed))

    def activate(self, tensor: int, width: int, rows: int) -> int:
        types, tape, shape = self.types, self.tape, self.shape
        elements = rows * width
        size = tape.size(tensor)
        if shape.activation is not Activation.GELU_NEW:
            if shape.activation is Activation.RELU:
                # Its backward reads the result, which the next matmul keeps anyway.
                return tape.run("activation", (tensor,), size, save_output=True)
            if shape.activation is not Activation.SQUARED_RELU:
                return tape.run("activation", (tensor,), size, save=(tensor,))
            # The square keeps the other's result; pow is an fp32 operation under autocast.
            wide = elements * (4 if types.cast else types.compute)
            positive = tape.run("positive part", (tensor,), size, save_output=True)
            if wide != size:
                positive = tape.run("positive part in fp32", (positive,), wide)
            return tape.run(
                "activation", (positive,), wide, save=(positive,), back_scratch=2 * wide
            )
        # 0.5 x (1 + tanh(c (x + 0.044715 x^3))): pow is an fp32 operation under autocast, and
        # everything after it follows.
        wide = 4 if types.cast else types.compute
        half = tape.run("half of the activation input", (tensor,), size)
        cube_in = tensor
        if size != elements * wide:
            cube_in = tape.run("activation input in fp32", (tensor,), elements * wide)
        inner = tape.run(
            "activation argument",
            (tensor, cube_in),
            elements * wide,
            save=(cube_in,),
            scratch=elements * wide,
            back_scratch=2 * elements * wide,
        )
        tanh = tape.run("activation tanh", (inner,), elements * wide, save_output=True)
        shifted = tape.run("one plus tanh", (tanh,), elements * wide, passes=0)
        return tape.run(
            "activation",
            (half, shifted),
            elements * wide,
            save=(half, shifted),
            back_scratch=elements * wide - tape.size(half),
        )
