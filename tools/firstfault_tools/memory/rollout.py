"""What stands on a GPU in each phase of a reinforcement-learning step: rollout, scoring, update?

Actor, reference and critic beside an inference engine with its weights and its key-value cache. States
follow the memory estimate of the update; what a recipe moves to the host between phases is left out where it is
not in use.
"""

from __future__ import annotations

from collections.abc import Mapping

from firstfault_tools.dataclass import dataclass
from firstfault_tools.memory.architecture import Architecture
from firstfault_tools.memory.estimate import StepMemory
from firstfault_tools.memory.setup import Framework, Sharding, TrainingSetup
from firstfault_tools.memory.sizes import GIB
from firstfault_tools.memory.states import size_states

RESIDENT = "resident"
SCORE_BYTES = 10
"""Logits in half precision, an fp32 copy and its log-softmax."""


@dataclass(frozen=True, slots=True)
class Rollout:
    """How answers are generated and who stands beside the actor.

    sequences: generated at once by one engine. engine: GPUs of one engine with weights of its own, 0 where the
    actor generates. share: part of the card that the engine reserves, 0: what it needs. chunk: tokens of
    prompts read at once, 0: all. moved: what is on the host outside its phase (actor weights, actor optimizer,
    reference). sleeps: the engine frees its memory outside the rollout. colocated: all on the same cards.
    """

    prompt: int
    response: int
    sequences: int
    engine: int = 0
    share: float = 0.0
    chunk: int = 0
    critic: bool = False
    reference: bool = True
    colocated: bool = True
    sleeps: bool = True
    moved: frozenset[str] = frozenset()


def size_token(shape: Architecture) -> int:
    """Bytes of one token in the key-value cache, in half precision, over all layers."""
    layers = shape.layers
    if shape.hybrid is not None:
        layers = sum("attention" in kind.split() for kind in shape.hybrid.layers)
    if shape.latent is not None:
        return 2 * layers * (shape.latent.kv_rank + shape.latent.rope)
    return 2 * 2 * layers * shape.kv_width


def size_cache(shape: Architecture, rollout: Rollout) -> int:
    """Bytes on one GPU of the cache of all sequences at full length."""
    length = rollout.prompt + rollout.response
    return size_token(shape) * rollout.sequences * length // max(1, rollout.engine)


def size_phases(
    shape: Architecture,
    setup: TrainingSetup,
    rollout: Rollout,
    step: StepMemory,
    capacity_gib: float | None = None,
) -> dict[str, dict[str, int]]:
    """Bytes on one GPU of the training cards by phase and term, and what is resident between phases."""
    weights, _ = _split_states(shape, setup, step)
    idle = _size_idle(shape, setup, rollout, step)
    frozen = size_reference(shape, setup) if rollout.reference else 0
    engine = _size_engine(shape, rollout, capacity_gib)
    tokens = setup.micro_batch * setup.sequence // setup.context
    scores = tokens * shape.vocab * SCORE_BYTES // setup.tensor if rollout.reference else 0
    scoring = {**idle, **({} if rollout.sleeps else engine), "reference": frozen, "logits": scores}
    if "actor weights" in rollout.moved and weights > frozen:
        scoring["weights brought back"] = weights - frozen
    beside = size_beside(shape, setup, rollout, step, capacity_gib)
    found = {
        "rollout": {**idle, **engine} if rollout.colocated else engine,
        "scoring": scoring,
        "update": {**beside, "actor's step": step.peak.total},
        RESIDENT: idle,
    }
    return {
        phase: {name: size for name, size in terms.items() if size}
        for phase, terms in found.items()
    }


def size_beside(
    shape: Architecture,
    setup: TrainingSetup,
    rollout: Rollout,
    step: StepMemory,
    capacity_gib: float | None = None,
) -> dict[str, int]:
    """Bytes that stand beside the actor through its update: critic, reference, an engine that stays awake."""
    idle = _size_idle(shape, setup, rollout, step)
    terms = {"critic": idle.get("critic", 0), "reference": idle["reference"]}
    if rollout.colocated and not rollout.sleeps:
        terms["inference engine"] = sum(_size_engine(shape, rollout, capacity_gib).values())
    return {name: size for name, size in terms.items() if size}


def _size_idle(
    shape: Architecture, setup: TrainingSetup, rollout: Rollout, step: StepMemory
) -> dict[str, int]:
    """What is left on the GPU of models that are not at work."""
    weights, states = _split_states(shape, setup, step)
    left = (0 if "actor weights" in rollout.moved else weights) + (
        0 if "actor optimizer" in rollout.moved else states
    )
    frozen = size_reference(shape, setup) if rollout.reference else 0
    frozen = 0 if "reference" in rollout.moved else frozen
    return {"actor": left, **({"critic": left} if rollout.critic else {}), "reference": frozen}


def size_reference(shape: Architecture, setup: TrainingSetup) -> int:
    """Bytes of the frozen model in half precision, split as the actor is."""
    split = setup.world if setup.sharding is not Sharding.NONE else 1
    if setup.framework is Framework.MEGATRON:
        split = setup.tensor * setup.pipeline * setup.expert
    return 2 * shape.parameters // split


def _split_states(shape: Architecture, setup: TrainingSetup, step: StepMemory) -> tuple[int, int]:
    """Bytes of one trained model between steps: weights, and all else that stays."""
    if step.staged:
        return step.weights, step.after_step - step.weights
    states = size_states(shape, setup)
    return states.weights + states.rounding, states.master + states.moments + states.buckets


def _size_engine(
    shape: Architecture, rollout: Rollout, capacity_gib: float | None
) -> dict[str, int]:
    weights = 2 * shape.parameters // rollout.engine if rollout.engine else 0
    # Reading the prompts: one layer's MLP and fp32 norm over what is read at once.
    read = rollout.sequences * rollout.prompt
    if rollout.chunk:
        read = min(read, rollout.chunk)
    width = shape.ffn or shape.expert_ffn * max(1, shape.experts_per_token)
    prompts = read * (2 * shape.mlp_matrices * width + 8 * shape.hidden) // max(1, rollout.engine)
    cache = size_cache(shape, rollout)
    if rollout.share and capacity_gib:
        # The engine takes its whole share at once: the cache is what weights and work leave of it.
        cache = max(0, int(rollout.share * capacity_gib * GIB) - weights - prompts)
    elif not rollout.engine:
        # The cache grows with the answer: while prompts are read it holds these alone, and later a token is added
        # by a copy of one layer's keys or values.
        copied = cache // (2 * max(1, shape.layers))
        later = cache - size_token(shape) * rollout.sequences * rollout.prompt
        prompts = max(prompts - later, copied)
    return {"engine's weights": weights, "KV cache": cache, "prompts being read": prompts}


def write_phases(
    phases: Mapping[str, Mapping[str, int]], rollout: Rollout, shape: Architecture
) -> str:
    """The phases in one sentence, the deciding one named."""
    sizes = {
        phase: sum(terms.values()) / GIB for phase, terms in phases.items() if phase != RESIDENT
    }
    cache = phases["rollout"].get("KV cache", 0) / GIB
    need = size_cache(shape, rollout) / GIB
    full = f", {need:.1f} wanted by all sequences at full length" if need > cache * 1.05 else ""
    worst = max(sizes, key=lambda name: sizes[name])
    where = "" if rollout.colocated else " on cards of its own"
    return (
        f"Rollout {sizes['rollout']:.1f} GiB{where} (KV cache {cache:.1f}{full}), scoring "
        f"{sizes['scoring']:.1f}, update {sizes['update']:.1f} GiB a GPU: the {worst} decides."
    )
