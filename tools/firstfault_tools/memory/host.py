"""How much host memory does a run take that moves states or activations off the GPU?

DeepSpeed keeps of a rank's partition (0.19, deepspeed/runtime/zero):
- stages 1 and 2 (stage_1_and_2.py): the fp32 copy, its gradients in fp32 and a half-precision copy, all three pinned
  where `pin_memory` is set; both moments, never pinned; the largest tensor's gradient;
- stage 3 (stage3.py): the fp32 copy and both moments, never pinned; the gradients in half precision and, by
  sub-groups, in fp32, pinned where set; offloaded weights, always pinned.
FSDP's CPU offload keeps its shard of weights, gradients and moments there. PyTorch's pinned allocator rounds a
buffer up to a power of two and gives nothing back (aten/src/ATen/core/CachingHostAllocator.h).
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
    elif setup.framework is Framework.DEEPSPEED:
        return _size_deepspeed(shape, setup, trained)
    elif setup.offload_optimizer:
        found["moments"] = int(trained * (setup.states.moments * 4 + setup.states.state_bytes))
        if setup.framework is not Framework.HUGGINGFACE or width == 2:
            found["master weights"] = 4 * trained
        found["gradients"] = 4 * trained
    if setup.offload_parameters:
        found["weights"] = width * trained
    found["libraries"] = PROCESS
    return {name: size for name, size in found.items() if size}


SUB_GROUP = 1_000_000_000
"""DeepSpeed's default sub_group_size, in elements of the whole model (deepspeed/runtime/zero/config.py)."""


def _size_deepspeed(shape: Architecture, setup: TrainingSetup, partition: int) -> dict[str, int]:
    """Bytes by term of one rank; `partition` elements are its share."""
    third = setup.sharding is Sharding.ZERO3
    width = setup.weight_bytes
    found = {"libraries": PROCESS}
    pinned: list[int] = []
    if setup.offload_optimizer:
        found["moments"] = int(partition * (setup.states.moments * 4 + setup.states.state_bytes))
        found["master weights"] = 4 * partition
        if third:
            # A sub-group is of the whole model: each rank has its share of it.
            size = max(1, SUB_GROUP * partition // shape.parameters)
            full, rest = divmod(partition, size)
            found["gradients"] = (width + 4) * partition
            pinned += [width * partition, *[4 * size] * full, 4 * rest]
        else:
            found["gradients"] = 4 * partition
            found["half-precision copy"] = 2 * partition
            found["gradient buffer"] = 2 * shape.vocab * shape.hidden
            pinned += [4 * partition, 4 * partition, 2 * partition]
    if not setup.host_pinned:
        pinned = []
    if setup.offload_parameters:
        found["weights"] = width * partition
        pinned.append(width * partition)
        if setup.host_pinned:
            # Each parameter's own partition was pinned before they were put together.
            found["pinned before they were joined"] = width * partition
    found["pinned rounding"] = sum(_round_up(size) - size for size in pinned)
    return {name: size for name, size in found.items() if size > 0}


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
