"""Which matrices does this model hold, and how many parameters is that exactly?

`Architecture` is the shape of a decoder-only transformer: attention (grouped or not), dense or
mixture-of-experts MLP, norms, embeddings. Counts are exact integers.
"""

from __future__ import annotations

from dataclasses import fields
from enum import StrEnum
from functools import cached_property

from firstfault_tools.dataclass import dataclass
from firstfault_tools.errors import InvalidParameter


class Norm(StrEnum):
    """rms: one weight a channel, eager code upcasts to fp32. layer: weight and bias, one kernel."""

    RMS = "rms"
    RMS_WIDE = "rms_wide"
    """The weight multiplies before the cast back (OLMo 2, GPT-OSS)."""
    RMS_OFFSET = "rms_offset"
    """Gemma: times 1 + weight, in fp32, before the cast back."""
    RMS_T5 = "rms_t5"
    """T5: normalises without going back to half precision under autocast."""
    LAYER_WIDE = "layer_wide"
    """A layer norm without bias written out in fp32 (Cohere)."""
    LAYER = "layer"


class NormPlace(StrEnum):
    """Where the two norms of a layer stand."""

    PRE = "pre"
    POST = "post"
    SANDWICH = "sandwich"
    """Before and after both branches: four norms a layer (Gemma 2 and 3)."""


class Activation(StrEnum):
    """Elementwise function of the MLP, told apart by what its backward needs to keep."""

    SILU = "silu"
    GELU = "gelu"
    """One fused kernel: keeps its input."""
    GELU_NEW = "gelu_new"
    """The tanh form written out in Python: keeps four tensors."""
    RELU = "relu"
    SQUARED_RELU = "squared_relu"


@dataclass(frozen=True, slots=True)
class Latent:
    """Multi-head latent attention: ranks of the compressed query (0: none) and key-value, head parts.

    interleaved: rotation on even and odd slices (DeepSeek V3), else on complex numbers (V2).
    """

    kv_rank: int
    nope: int
    rope: int
    value: int
    q_rank: int = 0
    interleaved: bool = True

    @property
    def key(self) -> int:
        """Width of one query or key head."""
        return self.nope + self.rope

    def list_weights(self, hidden: int, heads: int) -> tuple[int, ...]:
        """Matrix sizes in the order of use."""
        width = heads * self.key
        query = (hidden * self.q_rank, self.q_rank * width) if self.q_rank else (hidden * width,)
        return (
            *query,
            hidden * (self.kv_rank + self.rope),
            self.kv_rank * heads * (self.nope + self.value),
            heads * self.value * hidden,
        )


@dataclass(frozen=True, slots=True)
class StateSpace:
    """A Mamba mixer: inner width, state size, rank of the time step, width of the convolution."""

    inner: int
    state: int
    rank: int
    kernel: int = 4

    def list_weights(self, hidden: int) -> tuple[int, ...]:
        """Matrices in the order of use: in, x, time step, out."""
        return (
            hidden * 2 * self.inner,
            self.inner * (self.rank + 2 * self.state),
            self.rank * self.inner,
            self.inner * hidden,
        )

    @property
    def small(self) -> int:
        """Convolution with bias, bias of the time step, A and D."""
        return self.inner * (self.kernel + 1 + 1 + self.state + 1)


@dataclass(frozen=True, slots=True)
class Scan:
    """A Mamba-2 mixer. grouped_norm: the gated norm runs over groups (Nemotron-H). normed: there is one, else
    the gate alone in half precision (Falcon-H1)."""

    heads: int
    width: int
    state: int
    groups: int
    chunk: int
    grouped_norm: bool = False
    normed: bool = True


@dataclass(frozen=True, slots=True)
class Delta:
    """A gated delta mixer (Qwen3-Next): heads of keys and values, their widths, tokens of a chunk."""

    key_heads: int
    heads: int
    key_width: int
    value_width: int
    chunk: int = 64


@dataclass(frozen=True, slots=True)
class Hybrid:
    """Layers of several kinds, in order. A layer names its branches: scan, delta, mamba, attention,
    mlp, experts. wide_residual: hidden states stay in fp32 between layers."""

    layers: tuple[str, ...]
    scan: Scan | None = None
    delta: Delta | None = None
    wide_residual: bool = False


