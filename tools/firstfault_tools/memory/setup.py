"""How is the model trained: precision, batch, recomputation, parallelism, optimizer?

`TrainingSetup` holds every choice that memory depends on and checks the rules between them.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from functools import lru_cache
from operator import attrgetter
from typing import Any, NamedTuple

from firstfault_tools.dataclass import dataclass
from firstfault_tools.errors import InvalidParameter
from firstfault_tools.memory.architecture import Architecture


class Choice(StrEnum):
    """One of a few words. Hashed as its text: Enum's own hash is a call in Python, of which an estimate makes many."""

    __hash__ = str.__hash__


class Framework(Choice):
    """Whose code runs the step; decides which tensors a layer keeps."""

    HUGGINGFACE = "huggingface"
    """Eager modules, written-out norms and activations, loss in fp32."""
    TORCHTITAN = "torchtitan"
    """Eager modules on FSDP2."""
    MEGATRON = "megatron"
    """Fused kernels (Transformer Engine), fp32 main gradients."""
    DEEPSPEED = "deepspeed"
    """Eager modules, flat partitioned states."""


class Precision(Choice):
    """amp: fp32 weights under autocast to bf16 (fp16_amp: to fp16). bf16, fp16: everything in it.
    bf16_master: bf16 weights with an fp32 copy in the optimizer. fp8: bf16 with fp8 matmul inputs, one
    scale a tensor. mxfp8, nvfp4: with scales of blocks of 32 and 16 values (Blackwell)."""

    FP32 = "fp32"
    AMP = "amp"
    FP16_AMP = "fp16_amp"
    BF16 = "bf16"
    FP16 = "fp16"
    BF16_MASTER = "bf16_master"
    FP8 = "fp8"
    MXFP8 = "mxfp8"
    NVFP4 = "nvfp4"


FULL_WEIGHTS = (Precision.FP32, Precision.AMP, Precision.FP16_AMP)
"""Weights stand in fp32."""
LOW_BYTES = {Precision.FP8: 1.0, Precision.MXFP8: 1 + 1 / 32, Precision.NVFP4: 0.5 + 1 / 16}
"""Bytes of a value in one orientation, its block's scale included. Transformer Engine keeps both orientations
of a weight (rowwise and columnwise data in transformer_engine/pytorch/tensor/mxfp8_tensor.py, nvfp4_tensor.py;
on Hopper the fp8 weight and its transpose) and one of a saved input."""


class Attention(Choice):
    """eager writes the score matrix out; sdpa picks a kernel; flash never writes it."""

    EAGER = "eager"
    SDPA = "sdpa"
    FLASH = "flash"


class Recompute(Choice):
    """selective: the attention core only. full: whole layers, of which the input is kept."""

    NONE = "none"
    SELECTIVE = "selective"
    FULL = "full"


class Sharding(Choice):
    """Which model states are split over the data-parallel ranks."""

    NONE = "none"
    DDP = "ddp"
    ZERO1 = "zero1"
    ZERO2 = "zero2"
    ZERO3 = "zero3"
    FSDP = "fsdp"


@dataclass(frozen=True, slots=True)
class Optimizer:
    """State kept per trained parameter and temporaries of the step.

    state_bytes: moments per parameter where they are fp32 (`follows_weight` moments take the type of
    the weight instead, `moments` of them). step_lists: copies of all parameters alive in the step.
    step_tensors: copies of one parameter alive in the step. gram: two half-precision squares of the hidden
    width beside them (Newton-Schulz in torch/optim/_muon.py, which holds the averaged gradient in its own
    type and two half-precision iterates).
    """

    moments: int
    state_bytes: float = 0.0
    step_lists: int = 0
    step_tensors: int = 0
    gram: bool = False
    paged: bool = False
    """States in managed memory: outside PyTorch's allocator, on the GPU while it has room (bitsandbytes)."""


OPTIMIZERS: dict[str, Optimizer] = {
    "adamw_fused": Optimizer(moments=2),
    "adamw_foreach": Optimizer(moments=2, step_lists=1),
    "adamw": Optimizer(moments=2, step_lists=1),
    "adamw_loop": Optimizer(moments=2, step_tensors=3),
    "adam": Optimizer(moments=2, step_lists=1),
    "adam_fused": Optimizer(moments=2),
    "adam_foreach": Optimizer(moments=2, step_lists=1),
    "adamw_8bit": Optimizer(moments=0, state_bytes=2.03),
    "adamw_4bit": Optimizer(moments=0, state_bytes=1.0625),
    "paged_adamw_8bit": Optimizer(moments=0, state_bytes=2.03, paged=True),
    "paged_adamw": Optimizer(moments=0, state_bytes=8.0, paged=True),
    "lion": Optimizer(moments=1),
    "sgd": Optimizer(moments=0),
    "sgd_momentum": Optimizer(moments=1),
    "adafactor": Optimizer(moments=0, state_bytes=0.01, step_tensors=1),
    "muon": Optimizer(moments=1, step_tensors=2, gram=True),
    "none": Optimizer(moments=0),
}
"""foreach Adam holds the square roots of all second moments at once (`torch._foreach_sqrt` in
torch/optim/adam.py); the fused kernel holds none, the loop three of one parameter's size (measured:
evals/results/device-2026-11-28/memory.json). 8-bit states carry an
fp32 scale for each block of 256, 4-bit ones (torchao/optim) of 128."""


