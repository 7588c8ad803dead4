"""Which one change makes it fit? Every single change, what it saves, what it costs, what it breaks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from firstfault_tools.errors import InvalidParameter
from firstfault_tools.memory.architecture import Architecture
from firstfault_tools.memory.cards import Card
from firstfault_tools.memory.estimate import Fit, Moment, StepMemory
from firstfault_tools.memory.setup import (
    Attention,
    Framework,
    Precision,
    Recompute,
    Sharding,
    TrainingSetup,
)
from firstfault_tools.memory.sizes import GIB
from firstfault_tools.memory.verdict import choose_fit, estimate_step, size_need


class Change(NamedTuple):
    """One change on its own. saved_gib: of allocated memory, negative where it grows.

    throughput_cost: share of step time added where that is known, else None.
    """

    name: str
    saved_gib: float
    needed_gib: float
    fits: bool
    throughput_cost: float | None
    cost: str
    side_effects: str
    flag: str
    reason: str = ""
    """The terms that move most, from the peak before to the peak after."""


class Candidate(NamedTuple):
    """A change before it is weighed. fields: of the setup, that it sets. alters: it trains something else."""

    name: str
    fields: Mapping[str, Any]
    cost: str
    side_effects: str = ""
    throughput_cost: float | None = None
    flag: str = ""
    alters: bool = False


class Trial(NamedTuple):
    """A change, the setup with it and its step, worst moment alone."""

    candidate: Candidate
    setup: TrainingSetup
    step: StepMemory


def try_changes(
    shape: Architecture, setup: TrainingSetup, alters: bool | None = None
) -> list[Trial]:
    """Every change that applies and that the rules allow. alters: only those that do, or that do not."""
    found: list[Trial] = []
    for candidate in list_candidates(shape, setup):
        if alters is not None and candidate.alters is not alters:
            continue
        try:
            changed = setup.vary(candidate.fields)
            found.append(Trial(candidate, changed, estimate_step(shape, changed, peak_only=True)))
        except InvalidParameter:
            continue
    return found


def rank_changes(
    shape: Architecture,
    setup: TrainingSetup,
    card: Card | None = None,
    scale: float = 1.0,
    step: StepMemory | None = None,
    beside: Mapping[str, int] = MappingProxyType({}),
    trials: Sequence[Trial] | None = None,
) -> tuple[Change, ...]:
    """All applicable single changes: those that fit first, then by memory saved.

    scale: calibration of the dynamic terms, applied to both sides of each difference.
    step, trials: the estimate as it is and with each change, where they have been made. beside: what stands
    there through the whole step.
    """
    peak = (step or estimate_step(shape, setup)).peak
    before = peak.total
    standing = sum(beside.values())
    found: list[Change] = []
    for candidate, changed, other in trials or try_changes(shape, setup):
        needed = size_need(other, changed, standing)[1]
        found.append(
            Change(
                name=candidate.name,
                saved_gib=(before - other.peak.total) / GIB * scale,
                needed_gib=needed.expected,
                fits=choose_fit(needed, card) in (Fit.FITS, Fit.TIGHT),
                throughput_cost=candidate.throughput_cost,
                cost=candidate.cost,
                side_effects=candidate.side_effects,
                flag=candidate.flag,
                reason=_explain_difference(peak, other.peak),
            )
        )
    return tuple(sorted(found, key=lambda change: (not change.fits, -change.saved_gib)))


def _explain_difference(before: Moment, after: Moment) -> str:
    """The two terms that move most, e.g. `optimizer 11.2 to 0.0, gradients 5.6 to 2.8 GiB`."""
    old, new = before.terms, after.terms
    moved = sorted(
        (-abs(new.get(name, 0) - old.get(name, 0)), name)
        for name in old.keys() | new.keys()
        if old.get(name) != new.get(name)
    )
    parts = [
        f"{name} {old.get(name, 0) / GIB:.1f} to {new.get(name, 0) / GIB:.1f}"
        for size, name in moved[:2]
        if -size >= GIB // 20
    ]
    if not parts:
        return "no term moves by more than 0.05 GiB"
    where = "" if before.phase is after.phase else f"; the peak moves to the {after.phase}"
    return ", ".join(parts) + " GiB" + where


def list_candidates(shape: Architecture, setup: TrainingSetup) -> Iterator[Candidate]:
    """Every change that applies to the setup."""
    yield from _list_activation_changes(setup)
    yield from _list_state_changes(setup)
    yield from _list_parallel_changes(shape, setup)


def _list_activation_changes(setup: TrainingSetup) -> Iterator[Candidate]:
    megatron = setup.framework is Framework.MEGATRON
    if setup.recompute is not Recompute.FULL:
        yield Candidate(
            "full activation recomputation",
            {"recompute": Recompute.FULL},
            "one more forward: about +33 % compute",
            "results unchanged",
            1 / 3,
            "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1"
            if megatron
            else "model.gradient_checkpointing_enable()",
        )
    if setup.recompute is Recompute.NONE:
        flash = setup.attention is not Attention.EAGER
        yield Candidate(
            "selective recomputation of the attention core",
            {"recompute": Recompute.SELECTIVE},
            "a few percent of compute",
            "does next to nothing here: flash attention keeps no score matrix"
            if flash
            else "results unchanged",
            0.03,
            "--recompute-granularity selective" if megatron else "",
        )
    if setup.attention is Attention.EAGER:
        yield Candidate(
            "flash attention instead of written-out scores",
            {"attention": Attention.SDPA},
            "none: faster",
            "needs half precision; returns no attention weights",
            -0.1,
            "--attention-backend flash" if megatron else "attn_implementation='sdpa'",
        )
    if setup.micro_batch > 1:
        yield Candidate(
            "half the micro-batch, twice the accumulation",
            {
                "micro_batch": max(1, setup.micro_batch // 2),
                "micro_batches": setup.micro_batches * 2,
            },
            "smaller matmuls, usually 0 to 15 %",
            "same global batch; gradients then stand through the forward",
            0.05,
            "--micro-batch-size" if megatron else "per_device_train_batch_size",
        )
    if not setup.loss_fused:
        yield Candidate(
            "fused or chunked cross-entropy",
            {"loss_fused": True, "loss_bytes": 0.0},
            "about none",
            "logits are no longer returned",
            0.0,
            "--cross-entropy-loss-fusion --cross-entropy-fusion-impl te" if megatron else "",
        )
    if setup.sequence >= 2048:
        yield Candidate(
            "half the sequence length",
            {"sequence": setup.sequence // 2},
            "none per token",
            "changes the training data: shorter context",
            0.0,
            alters=True,
        )


def _list_state_changes(setup: TrainingSetup) -> Iterator[Candidate]:
    yield from _list_optimizer_changes(setup)
    if setup.data * setup.context > 1:
        yield from _list_sharding_changes(setup)
    yield from _list_adapter_changes(setup)


def _list_optimizer_changes(setup: TrainingSetup) -> Iterator[Candidate]:
    megatron = setup.framework is Framework.MEGATRON
    if setup.states.step_lists:
        yield Candidate(
            "fused optimizer step",
            {"optimizer": "adamw_fused"},
            "none: faster",
            "same update up to rounding",
            0.0,
            "fused=True",
        )
    if setup.states.moments == 2 and not megatron:
        yield Candidate(
            "8-bit Adam moments",
            {"optimizer": "adamw_8bit"},
            "small",
            "quantised moments: watch the loss; checkpoints change format",
            0.02,
            "optim='adamw_bnb_8bit'",
            alters=True,
        )
    if setup.states.moments and not setup.offload_optimizer:
        yield Candidate(
            "optimizer states in host memory",
            {"offload_optimizer": True},
            "large: a transfer of all states every step",
            "needs the host memory",
            None,
            "--optimizer-cpu-offload" if megatron else "offload_optimizer",
        )
    if setup.precision in (Precision.AMP, Precision.FP16_AMP) and not setup.lora_rank:
        yield Candidate(
            "bf16 weights and optimizer throughout",
            {"precision": Precision.BF16},
            "none: faster",
            "small updates are lost to rounding: convergence may suffer",
            0.0,
            alters=True,
        )


def _list_sharding_changes(setup: TrainingSetup) -> Iterator[Candidate]:
    """What several data-parallel ranks can split."""
    megatron = setup.framework is Framework.MEGATRON
    if megatron and not setup.distributed_optimizer:
        yield Candidate(
            "distributed optimizer",
            {"distributed_optimizer": True},
            "about none (reduce-scatter and all-gather replace the all-reduce)",
            "checkpoints hold sharded states",
            0.01,
            "--use-distributed-optimizer",
        )
    if not megatron and setup.sharding in (Sharding.NONE, Sharding.DDP):
        yield Candidate(
            "ZeRO-1: optimizer states split over the data-parallel ranks",
            {"sharding": Sharding.ZERO1},
            "about none",
            "checkpoints hold sharded states",
            0.02,
        )
    if setup.sharding not in (Sharding.FSDP, Sharding.ZERO3):
        yield Candidate(
            "FSDP (ZeRO-3): weights, gradients and states split over the data-parallel ranks",
            {"sharding": Sharding.FSDP, "distributed_optimizer": False},
            "weights gathered twice a step: little inside a node, more across",
            "sharded checkpoints; layers stand unsharded two at a time",
            0.1,
        )


def _list_adapter_changes(setup: TrainingSetup) -> Iterator[Candidate]:
    megatron = setup.framework is Framework.MEGATRON
    if not setup.lora_rank and setup.states.moments and not megatron:
        yield Candidate(
            "LoRA, rank 16 on all linear layers",
            {"lora_rank": 16},
            "none: faster",
            "trains adapters only: another result",
            0.0,
            "peft.LoraConfig",
            alters=True,
        )
    if setup.lora_rank and not setup.quantized_bits:
        yield Candidate(
            "QLoRA: the frozen base in NF4",
            {"quantized_bits": 4},
            "dequantisation in every matmul",
            "base weights are rounded to 4 bits",
            0.3,
            "BitsAndBytesConfig(load_in_4bit=True)",
            alters=True,
        )


def _list_parallel_changes(shape: Architecture, setup: TrainingSetup) -> Iterator[Candidate]:
    megatron = setup.framework is Framework.MEGATRON
    more = "data-parallel size halves at the same number of GPUs"
    if megatron and setup.tensor > 1 and not setup.sequence_parallel:
        yield Candidate(
            "sequence parallelism",
            {"sequence_parallel": True},
            "none (all-gather and reduce-scatter replace the all-reduce)",
            "",
            0.0,
            "--sequence-parallel",
        )
    if megatron and setup.data % 2 == 0:
        yield Candidate(
            f"tensor parallelism {setup.tensor * 2} with sequence parallelism",
            {
                "tensor": setup.tensor * 2,
                "sequence_parallel": True,
                "expert_tensor": setup.expert_tensor if shape.experts else 0,
                "micro_batches": setup.micro_batches * 2,
                "pad_vocab": 0,
            },
            "more communication in every layer; keep it inside the NVLink domain",
            more + "; needs resharding of the checkpoint",
            0.1,
            "--tensor-model-parallel-size",
        )
        yield Candidate(
            f"pipeline parallelism {setup.pipeline * 2}",
            {"pipeline": setup.pipeline * 2, "micro_batches": setup.micro_batches * 2},
            "pipeline bubble (p-1)/m grows",
            "does not shrink the first stage's activations: it holds p micro-batches in flight; "
            + more,
            0.1,
            "--pipeline-model-parallel-size",
        )
    if megatron and setup.pipeline > 1:
        yield Candidate(
            f"interleaved schedule, {setup.virtual * 2} chunks a stage",
            {"virtual": setup.virtual * 2},
            "smaller bubble: faster",
            "VPP raises memory: more chunks in flight",
            -0.05,
            "--num-virtual-stages-per-pipeline-rank",
        )
    if setup.data % 2 == 0 and setup.sequence % 2 == 0 and megatron:
        yield Candidate(
            f"context parallelism {setup.context * 2}",
            {"context": setup.context * 2, "micro_batches": setup.micro_batches * 2},
            "key-value exchange in every attention",
            more,
            0.08,
            "--context-parallel-size",
        )
    if shape.experts and setup.expert * 2 <= shape.experts:
        yield Candidate(
            f"expert parallelism {setup.expert * 2}",
            {"expert": setup.expert * 2},
            "all-to-all over more ranks",
            "divides expert weights only: EP does not divide expert activations",
            0.1,
            "--expert-model-parallel-size",
        )
    sharded = setup.distributed_optimizer or setup.sharding not in (Sharding.NONE, Sharding.DDP)
    if sharded:
        yield Candidate(
            "twice the data-parallel ranks (twice the GPUs)",
            {"world": setup.world * 2},
            "twice the GPUs",
            "shards of the states halve; activations stay",
            0.0,
        )
