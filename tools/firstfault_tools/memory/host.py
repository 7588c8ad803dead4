"""How much host memory does a run take that moves states or activations off the GPU?

ZeRO-Offload keeps the fp32 copy, both moments and the fp32 gradients of a rank's partition in host memory
(deepspeed/runtime/zero/stage_1_and_2.py and stage3.py), pinned where `pin_memory` is set; parameters
offloaded in stage 3 stand there in half precision as well. FSDP's CPU offload keeps its shard of weights,
gradients and moments there. PyTorch's pinned allocator rounds a buffer up to a power of two
(aten/src/ATen/core/CachingHostAllocator.h): measured, 14.6 GiB a rank pinned where 10.8 stood unpinned.
"""

from __future__ import annotations

from firstfault_tools.memory.architecture import Architecture
from firstfault_tools.memory.megatron_step import count_stage_parameters
from firstfault_tools.memory.setup import Framework, Sharding, TrainingSetup
from firstfault_tools.memory.states import offloads_whole_step

PROCESS = 2**30
"""A process's own libraries, measured: 0.95 to 1 GiB a rank (PyTorch 2.11, CUDA 13)."""


def size_host(shape: Architecture, setup: TrainingSetup) -> dict[str, int]:
    """Bytes in host memory per rank by term; empty where nothing is offloaded.

    Times the ranks of a node for the node. A data loader's workers come on top.
    """
    if not (setup.offload_optimizer or setup.offload_parameters):
        return {}
    trained = _count_shard(shape, setup)
    found: dict[str, int] = {}
    width = setup.weight_bytes
    if offloads_whole_step(setup):
        found["moments"] = int(trained * (setup.states.moments * width + setup.states.state_bytes))
        found["gradients"] = width * trained
    elif setup.offload_optimizer:
        found["moments"] = int(trained * (setup.states.moments * 4 + setup.states.state_bytes))
        if setup.framework is not Framework.HUGGINGFACE or width == 2:
            found["master weights"] = 4 * trained
        # Stage 3 keeps them in half precision until the step, a slice at a time in fp32.
        found["gradients"] = (2 if setup.sharding is Sharding.ZERO3 else 4) * trained
    if setup.offload_parameters:
        found["weights"] = width * trained
    if setup.host_pinned and setup.sharding in (Sharding.ZERO1, Sharding.ZERO2):
        kept = sum(_round_up(found.get(name, 0)) for name in ("master weights", "gradients"))
        found["pinned rounding"] = kept - found.get("master weights", 0) - found.get("gradients", 0)
    found["libraries"] = PROCESS
    return {name: size for name, size in found.items() if size}


NODE = 8
"""GPUs of a node, where the run has as many."""


def size_node(shape: Architecture, setup: TrainingSetup) -> dict[str, int]:
    """Bytes of host memory on a node, unpinned and pinned, and the ranks that share it."""
    ranks = min(NODE, setup.world)
    sizes = {
        name: ranks * sum(size_host(shape, setup.vary({"host_pinned": pinned})).values())
        for name, pinned in (("unpinned", False), ("pinned", True))
    }
    return {"ranks": ranks, **sizes} if sizes["unpinned"] else {}


def _count_shard(shape: Architecture, setup: TrainingSetup) -> int:
    """Elements whose optimizer states one rank keeps: of the fullest stage where stages differ."""
    ranks = setup.data * setup.context
    split = setup.distributed_optimizer or setup.sharding in (
        Sharding.ZERO1, Sharding.ZERO2, Sharding.ZERO3, Sharding.FSDP,
    )  # fmt: skip
    if setup.framework is not Framework.MEGATRON:
        return shape.parameters // (setup.tensor * setup.pipeline * (ranks if split else 1))
    found = 0
    for stage in sorted({0, setup.pipeline - 1}):
        held = count_stage_parameters(shape, setup, stage)
        common = held.common // (ranks if split else 1)
        found = max(found, common + held.experts // (setup.expert_data if split else 1))
    return found


def _round_up(size: int) -> int:
    return 1 << (size - 1).bit_length() if size > 0 else 0