class LayerSetup(NamedTuple):
    """The choices that a layer's tensors depend on, all else left out: two setups that agree here keep
    the same tensors in a layer. tokens a sequence: after context parallelism split it."""

    sequence: int
    micro_batch: int
    attention: Attention
    dropout: bool
    compiled: bool
    quantized_bits: int
    lora_targets: str
    dora: bool
    experts_loop: bool
    image_patches: int
    text_tokens: int
    loss_fused: bool
    loss_eager: bool
    fp8_bytes: int

    @property
    def without_tokens(self) -> LayerSetup:
        """The same choices for any length and batch."""
        return self._replace(sequence=0, micro_batch=0)


_COUNTS = (
    "sequence", "micro_batch", "micro_batches", "world", "tensor", "pipeline", "virtual", "context", "expert",
)  # fmt: skip
_read_counts = attrgetter(*_COUNTS)
MOST = 100_000_000
"""More of anything is a slip."""


def _check_counts(counts: tuple[int, ...]) -> None:
    if min(counts) >= 1 and max(counts) <= MOST:
        return
    for name, value in zip(_COUNTS, counts, strict=True):
        if value < 1:
            raise InvalidParameter(name, f"must be at least 1, got {value}")
        if value > MOST:
            raise InvalidParameter(name, f"is larger than any known run: {value}")


