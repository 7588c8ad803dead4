"""Which tensors does one eager transformer layer, and the head with its loss, keep and allocate?"""

from __future__ import annotations

from firstfault_tools.memory.architecture import Norm, NormPlace
from firstfault_tools.memory.compiled_block import replay_compiled_head, replay_compiled_layer
from firstfault_tools.memory.eager_experts import run_experts
from firstfault_tools.memory.eager_latent import run_latent_attention
from firstfault_tools.memory.eager_operations import EagerOperations
from firstfault_tools.memory.setup import Attention
from firstfault_tools.memory.tape import Span, Tape


class EagerBlock(EagerOperations):
    """Builds the tapes of one model in one setup."""

    __slots__ = ()

    def replay_layer(self, *, moe: bool = False) -> Span:
        """One decoder layer, input and output in the residual's width."""
        if self.setup.compiled:
            return replay_compiled_layer(self, moe=moe)
        shape, tokens, types = self.shape, self.tokens, self.types
        stream = tokens * shape.hidden * types.residual
        self.tape = tape = Tape(stream, "layer input")
        after = shape.norm_place is not NormPlace.PRE
        before = shape.norm_place is not NormPlace.POST
        normed = self.norm(0) if before else 0
        branch = self.attention(normed)
        if shape.parallel_block:
            second = self.mlp(normed)
            middle = tape.run("attention residual", (0, branch), stream, passes=0)
            tape.run("layer output", (middle, second), stream, passes=0)
            return tape.replay()
        branch = self.drop(self.norm(branch) if after else branch)
        middle = tape.run("attention residual", (0, branch), stream, passes=0)
        normed = self.norm(middle) if before else middle
        branch = run_experts(self, normed) if moe else self.mlp(normed)
        branch = self.drop(self.norm(branch) if after else branch)
        tape.run("layer output", (middle, branch), stream, passes=0)
        return tape.replay()

    def replay_head(self, *, fused: bool, eager: bool) -> Span:
        """Final norm, output projection, fp32 logits, log-softmax, loss.

        eager: the loss is not compiled with the layers.
        """
        if self.setup.compiled and not eager:
            return replay_compiled_head(self)
        shape, tokens, types = self.shape, self.tokens, self.types
        self.tape = tape = Tape(tokens * shape.hidden * types.residual, "last hidden state")
        normed = self.norm(0)
        elements = tokens * shape.vocab
        logits = self.linear(normed, shape.hidden, shape.vocab, "logits", adapter=False)
        if fused:
            tape.run("fused loss", (logits,), 4, save=(logits,), back_scratch=tape.size(logits))
            return tape.replay(4)
        if shape.logit_cap:
            capped = tape.run("divided logits", (logits,), tape.size(logits))
            capped = tape.run("capped logits", (capped,), tape.size(logits), save_output=True)
            logits = tape.run("logits", (capped,), tape.size(logits))
        upcast = logits
        if types.compute != 4:
            upcast = tape.run("fp32 logits", (logits,), elements * 4)
        scores = tape.run("log-softmax of the logits", (upcast,), elements * 4, save_output=True)
        # Logits and last hidden state are still named by the caller while the loss is computed.
        loss = tape.run("loss", (scores,), 4)
        tape.run("model output", (loss, logits, normed), 4, passes=0)
        return tape.replay(4)

    def attention(self, normed: int) -> int:
        """From the normed input to the output projection."""
        shape, tokens = self.shape, self.tokens
        if shape.latent is not None:
            return run_latent_attention(self, shape.latent, normed)
        h, qw, kw = shape.hidden, shape.query_width, shape.kv_width
        gate = -1
        if shape.fused_qkv:
            query = key = value = self.linear(normed, h, qw + 2 * kw, "query-key-value")
        else:
            query = self.linear(normed, h, qw * (2 if shape.attention_gate else 1), "query")
            if shape.attention_gate:
                half = self.tape.size(query) // 2
                gate = self.tape.run("attention gate", (query,), half)
                query = self.tape.run("query", (query,), half)
            key = self.linear(normed, h, kw, "key")
            value = self.linear(normed, h, kw, "value")
        if shape.query_scaled:
            query = self.tape.run("scaled query", (query,), self.tape.size(query))
        if shape.qk_norm:
            rows = (1, 1) if shape.qk_norm_full else (shape.heads, shape.kv_heads)
            query = self.rms_norm(query, tokens * qw, tokens * rows[0])
            key = self.rms_norm(key, tokens * kw, tokens * rows[1])
        if not shape.positions and shape.rotary:
            query = self.rotate(query, qw)
            key = self.rotate(key, kw)
        if self.setup.attention is Attention.EAGER:
            mixed = self.score_matrix(query, key, value)
        else:
            mixed = self.fused_attention(query, key, value)
        if shape.attention_gate:
            size = self.tape.size(mixed)
            gate = self.tape.run("gate sigmoid", (gate,), size, save_output=True)
            mixed = self.tape.run("gated attention", (mixed, gate), size, save=(mixed, gate))
        return self.linear(mixed, qw, h, "attention output")

    def mlp(self, normed: int) -> int:
        shape = self.shape
        h, f = shape.hidden, shape.ffn
        if shape.gated and shape.fused_gate_up:
            both = self.linear(normed, h, 2 * f, "gate and up projection")
            half = self.tape.size(both) // 2
            active = self.tape.run("activation", (both,), half, save=(both,))
            product = self.tape.run("gated product", (active, both), half, save=(active, both))
        elif shape.gated:
            gate = self.linear(normed, h, f, "gate projection")
            active = self.activate(gate, f, self.tokens)
            up = self.linear(normed, h, f, "up projection")
            product = self.tape.run(
                "gated product", (active, up), self.tape.size(up), save=(active, up)
            )
        else:
            product = self.activate(self.linear(normed, h, f, "up projection"), f, self.tokens)
        if shape.norm is Norm.RMS_T5 and self.types.cast:
            # T5 keeps its last matrix in fp32 and goes there with its input first.
            product = self.tape.run("down projection input", (product,), self.tokens * f * 4)
        return self.linear(product, f, h, "down projection")
