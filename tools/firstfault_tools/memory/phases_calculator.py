"""How much do the phases of a reinforcement-learning step take: rollout, scoring, update? The calculator.

Actor, reference and critic (or reward model) of one size on the same GPU. States follow the memory
calculator; a rollout adds weights of an inference engine, if it is one of its own, and its KV cache.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from firstfault_tools.findings import Json
from firstfault_tools.registry import Calculator

PARAMETERS: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["model", "prompt", "response", "rollouts"],
    "properties": {
        "model": {"type": "string", "description": "a model known by name"},
        "prompt": {"type": "integer", "minimum": 1, "description": "tokens"},
        "response": {"type": "integer", "minimum": 1, "description": "tokens"},
        "rollouts": {
            "type": "integer",
            "minimum": 1,
            "description": "sequences generated at once a GPU",
        },
        "micro_batch": {"type": "integer", "minimum": 1},
        "world": {"type": "integer", "minimum": 1},
        "sharding": {"enum": ["none", "zero2", "zero3", "fsdp"]},
        "precision": {"enum": ["amp", "bf16", "bf16_master"]},
        "critic": {"type": "boolean", "description": "a critic of the same size is trained (PPO)"},
        "reference": {"type": "boolean"},
        "own_engine": {"type": "boolean", "description": "vLLM or SGLang with weights of its own"},
        "recompute": {"enum": ["none", "full"]},
    },
}


def run_phases(
    model: str, prompt: int, response: int, rollouts: int, micro_batch: int = 1, world: int = 1,
    sharding: str | None = None, precision: str = "bf16", critic: bool = True, reference: bool = True,
    own_engine: bool = False, recompute: str = "none",
) -> Mapping[str, Json]:  # fmt: skip
    """GiB of each phase on one GPU. Raises InvalidParameter."""
    from firstfault_tools.memory.configuration import Draft, build_run
    from firstfault_tools.memory.models import find_model
    from firstfault_tools.memory.rollout import RESIDENT, Rollout, size_phases, write_phases
    from firstfault_tools.memory.sizes import GIB
    from firstfault_tools.memory.verdict import estimate_step

    setup: dict[str, Any] = {
        "sequence": prompt + response, "micro_batch": micro_batch, "world": world, "precision": precision,
        "micro_batches": max(1, rollouts // micro_batch), "recompute": recompute,
        "sharding": sharding or ("fsdp" if world > 1 else "none"),
    }  # fmt: skip
    run = build_run(find_model(model).merge(Draft({}, setup)))
    shape = run.shape
    rollout = Rollout(
        prompt, response, rollouts, engine=int(own_engine), critic=critic, reference=reference
    )
    phases = size_phases(shape, run.setup, rollout, estimate_step(shape, run.setup))
    sizes = {name: round(sum(terms.values()) / GIB, 2) for name, terms in phases.items()}
    resident = sizes.pop(RESIDENT)
    return {
        "schema": "firstfault.memory-phases/1",
        "sentence": write_phases(phases, rollout, shape),
        "phases_gib": sizes,
        "resident_gib": resident,
        "kv_cache_gib": round(phases["rollout"].get("KV cache", 0) / GIB, 2),
        "engine_weights_gib": round(phases["rollout"].get("engine's weights", 0) / GIB, 2),
        "parameters": shape.parameters,
        "assumptions": [
            *run.assumed,
            "actor, critic and reference have the same size" if critic else "no critic (GRPO)",
            "the cache is freed before scoring (vLLM: sleep mode; else add it to every phase)",
        ],
    }


CALCULATOR = Calculator(
    name="memory_phases",
    summary="Memory of the phases of a reinforcement-learning step on one GPU: rollout with its KV cache, "
    "scoring by the reference, update of actor and critic",
    parameters=PARAMETERS,
    run=run_phases,
)
