"""Which tensors does one eager transformer layer, and the head with its loss, keep and allocate?

The operations are those of the Hugging Face modules (modeling_llama.py, modeling_gpt2.py and kin) as
autograd records them; docs/memory.md lists them. T below is tokens, b x s.
"""

from __future__ import annotations

from dataclasses import dataclass

from firstfault_tools.memory.architecture import Activation, Architecture, Norm
from firstfault_tools.memory.setup import Attention, TrainingSetup
from firstfault_tools.memory.tape import Span, Tape


@dataclass(frozen=True, slots=True)
class EagerTypes:
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


class EagerBlock:
    """Builds the tapes of one model in one setup."""

    __slots__ = ("_seq", "_setup", "_shape", "_tape", "_tokens", "_types")

    def __init__(self, shape: Architecture, setup: TrainingSetup, types: EagerTypes) -> None:
        self._shape = shape
        self._setup = setup
        self._types = types
        self._seq = setup.sequence // setup.context
        self._tokens = setup.micro_batch * self._seq
        self._tape = Tape(0)

    def replay_layer(self, *, moe: bool = False) -> Span:
        """One decoder layer, input and output in the residual's width."""
        shape, tokens, types = self._shape, self._tokens, self._types
        stream = tokens * shape.hidden * types.residual
        self._tape = tape = Tape(stream, "layer input")
        normed = self._norm(0)
        branch = self._attention(normed)
        if shape.parallel_block:
            second = self._mlp(normed)
            middle = tape.run("attention residual", (0, branch), stream, passes=0)
            tape.run("layer output", (middle, second), stream, passes=0)
            return tape.replay()
        branch = self._drop(branch)
        middle = tape.run("attention residual", (0, branch), stream, passes=0)
        normed = self._norm(middle)
        branch = self._experts(normed) if moe else self._mlp(normed)
        branch = self._drop(branch)
        tape.run("layer output", (middle, branch), stream, passes=0)
        return tape.replay()

    def replay_head(self) -> Span:
        """Final norm, output projection, fp32 logits, log-softmax, loss."""
        shape, tokens, types = self._shape, self._tokens, self._types
        self._tape = tape = Tape(tokens * shape.hidden * types.residual, "last hidden state")
        normed = self._norm(0)
        elements = tokens * shape.vocab
        logits = self._linear(normed, shape.hidden, shape.vocab, "logits", adapter=False)
        if self._setup.loss_fused:
            tape.run("fused loss", (logits,), 4, save=(logits,), back_scratch=tape.size(logits))
            return tape.replay(4)
        upcast = logits
        if types.compute != 4:
            upcast = tape.run("fp32 logits", (logits,), elements * 4)
        scores = tape.run("log-softmax of the logits", (upcast,), elements * 4, save_output=True)
        # Logits and last hidden state are still named by the caller while the loss is computed.
        loss = tape.run("loss", (scores,), 4)
        tape.run("model output", (loss, logits, normed), 4, passes=0)
        return tape.replay(4)

    def _cast_in(self, tensor: int, width: int, name: str) -> int:
        """The input in compute width: a copy where autocast makes one (activations are not cached)."""
        size = self._tokens * width * self._types.compute
        if self._tape.size(tensor) == size:
            return tensor
        return self._tape.run(f"{name} input", (tensor,), size)

    def _linear(
        self,
        tensor: int,
        inside: int,
        outside: int,
        name: str,
        *,
        adapter: bool = True,
        bias: bool = False,
    ) -> int:
        types, tokens, tape = self._types, self._tokens, self._tape
        elements = inside * outside
        ready = self._cast_in(tensor, inside, name)
        extra = elements * types.compute if types.cast and not types.quantized else 0
        gradient = scratch = 0
        trains = not types.frozen
        if trains:
            held = elements * types.gradient
            scratch = elements * types.compute if types.cast else 0
            if types.keeps_gradients:
                gradient = held
            else:
                scratch += held
        if types.quantized and adapter:
            scratch += elements * types.compute
        out = tape.run(
            name,
            (ready,),
            tokens * outside * types.compute,
            save=(ready,) if trains else (),
            saved_bytes=extra,
            scratch=elements * types.compute if types.quantized and adapter else 0,
            weight_gradient=gradient,
            back_scratch=scratch,
        )
        if extra:
            tape.add_cast(extra)
        if types.frozen and types.lora_rank and adapter:
            return self._adapter(ready, out, inside, outside, name)
        return out

    def _adapter(self, tensor: int, base: int, inside: int, outside: int, name: str) -> int:
        """PEFT keeps adapters in fp32 and casts their input to it, unless autocast casts it back."""
        types, tokens, tape = self._types, self._tokens, self._tape
        width = types.compute if types.cast else 4
        if tape.size(tensor) != tokens * inside * width:
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
        scaled = tape.run(f"{name} adapter scaled", (up,), tokens * outside * width)
        mixed = tape.run(f"{name} with adapter", (base, scaled), tokens * outside * width, passes=0)
        if width == types.compute:
            return mixed
        return tape.run(name, (mixed,), tokens * outside * types.compute)

    def _norm(self, tensor: int) -> int:
        shape, tokens, types, tape = self._shape, self._tokens, self._types, self._tape
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
        return self._rms_norm(tensor, elements, tokens, types.residual)

    def _rms_norm(self, tensor: int, elements: int, rows: int, width: int) -> int:
        """to(fp32), x * rsqrt(mean(x^2)), back, times the weight: keeps the fp32 input and the
        normalised value, each once."""
        tape = self._tape
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
        if width != 4:
            normed = tape.run("normalised", (normed,), elements * width)
        keep = () if self._types.frozen else (normed,)
        return tape.run(
            "norm output", (normed,), elements * width, save=keep, back_scratch=elements * width
        )

    def _drop(self, tensor: int) -> int:
        """Hidden dropout keeps a one-byte mask."""
        if not self._setup.dropout:
            return tensor
        size = self._tape.size(tensor)
        elements = self._tokens * self._shape.hidden
        return self._tape.run("dropout", (tensor,), size, saved_bytes=elements)

    def _attention(self, normed: int) -> int:
        shape, tokens, types = self._shape, self._tokens, self._types
        h, qw, kw = shape.hidden, shape.query_width, shape.kv_width
        if shape.fused_qkv:
            fused = self._linear(normed, h, qw + 2 * kw, "query-key-value")
            query = key = value = fused
        else:
            query = self._linear(normed, h, qw, "query")
            key = self._linear(normed, h, kw, "key")
            value = self._linear(normed, h, kw, "value")
        if shape.qk_norm:
            query = self._rms_norm(query, tokens * qw, tokens * shape.heads, types.residual)
            key = self._rms_norm(key, tokens * kw, tokens * shape.kv_heads, types.residual)
        if not shape.positions:
            query = self._rotate(query, qw) if not shape.fused_qkv else query
            key = self._rotate(key, kw) if not shape.fused_qkv else key
        if shape.fused_qkv and not shape.positions:
            query = key = value = self._rotate(query, qw + 2 * kw)
        if self._setup.attention is Attention.EAGER:
            mixed = self._score_matrix(query, key, value)
        else:
            mixed = self._fused_attention(query, key, value)
        return self._linear(mixed, qw, h, "attention output")

    def _rotate(self, tensor: int, width: int) -> int:
        """x cos + rotate(x) sin in the residual's width; keeps cos and sin only."""
        size = self._tokens * width * self._types.residual
        return self._tape.run("rotated", (tensor,), size, scratch=2 * size, back_scratch=2 * size)

    def _fused_attention(self, query: int, key: int, value: int) -> int:
        """Flash kernels keep q, k, v, the output and one fp32 log-sum-exp a head and token."""
        shape, tokens, types, tape = self._shape, self._tokens, self._types, self._tape
        qw, kw = shape.query_width, shape.kv_width
        grouped = shape.kv_heads != shape.heads
        if types.compute == 4 and grouped and self._setup.attention is Attention.SDPA:
            # Neither flash (fp32) nor the memory-efficient kernel (grouped heads) takes this: the
            # math path writes the scores out.
            return self._math_attention(query, key, value)
        out_size = tokens * qw * types.compute
        if query == key:
            inputs: tuple[int, ...] = (query,)
            save: tuple[int, ...] = (query,)
        else:
            query = self._cast_in(query, qw, "attention query")
            key = self._cast_in(key, kw, "attention key")
            value = self._cast_in(value, kw, "attention value")
            inputs = save = (query, key, value)
        rows = tokens * shape.heads
        wide = 2 * out_size if grouped else 0
        return tape.run(
            "attention",
            inputs,
            out_size,
            save=save,
            save_output=True,
            saved_bytes=4 * rows,
            back_scratch=tokens * qw * 4 + 4 * rows + wide,
        )

    def _repeated(self, tensor: int, name: str) -> int:
        """Keys or values copied out to all heads, or made contiguous, for a batched matmul."""
        size = self._tokens * self._shape.query_width * self._types.compute
        return self._tape.run(name, (tensor,), size)

    def _score_matrix(self, query: int, key: int, value: int) -> int:
        shape, types, tape = self._shape, self._types, self._tape
        scores = self._tokens * self._seq * shape.heads
        if query == key:
            third = self._tokens * shape.query_width * types.compute
            split = tape.run("query-key-value split", (query,), 0)
            query = tape.run("attention query", (split,), third)
            key = tape.run("attention key", (split,), third)
            value = tape.run("attention value", (split,), third)
        else:
            query = self._cast_in(query, shape.query_width, "attention query")
            key = self._repeated(key, "repeated keys")
            value = self._repeated(value, "repeated values")
        half = scores * types.compute
        raw = tape.run("attention scores", (query, key), half, save=(query, key))
        scaled = tape.run("scaled scores", (raw,), half)
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
            self._tokens * shape.query_width * types.compute,
            save=(weights, value),
        )
        return tape.run("attention", (mixed,), tape.size(mixed))

    def _math_attention(self, query: int, key: int, value: int) -> int:
        """aten::_scaled_dot_product_attention_math on fp32 inputs."""
        shape, types, tape = self._shape, self._types, self._tape
        scores = self._tokens * self._seq * shape.heads * types.compute
        query = tape.run("scaled query", (query,), self._tokens * shape.query_width * types.compute)
        key = self._repeated(key, "repeated keys")
        key = self._repeated(key, "scaled keys")
        value = self._repeated(value, "repeated values")
        raw = tape.run("attention scores", (query, key), scores, save=(query, key))
        weights = tape.run("attention softmax", (raw,), scores, save_output=True)
        mixed = tape.run("attention mix", (weights, value), tape.size(query), save=(weights, value))
        return tape.run("attention", (mixed,), tape.size(mixed))

    def _mlp(self, normed: int) -> int:
        shape = self._shape
        h, f = shape.hidden, shape.ffn
        if shape.gated:
            gate = self._linear(normed, h, f, "gate projection")
            active = self._activate(gate, f, self._tokens)
            up = self._linear(normed, h, f, "up projection")
            product = self._tape.run(
                "gated product", (active, up), self._tape.size(up), save=(active, up)
            )
        else:
            product = self._activate(self._linear(normed, h, f, "up projection"), f, self._tokens)
        return self._linear(product, f, h, "down projection")

    def _activate(self, tensor: int, width: int, rows: int) -> int:
        types, tape, shape = self._types, self._tape, self._shape
        elements = rows * width
        size = tape.size(tensor)
        if shape.activation is not Activation.GELU_NEW:
            squared = shape.activation is Activation.SQUARED_RELU
            return tape.run(
                "activation", (tensor,), size, save=(tensor,), saved_bytes=size if squared else 0
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

    def _experts(self, normed: int) -> int:
        """Routed experts as grouped matmuls over T x k rows sorted by expert."""
        shape, types, tape = self._shape, self._types, self._tape
        tokens, rows = self._tokens, self._tokens * shape.experts_per_token
        h, f = shape.hidden, shape.expert_ffn
        self._linear(normed, h, shape.experts, "router", adapter=False)
        sent = tape.run("tokens sorted by expert", (normed,), rows * h * types.residual)
        if types.residual != types.compute:
            sent = tape.run("expert input", (sent,), rows * h * types.compute)
        inner = f * (2 if shape.gated else 1)
        first = self._grouped(sent, h * inner, rows * inner, "expert gate and up")
        if shape.gated:
            # gate and up are views of one tensor: their gradients meet in a concatenation.
            part = rows * f * types.compute
            active = tape.run("expert activation", (first,), part, save=(first,), back_scratch=part)
            product = tape.run(
                "expert product", (active,), part, save=(active, first), back_scratch=part
            )
        else:
            product = self._activate(first, f, rows)
        out = self._grouped(product, f * h, rows * h, "expert down")
        weighted = tape.run("weighted expert output", (out,), rows * h * 4, save=(out,))
        ordered = tape.run("expert output in token order", (weighted,), rows * h * 4)
        total = tape.run("expert sum", (ordered,), tokens * h * 4)
        if types.residual != 4:
            total = tape.run("expert sum", (total,), tokens * h * types.residual)
        if shape.shared_expert_ffn:
            shared = self._shared_expert(normed)
            total = tape.run("with shared expert", (total, shared), tape.size(total), passes=0)
        return total

    def _grouped(self, tensor: int, elements: int, outside: int, name: str) -> int:
        types, tape = self._types, self._tape
        elements *= self._shape.experts
        extra = elements * types.compute if types.cast else 0
        trains = not types.frozen
        gradient = elements * types.gradient if trains and types.keeps_gradients else 0
        scratch = 0
        if trains:
            scratch = elements * types.compute if types.cast else 0
            scratch += 0 if types.keeps_gradients else elements * types.gradient
        out = tape.run(
            name,
            (tensor,),
            outside * types.compute,
            save=(tensor,) if trains else (),
            saved_bytes=extra,
            weight_gradient=gradient,
            back_scratch=scratch,
        )
        if extra:
            tape.add_cast(extra)
        return out

    def _shared_expert(self, normed: int) -> int:
        shape, tape = self._shape, self._tape
        h, f = shape.hidden, shape.shared_expert_ffn
        gate = self._linear(normed, h, f, "shared expert gate")
        active = tape.run("shared expert activation", (gate,), tape.size(gate), save=(gate,))
        up = self._linear(normed, h, f, "shared expert up")
        product = tape.run("shared expert product", (active, up), tape.size(up), save=(active, up))
        return self._linear(product, f, h, "shared expert down")
