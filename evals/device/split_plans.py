"""Which splits of which model are measured, and what does the estimator say of each? Needs no torch."""

from __future__ import annotations

from dataclasses import dataclass

from firstfault_tools.memory.architecture import Activation, Architecture, Norm
from firstfault_tools.memory.megatron_step import size_stage
from firstfault_tools.memory.setup import Attention, Framework, Precision, Recompute, TrainingSetup


@dataclass(frozen=True)
class Shape:
    """One model and how it is split. layers: of the whole model."""

    layers: int
    hidden: int
    heads: int
    ffn: int
    vocab: int
    sequence: int
    batch: int
    tensor: int
    stages: int


@dataclass(frozen=True)
class Plan:
    """One split of the model."""

    tensor: int
    stages: int
    micro_batches: int
    recompute: bool
    hidden: int = 4096
    layers: int = 16
    sequence: int = 4096
    batch: int = 1


def list_plans(gpus: int) -> list[Plan]:
    """Tensor parallel, pipeline, and both, over all GPUs."""
    plans = []
    tensor = gpus
    while tensor >= 1:
        stages = gpus // tensor
        count = 1 if stages == 1 else 2 * stages
        plans += [Plan(tensor, stages, count, recompute) for recompute in (False, True)]
        tensor //= 2
    plans += [
        Plan(gpus, 1, 1, False, hidden=2048, layers=24, sequence=2048, batch=4),
        Plan(1, gpus, 4 * gpus, False, hidden=2048, layers=24, sequence=2048, batch=4),
    ]
    return plans


def shape_of(plan: Plan) -> Shape:
    return Shape(
        plan.layers,
        plan.hidden,
        plan.hidden // 128,
        4 * plan.hidden,
        50_304 if 50_304 % (128 * plan.tensor) == 0 else 128 * plan.tensor * 64,
        plan.sequence,
        plan.batch,
        plan.tensor,
        plan.stages,
    )


def predict_rank(plan: Plan, stage: int) -> dict[str, int]:
    """What the estimator says for one stage, bytes by term."""
    shape = shape_of(plan)
    model = Architecture(
        hidden=shape.hidden,
        layers=shape.layers,
        heads=shape.heads,
        kv_heads=shape.heads,
        head_dim=128,
        ffn=shape.ffn,
        vocab=shape.vocab,
        gated=False,
        norm=Norm.LAYER,
        activation=Activation.GELU,
    )
    setup = TrainingSetup(
        sequence=plan.sequence,
        micro_batch=plan.batch,
        micro_batches=plan.micro_batches,
        framework=Framework.MEGATRON,
        precision=Precision.BF16,
        attention=Attention.FLASH,
        recompute=Recompute.FULL if plan.recompute else Recompute.NONE,
        world=plan.tensor * plan.stages,
        tensor=plan.tensor,
        pipeline=plan.stages,
        sequence_parallel=plan.tensor > 1,
    )
    setup.check(model)
    return size_stage(model, setup, stage)