@dataclass(frozen=True, slots=True)
class Tower:
    """A vision tower of transformer blocks. merge: patches of one text token, a side."""

    layers: int
    hidden: int
    heads: int
    ffn: int
    merge: int = 2
    gated: bool = True


class DiffusionKind(StrEnum):
    """Whose blocks a diffusion transformer has."""

    FLUX = "flux"
    SD3 = "sd3"
    WAN = "wan"
    QWEN_IMAGE = "qwen image"


@dataclass(frozen=True, slots=True)
class Diffusion:
    """A diffusion transformer's blocks. singles: FLUX's with latents and text in one stream. dual: SD3.5's
    with a second attention. patch, channels: values of a latent token out and in. text_width: of the text
    encoder's states. buffer: elements of a position table that is no weight.
    """

    kind: DiffusionKind
    patch: int
    channels: int
    text_width: int
    singles: int = 0
    dual: int = 0
    head_norm: bool = True
    cross_norm: bool = True
    buffer: int = 0
    block: int = 0
    """Elements of a block, where its kinds differ of the mean one."""


@dataclass(frozen=True)
class Architecture:
    """Shape of one decoder-only transformer. Sizes are element counts.

    ffn: width of the dense MLP. expert_ffn: width of one routed expert. positions: rows of a learned
    position table, 0 for rotary. dense_layers: leading layers whose MLP is dense in a MoE model.
    softmax_upcast: the written-out attention takes its softmax in fp32 whatever the compute type.
    qk_norm_full: the query-key norm spans all heads (OLMo 2). extra_parameters: elements that this
    shape does not spell out (vision tower, state-space layers, prediction heads). partial: why
    activations are only a range, empty where every tensor of a layer is known.
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
    norm_place: NormPlace = NormPlace.PRE
    latent: Latent | None = None
    qk_norm_full: bool = False
    fused_gate_up: bool = False
    score_cap: bool = False
    logit_cap: bool = False
    sinks: bool = False
    expert_bias: bool = False
    query_scaled: bool = False
    joined_rotary: bool = False
    diffusion: Diffusion | None = None
    state_space: StateSpace | None = None
    hybrid: Hybrid | None = None
    tower: Tower | None = None
    rotary: bool = True
    attention_gate: bool = False
    """The query projection is twice as wide, its other half gates the result (Qwen3-Next)."""
    encoder_layers: int = 0
    encoder_tokens: int = 0
    """Positions of the encoder, 0 where they are the sequence's."""
    score_bias: bool = False
    """A learned bias on the scores (T5): no fused attention kernel takes its gradient."""
    norm_elements: int = -1
    """Elements a channel of a norm where they are not its kind's: 1 without bias, 0 without weight."""
    extra_parameters: int = 0
    prediction_layers: int = 0
    """Layers for multi-token prediction in the published file, not among `parameters`."""
    indexer_parameters: int = 0
    """Elements of one layer's indexer for sparse attention (DeepSeek V3.2, GLM-5)."""
    partial: str = ""
    counted: bool = True
    """Whether the count is that of a known family, not of a Llama-like model of the sizes given."""
    unspelled: int = 0
    """Elements of the part whose activations are not spelled out, 0: all of them."""

    def __post_init__(self) -> None:
        self._check_sizes()
        if not self.kv_heads:
            object.__setattr__(self, "kv_heads", self.heads)
        if self.heads % self.kv_heads:
            raise InvalidParameter(
                "kv_heads", f"must divide heads: {self.heads} % {self.kv_heads} != 0"
            )
        if not self.head_dim:
            if self.latent is None and self.hidden % self.heads:
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

    def _check_sizes(self) -> None:
        for name in ("hidden", "layers", "heads", "vocab"):
            if getattr(self, name) <= 0:
                raise InvalidParameter(name, f"must be positive, got {getattr(self, name)}")
        for name in ("ffn", "kv_heads", "head_dim", "positions", "experts", "experts_per_token"):
            if getattr(self, name) < 0:
                raise InvalidParameter(name, f"must not be negative, got {getattr(self, name)}")
        if self.layers > 10_000 or self.hidden > 1_000_000 or self.vocab > 100_000_000:
            raise InvalidParameter("layers", "larger than any known model; check the units")

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        """Taken once: a shape is asked for its layers many times."""
        return hash(tuple(getattr(self, field.name) for field in fields(self)))

    @cached_property
    def query_width(self) -> int:
        """Output width of the query projection, heads x head_dim."""
        return self.heads * self.head_dim

    @cached_property
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
        if self.norm_elements >= 0:
            return self.hidden * self.norm_elements
        return self.hidden * (2 if self.norm is Norm.LAYER else 1)

    @cached_property
    def attention_weights(self) -> tuple[int, ...]:
        """Matrix sizes of one attention block, projections separate unless fused."""
        if self.latent is not None:
            return self.latent.list_weights(self.hidden, self.heads)
        h, q, k = self.hidden, self.query_width, self.kv_width
        head = (h * (q + 2 * k),) if self.fused_qkv else (h * q, h * k, h * k)
        return (*head, q * h)

    @cached_property
    def attention_small(self) -> int:
        """Biases and query-key norms of one attention block."""
        count = (self.query_width + 2 * self.kv_width) * self.qkv_bias
        count += self.hidden * self.attention_out_bias + self.heads * self.sinks
        if self.latent is not None:
            biased = (self.latent.q_rank + self.latent.kv_rank + self.latent.rope) * self.qkv_bias
            return (
                biased
                + self.latent.q_rank
                + self.latent.kv_rank
                + self.hidden * self.attention_out_bias
            )
        if self.qk_norm_full:
            return count + (self.query_width + self.kv_width) * self.qk_norm
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
        bias = (self.expert_ffn * (self.mlp_matrices - 1) + self.hidden) * self.expert_bias
        return self.mlp_matrices * self.hidden * self.expert_ffn + bias

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
        """Two, one where attention and MLP read the same norm (Falcon, Phi), four around branches."""
        if self.norm_place is NormPlace.SANDWICH:
            return 4
        return 1 if self.parallel_block else 2

    @cached_property
    def dense_layer_parameters(self) -> int:
        """Elements of one layer with a dense MLP."""
        if self.diffusion is not None:
            return self.diffusion.block
        if self.state_space is not None:
            weights = sum(self.state_space.list_weights(self.hidden)) + self.state_space.small
            return weights + self.norm_parameters
        mlp = sum(self.dense_mlp_weights) + self.dense_mlp_small
        return self.attention_parameters + mlp + self.norms_per_layer * self.norm_parameters

    @cached_property
    def moe_layer_parameters(self) -> int:
        """Elements of one layer with routed experts."""
        mlp = self.experts * self.expert_parameters
        mlp += self.experts * (self.hidden + self.expert_bias)
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
    def encoder_parameters(self) -> int:
        """Elements of the encoder and of the decoder's attention to it."""
        if not self.encoder_layers:
            return 0
        cross = self.attention_parameters + self.norm_parameters
        return (
            self.encoder_layers * self.dense_layer_parameters
            + self.layers * cross
            + self.norm_parameters
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
            + self.encoder_parameters
            + self.extra_parameters
        )

    @cached_property
    def prediction_parameters(self) -> int:
        """Elements of the layers for multi-token prediction: a last layer each, the matrix that joins
        hidden state and embedding, three norms (DeepSeek-V3, arXiv 2412.19437, section 2.2)."""
        layer = self.moe_layer_parameters if self.experts else self.dense_layer_parameters
        layer += self.hidden * self.query_width * self.attention_gate + self.indexer_parameters
        return self.prediction_layers * (layer + 2 * self.hidden**2 + 3 * self.norm_parameters)

    @cached_property
    def active_parameters(self) -> int:
        """Elements that one token passes through."""
        idle = (
            self.moe_layers
            * (self.experts - self.experts_per_token)
            * (self.expert_parameters if self.experts else 0)
        )
        return self.parameters - idle
