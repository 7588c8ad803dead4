"""How big is a checkpoint and how long does writing it take? The calculator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from firstfault_tools.findings import Json
from firstfault_tools.registry import Calculator

PARAMETERS: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "parameters": {"type": "integer", "minimum": 1, "description": "of the whole model"},
        "model": {"type": "string", "description": "a known model instead of a parameter count"},
        "content": {"enum": ["weights", "mixed_adam", "fp32_adam", "fp32_weights"]},
        "bytes_per_parameter": {"type": "number", "exclusiveMinimum": 0},
        "writers": {"type": "integer", "minimum": 1, "description": "ranks that write"},
        "bandwidth_gbs": {"type": "number", "exclusiveMinimum": 0},
        "per_writer_gbs": {"type": "number", "exclusiveMinimum": 0},
        "keep": {"type": "integer", "minimum": 1, "description": "checkpoints kept"},
    },
}


def run_size(
    parameters: int | None = None,
    model: str | None = None,
    content: str = "mixed_adam",
    bytes_per_parameter: float | None = None,
    writers: int = 1,
    bandwidth_gbs: float | None = None,
    per_writer_gbs: float | None = None,
    keep: int = 1,
) -> Mapping[str, Json]:
    """Sizes in GB (10^9) and GiB, time in seconds. Raises InvalidParameter."""
    from firstfault_tools.checkpoint.size import GB, Content, size_checkpoint
    from firstfault_tools.errors import InvalidParameter
    from firstfault_tools.memory.configuration import build_run
    from firstfault_tools.memory.models import find_model

    if parameters is None:
        if model is None:
            raise InvalidParameter("parameters", "give a parameter count or a known model")
        parameters = build_run(find_model(model)).shape.parameters
    try:
        kind = Content(content)
    except ValueError:
        raise InvalidParameter("content", f"must be one of {', '.join(Content)}") from None
    found = size_checkpoint(
        parameters, content=kind, bytes_per_parameter=bytes_per_parameter, writers=writers,
        bandwidth_gbs=bandwidth_gbs, per_writer_gbs=per_writer_gbs, keep=keep,
    )  # fmt: skip
    wait = "" if found.write_seconds is None else f", written in {found.write_seconds:.0f} s"
    return {
        "schema": "firstfault.checkpoint-size/1",
        "sentence": f"A checkpoint of {parameters / 1e9:.2f} billion parameters at "
        f"{found.bytes_per_parameter:g} bytes each is {found.total_bytes / GB:.1f} GB{wait}; {keep} kept "
        f"take {found.retained_bytes / GB:.1f} GB.",
        "assumptions": [] if bytes_per_parameter else [f"content {kind}: state it with --content"],
        "parameters": parameters,
        "bytes_per_parameter": found.bytes_per_parameter,
        "total_gb": round(found.total_bytes / GB, 3),
        "total_gib": round(found.total_bytes / 2**30, 3),
        "per_rank_gb": round(found.per_rank_bytes / GB, 4),
        "write_s": None if found.write_seconds is None else round(found.write_seconds, 3),
        "retained_gb": round(found.retained_bytes / GB, 3),
        "weights_only_gb": round(parameters * 2 / GB, 3),
    }


CALCULATOR = Calculator(
    name="checkpoint_size",
    summary="Size of a checkpoint, per-rank share, write time at a bandwidth, space of those kept",
    parameters=PARAMETERS,
    run=run_size,
)
