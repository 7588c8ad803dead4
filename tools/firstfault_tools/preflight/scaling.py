"""What changes when a job grows from so many GPUs to so many? The figures behind the scaling-up list.

Per-rank work and layout (tensor, pipeline, micro-batch) are taken to stay; data-parallel ranks grow.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import sqrt
from typing import Any

from firstfault_tools.dataclass import dataclass
from firstfault_tools.errors import InvalidParameter
from firstfault_tools.findings import Json
from firstfault_tools.registry import Calculator

FAILURES_PER_GPU_HOUR = 419 / (54 * 24 * 16_384)
"""Unexpected interruptions of Llama 3 405B: 419 in 54 days on 16,384 H100s (arXiv 2407.21783, section 3.3.4)."""


@dataclass(frozen=True, slots=True)
class Growth:
    """A job before and after. replica: GPUs that hold one copy of the model (tensor x pipeline x context)."""

    gpus: int
    gpus_after: int
    replica: int
    micro_batch: int
    global_batch: int | None
    pipeline: int
    save_seconds: float | None
    learning_rate: float | None


def plan_growth(growth: Growth) -> dict[str, str]:
    """Answer of each item of the scaling-up list that can be computed, by its id."""
    found: dict[str, str] = {}
    before, after = growth.gpus // growth.replica, growth.gpus_after // growth.replica
    found["batch-and-rate"] = _tell_batch(growth, before, after)
    if growth.pipeline > 1 and growth.global_batch:
        found["bubble"] = _tell_bubble(growth, growth.global_batch, before, after)
    found["interval"] = _tell_interval(growth)
    found["data-shards"] = (
        f"{before} readers of different data become {after}: every rank needs a shard of its own, "
        f"and storage serves {after / before:g} times the reads"
    )
    found["start-up"] = (
        f"{growth.gpus_after} ranks meet at one store: rank 0 holds at least {growth.gpus_after} connections "
        f"(ulimit -n), and start-up takes longer than that of {growth.gpus}"
    )
    found["reshard"] = (
        f"optimizer shards of {before} data-parallel ranks are read by {after}: formats that reshard "
        "(torch_dist, DCP) load as they are, others must be converted"
    )
    found["fabric"] = f"{max(0, growth.gpus_after - growth.gpus)} GPUs are new to this job"
    return found


def _tell_batch(growth: Growth, before: int, after: int) -> str:
    if growth.global_batch is None:
        return (
            f"data-parallel ranks go from {before} to {after}: at the same micro-batch and accumulation "
            f"the global batch grows {after / before:g} times"
        )
    size, micro = growth.global_batch, growth.micro_batch
    fits, rest = divmod(size, after * micro)
    if fits and not rest:
        kept = f"to keep a global batch of {size}, accumulation goes from {size // (before * micro)} to {fits}"
    else:
        near = " or ".join(str(n * after * micro) for n in (fits, fits + 1) if n)
        kept = f"a global batch of {size} does not divide by {after} ranks x micro-batch {micro}: take {near}"
    said = f"{kept}; else the batch becomes {size * after // before} and the learning rate has to be chosen again"
    rate = growth.learning_rate
    if rate is None:
        return said
    return f"{said} ({rate:g} -> {rate * sqrt(after / before):.3g} by the square root, {rate * after / before:.3g} linearly)"


def _tell_bubble(growth: Growth, global_batch: int, before: int, after: int) -> str:
    """The bubble of 1F1B, (p-1)/(m+p-1) of the step (arXiv 2104.04473)."""
    p = growth.pipeline
    m, m_after = (max(1, global_batch // (n * growth.micro_batch)) for n in (before, after))
    share, share_after = ((p - 1) / (count + p - 1) for count in (m, m_after))
    return (
        f"at the same global batch a pipeline of {p} stages has {m_after} micro-batches instead of {m}: "
        f"its bubble goes from {share:.1%} to {share_after:.1%} of the step (1F1B)"
    )


def _tell_interval(growth: Growth) -> str:
    from firstfault_tools.checkpoint.interval import HOUR, derive_mtbf, find_daly

    spans = [derive_mtbf(n, FAILURES_PER_GPU_HOUR) for n in (growth.gpus, growth.gpus_after)]
    told = f"a failure every {spans[1] / HOUR:.0f} h instead of {spans[0] / HOUR:.0f} h at the rate of Llama 3 on H100s"
    if growth.save_seconds is None:
        times = sqrt(spans[0] / spans[1])
        return (
            f"{told}: the best interval shrinks {times:.2f} times; say --save-seconds for minutes"
        )
    best = [find_daly(growth.save_seconds, span) / 60 for span in spans]
    return f"{told}: save every {best[1]:.0f} minutes instead of {best[0]:.0f}"


def run_scaling(
    gpus: int,
    gpus_after: int,
    tensor: int = 1,
    pipeline: int = 1,
    context: int = 1,
    micro_batch: int = 1,
    global_batch: int | None = None,
    save_seconds: float | None = None,
    learning_rate: float | None = None,
) -> Mapping[str, Json]:
    """What changes between two sizes of a job. Raises InvalidParameter."""
    replica = tensor * pipeline * context
    for name, count in (("gpus", gpus), ("gpus_after", gpus_after)):
        if count < replica or count % replica:
            raise InvalidParameter(
                name, f"must be a multiple of tensor x pipeline x context = {replica}, got {count}"
            )
    growth = Growth(
        gpus, gpus_after, replica, micro_batch, global_batch, pipeline, save_seconds, learning_rate
    )  # fmt: skip
    found = plan_growth(growth)
    items: list[Json] = [{"id": key, "answer": text} for key, text in found.items()]
    return {
        "schema": "firstfault.scaling/1",
        "sentence": f"From {gpus} to {gpus_after} GPUs: {found['batch-and-rate']}.",
        "assumptions": [
            "tensor, pipeline, context sizes and micro-batch stay: state them",
            f"{FAILURES_PER_GPU_HOUR:.1e} failures a GPU-hour (arXiv 2407.21783)",
        ],
        "items": items,
    }


_COUNT: dict[str, Any] = {"type": "integer", "minimum": 1}
_POSITIVE: dict[str, Any] = {"type": "number", "exclusiveMinimum": 0}
CALCULATOR = Calculator(
    name="scaling_up",
    summary="What changes when a job grows from N to M GPUs: batch, learning rate, bubble, checkpoint interval, data, start-up",
    parameters={
        "type": "object",
        "required": ["gpus", "gpus_after"],
        "additionalProperties": False,
        "properties": {
            "gpus": _COUNT,
            "gpus_after": _COUNT,
            "tensor": _COUNT,
            "pipeline": _COUNT,
            "context": _COUNT,
            "micro_batch": _COUNT,
            "global_batch": _COUNT,
            "save_seconds": _POSITIVE,
            "learning_rate": _POSITIVE,
        },
    },
    run=run_scaling,
)