@dataclass(frozen=True)
class TrainingSetup:
    """One training run as memory sees it. `context` splits the sequence; `data` is derived.

    micro_batches: micro-batches per step (accumulation, or in flight under pipelining).
    gradient_bytes: width of the accumulation buffer, 0 for the framework's own default.
    loss_fused: logits never stand in fp32 (chunked or fused cross-entropy).
    resume: the run loads a checkpoint with its optimizer states onto the GPU first.
    """

    sequence: int
    micro_batch: int = 1
    micro_batches: int = 1
    framework: Framework = Framework.HUGGINGFACE
    precision: Precision = Precision.BF16
    attention: Attention = Attention.SDPA
    recompute: Recompute = Recompute.NONE
    sharding: Sharding = Sharding.NONE
    optimizer: str = "adamw_fused"
    world: int = 1
    tensor: int = 1
    pipeline: int = 1
    virtual: int = 1
    first_stage_layers: int = 0
    """Layers of the first (last) stage where stages are uneven, 0: as even as can be."""
    last_stage_layers: int = 0
    context: int = 1
    expert: int = 1
    expert_tensor: int = 0
    sequence_parallel: bool = False
    distributed_optimizer: bool = False
    dropout: bool = False
    gradient_bytes: int = 0
    master_bytes: float = 4.0
    moment_bytes: float = 4.0
    loss_fused: bool = False
    loss_bytes: float = 0.0
    fused_activation: bool = True
    recompute_layers: int = 0
    recompute_modules: tuple[str, ...] = ("core_attn",)
    lora_rank: int = 0
    lora_targets: str = "all-linear"
    quantized_bits: int = 0
    double_quant: bool = False
    offload_optimizer: bool = False
    offload_parameters: bool = False
    imbalance: float = 1.0
    pad_vocab: int = 0
    resume: bool = False
    compiled: bool = False
    loss_eager: bool = False
    """Layers are compiled, the loss is not: full-precision logits stand (blocks compiled one by one)."""
    prediction: bool = False
    """The layers for multi-token prediction that the published file holds are trained too."""
    host_pinned: bool = False
    """Offloaded states stand in pinned memory."""
    dora: bool = False
    activation_offload: bool = False
    fp8_bytes: int = 0
    """Of an input that an fp8 matmul saves: 1 where it saves the cast one (Transformer Engine), 2 where it
    casts again in the backward (torchao). Either way no half-precision weight is kept under autocast."""
    low_weights: bool = False
    """Weights stand in the low precision alone (`--fp8-param-gather`)."""
    experts_loop: bool = False
    image_patches: int = 0
    """Patches of a sequence's images, before they are merged."""
    text_tokens: int = 512
    """Of the text beside a diffusion transformer's latents: what FLUX's and Wan's pipelines pad to."""
    tower_frozen: bool = False

    def __post_init__(self) -> None:
        _check_counts(_read_counts(self))
        if self.optimizer not in OPTIMIZERS:
            raise InvalidParameter("optimizer", f"must be one of {', '.join(OPTIMIZERS)}")
        if self.quantized_bits not in (0, 4, 8):
            raise InvalidParameter("quantized_bits", "must be 0, 4 or 8")
        if self.lora_rank < 0:
            raise InvalidParameter("lora_rank", "must not be negative")
        if self.imbalance < 1:
            raise InvalidParameter(
                "imbalance", "is the worst expert's load over the mean: at least 1"
            )
        split = self.tensor * self.pipeline * self.context
        if self.world % split:
            raise InvalidParameter(
                "world", f"must be a multiple of tensor x pipeline x context = {split}"
            )
        if self.sequence % self.context:
            raise InvalidParameter("context", f"must divide sequence ({self.sequence})")
        if self.sequence_parallel and self.tensor > 1 and self.sequence % self.tensor:
            raise InvalidParameter("sequence_parallel", "sequence must be divisible by tensor")
        if self.virtual > 1 and self.pipeline == 1:
            raise InvalidParameter("virtual", "needs pipeline > 1")
        if not self.expert_tensor:
            object.__setattr__(self, "expert_tensor", self.tensor)

    def vary(self, changes: Mapping[str, Any]) -> TrainingSetup:
        """This setup with some fields changed, checked anew; dataclasses.replace reads all sixty.

        Raises InvalidParameter.
        """
        for name in changes:
            if name not in self.__dict__:
                raise InvalidParameter(name, "is no field of a setup")
        changed = object.__new__(TrainingSetup)
        changed.__dict__.update(self.__dict__, **changes)
        changed.__post_init__()
        return changed

    def check(self, shape: Architecture) -> None:
        """Raise InvalidParameter where model and parallelism do not fit each other."""
        if shape.heads % self.tensor:
            raise InvalidParameter(
                "tensor", f"must divide heads: {shape.heads} % {self.tensor} != 0"
            )
        if shape.layers < self.pipeline * self.virtual:
            raise InvalidParameter(
                "pipeline",
                f"x virtual = {self.pipeline * self.virtual} must not exceed layers ({shape.layers})",
            )
        if min(self.split_layers(shape)) < 1:
            raise InvalidParameter(
                "first_stage_layers",
                f"and the last stage's leave no layer for the others of {shape.layers}",
            )
        if self.expert > 1 and not shape.experts:
            raise InvalidParameter("expert", "needs a mixture-of-experts model")
        if shape.experts and shape.experts % self.expert:
            raise InvalidParameter(
                "expert", f"must divide experts: {shape.experts} % {self.expert} != 0"
            )
        if shape.positions and self.sequence > shape.positions:
            raise InvalidParameter(
                "sequence", f"exceeds the learned position table ({shape.positions})"
            )

    @property
    def layer(self) -> LayerSetup:
        """What a layer sees of it."""
        return LayerSetup(
            sequence=self.sequence // self.context,
            micro_batch=self.micro_batch,
            attention=self.attention,
            dropout=self.dropout,
            compiled=self.compiled,
            quantized_bits=self.quantized_bits,
            lora_targets=self.lora_targets,
            dora=self.dora,
            experts_loop=self.experts_loop,
            image_patches=self.image_patches,
            text_tokens=self.text_tokens,
            loss_fused=self.loss_fused,
            loss_eager=self.loss_eager,
            fp8_bytes=self.fp8_bytes,
        )

    def split_layers(self, shape: Architecture) -> tuple[int, ...]:
        """Layers of each stage."""
        return _split_layers(
            shape.layers, self.pipeline, self.first_stage_layers, self.last_stage_layers
        )

    @property
    def data(self) -> int:
        """Data-parallel size, world / (tensor x pipeline x context)."""
        return self.world // (self.tensor * self.pipeline * self.context)

    @property
    def expert_data(self) -> int:
        """Ranks that hold the same routed expert."""
        return max(1, self.world // (self.pipeline * self.expert * self.expert_tensor))

    @property
    def autocast(self) -> bool:
        """fp32 weights, matmuls in half precision."""
        return self.precision in (Precision.AMP, Precision.FP16_AMP)

    @property
    def weight_bytes(self) -> int:
        """Bytes of a stored weight."""
        return 4 if self.precision in FULL_WEIGHTS else 2

    @property
    def compute_bytes(self) -> int:
        """Bytes of a matmul input."""
        return 4 if self.precision is Precision.FP32 else 2

    @property
    def states(self) -> Optimizer:
        """The optimizer's entry."""
        return OPTIMIZERS[self.optimizer]


@lru_cache(maxsize=256)
def _split_layers(layers: int, stages: int, first: int, last: int) -> tuple[int, ...]:
    """Those stated for the ends, the rest as even as can be, more of them first."""
    if stages == 1:
        return (layers,)
    inner = stages - bool(first) - bool(last)
    rest = layers - first - last
    if inner < 1:
        return first, last
    even = [rest // inner + (stage < rest % inner) for stage in range(inner)]
    return (*([first] if first else []), *even, *([last] if last else []))
