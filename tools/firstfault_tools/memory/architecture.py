"""Which matrices does this model hold, and how many parameters is that exactly?

`Architecture` is the shape of a decoder-only transformer: attention (grouped or not), dense or
mixture-of-experts MLP, norms, embeddings. Counts are exact integers.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

from firstfault_tools.errors import InvalidParameter


class Norm(StrEnum):
    """rms: one weight a channel, eager code upcasts to fp32. layer: weight and bias, one kernel."""

    RMS = "rms"
    LAYER = "layer"


class Activation(StrEnum):
    """Elementwise function of the MLP, told apart by what its backward needs to keep."""

    SILU = "silu"
    GELU = "gelu"
    """One fused kernel: keeps its input."""
    GELU_NEW = "gelu_new"
    """The tanh form written out in Python: keeps four tensors."""
    RELU = "relu"
    SQUARED_RELU = "squared_relu"


@dataclass(frozen=True)
class Architecture:
    """Shape of one decoder-only transformer. Sizes are element counts.

    ffn: width of the dense MLP. expert_ffn: width of one routed expert. positions: rows of a learned
    position table, 0 for rotary. dense_layers: leading layers whose MLP is dense in a MoE model.
    softmax_upcast: the written-out attention takes its softmax in fp32 whatever the compute type.
    Raises InvalidParameter where a size breaks a rule.
    """

    hidden: int
    layers: int
    heads: int
    ffn: int
    vocab: int
    kv_heads: int = 0
    head_dim: int = 0
    tied: bool = False
    norm: Norm = Norm.RMS
    gated: bool = True
    activation: Activation = Activation.SILU
    positions: int = 0
    qkv_bias: bool = False
    attention_out_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False
    fused_qkv: bool = False
    parallel_block: bool = False
    softmax_upcast: bool = True
    experts: int = 0
    experts_per_token: int = 0
    expert_ffn: int = 0
    shared_expert_ffn: int = 0
    shared_expert_gate: bool = False
    dense_layers: int = 0
    family: str = ""

    def __post_init__(self) -> None:
        for name in ("hidden", "layers", "heads", "vocab"):
            if getattr(self, name) <= 0:
                raise InvalidParameter(name, f"must be positive, got {getattr(self, name)}")
        for name in ("ffn", "kv_heads", "head_dim", "positions", "experts", "experts_per_token"):
            if getattr(self, name) < 0:
                raise InvalidParameter(name, f"must not be negative, got {getattr(self, name)}")
        if self.layers > 10_000 or self.hidden > 1_000_000 or self.vocab > 100_000_000:
            raise InvalidParameter("layers", "larger than any known model; check the units")
        if not self.kv_heads:
            object.__setattr__(self, "kv_heads", self.heads)
        if self.heads % self.kv_heads:
            raise InvalidParameter(
                "kv_heads", f"must divide heads: {self.heads} % {self.kv_heads} != 0"
            )
        if not self.head_dim:
            if self.hidden % self.heads:
                raise InvalidParameter(
                    "heads", f"must divide hidden: {self.hidden} % {self.heads} != 0"
                )
            object.__setattr__(self, "head_dim", self.hidden // self.heads)
        if self.experts:
            if not 1 <= self.experts_per_token <= self.experts:
                raise InvalidParameter("experts_per_token", f"must be 1..experts ({self.experts})")
            if not self.expert_ffn:
                object.__setattr__(self, "expert_ffn", self.ffn)
        if not self.ffn and not self.experts:
            raise InvalidParameter("ffn", "must be positive")
        if self.dense_layers > self.layers:
            raise InvalidParameter("dense_layers", f"must not exceed layers ({self.layers})")

    @property
    def query_width(self) -> int:
        """Output width of the query projection, heads x head_dim."""
        return self.heads * self.head_dim

    @property
    def kv_width(self) -> int:
        """Output width of the key (or value) projection."""
        return self.kv_heads * self.head_dim

    @property
    def mlp_matrices(self) -> int:
        """Three for a gated MLP (gate, up, down), else two."""
        return 3 if self.gated else 2

    @property
    def moe_layers(self) -> int:
        """Layers whose MLP is a mixture of experts."""
        return self.layers - self.dense_layers if self.experts else 0

    @property
    def norm_parameters(self) -> int:
        """Elements of one norm."""
        return self.hidden * (2 if self.norm is Norm.LAYER else 1)

    @cached_property
    def attention_weights(self) -> tuple[int, ...]:
        """Matrix sizes of one attention block, projections separate unless fused."""
        h, q, k = self.hidden, self.query_width, self.kv_width
        head = (h * (q + 2 * k),) if self.fused_qkv else (h * q, h * k, h * k)
        return (*head, q * h)

    @cached_property
    def attention_small(self) -> int:
        """Biases and query-key norms of one attention block."""
        count = (self.query_width + 2 * self.kv_width) * self.qkv_bias
        count += self.hidden * self.attention_out_bias
        return count + 2 * self.head_dim * self.qk_norm

    @cached_property
    def dense_mlp_weights(self) -> tuple[int, ...]:
        """Matrix sizes of one dense MLP."""
        return (self.hidden * self.ffn,) * self.mlp_matrices

    @cached_property
    def dense_mlp_small(self) -> int:
        """Biases of one dense MLP."""
        return (self.ffn * (self.mlp_matrices - 1) + self.hidden) * self.mlp_bias

    @cached_property
    def expert_parameters(self) -> int:
        """Elements of one routed expert."""
        return self.mlp_matrices * self.hidden * self.expert_ffn

    @cached_property
    def shared_expert_parameters(self) -> int:
        """Elements of the shared expert and its gate, if there is one."""
        gate = self.hidden if self.shared_expert_gate else 0
        return self.mlp_matrices * self.hidden * self.shared_expert_ffn + gate

    @cached_property
    def attention_parameters(self) -> int:
        """Elements of one attention block without its norm."""
        return sum(self.attention_weights) + self.attention_small

    @property
    def norms_per_layer(self) -> int:
        """Two, or one where attention and MLP read the same norm (Falcon, Phi)."""
        return 1 if self.parallel_block else 2

    @cached_property
    def dense_layer_parameters(self) -> int:
        """Elements of one layer with a dense MLP."""
        mlp = sum(self.dense_mlp_weights) + self.dense_mlp_small
        return self.attention_parameters + mlp + self.norms_per_layer * self.norm_parameters

    @cached_property
    def moe_layer_parameters(self) -> int:
        """Elements of one layer with routed experts."""
        mlp = self.experts * self.expert_parameters + self.experts * self.hidden
        mlp += self.shared_expert_parameters
        return self.attention_parameters + mlp + self.norms_per_layer * self.norm_parameters

    @property
    def embedding_parameters(self) -> int:
        """Elements of the token table."""
        return self.vocab * self.hidden

    @property
    def head_parameters(self) -> int:
        """Elements of the output projection that are not shared with the token table."""
        return 0 if self.tied else self.vocab * self.hidden

    @property
    def position_parameters(self) -> int:
        """Elements of a learned position table."""
        return self.positions * self.hidden

    @cached_property
    def layer_parameters(self) -> int:
        """Elements of all layers."""
        dense = self.layers - self.moe_layers
        return dense * self.dense_layer_parameters + self.moe_layers * (
            self.moe_layer_parameters if self.experts else 0
        )

    @cached_property
    def parameters(self) -> int:
        """Elements of the whole model, shared tensors once."""
        return (
            self.layer_parameters
            + self.embedding_parameters
            + self.head_parameters
            + self.position_parameters
            + self.norm_parameters
        )

    @cached_property
    def active_parameters(self) -> int:
        """Elements that one token passes through."""
        idle = (
            self.moe_layers
            * (self.experts - self.experts_per_token)
            * (self.expert_parameters if self.experts else 0)
        )
        return self.parameters - idle
