"""Can this checkpoint folder be resumed from, and on how many GPUs? The calculator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from firstfault_tools.findings import Json
from firstfault_tools.registry import Calculator

PARAMETERS: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["listing"],
    "properties": {
        "listing": {
            "type": "string",
            "description": "find DIR -type f -printf '%s %p\\n', ls -laR DIR, or a JSON list",
        },
        "contents": {
            "type": "object",
            "additionalProperties": {"type": "string"},
            "description": "text of tracker files by path: latest_checkpointed_iteration.txt, latest",
        },
        "tensor": {"type": "integer", "minimum": 1, "description": "wanted on load"},
        "pipeline": {"type": "integer", "minimum": 1},
        "expert": {"type": "integer", "minimum": 1},
        "data": {"type": "integer", "minimum": 1},
    },
}


def run_folder(
    listing: str, contents: Mapping[str, str] | None = None, **wanted: int | None
) -> Mapping[str, Json]:
    """What the folder holds. Raises UnreadableArtefact where the listing names no file.

    wanted: parallel sizes of the run that will load it; the answer says what must be resharded.
    """
    from firstfault_tools.checkpoint.folder import Format, inspect_folder
    from firstfault_tools.checkpoint.listing import read_listing
    from firstfault_tools.errors import InvalidParameter

    for name, size in wanted.items():
        if name not in ("tensor", "pipeline", "expert", "data"):
            raise InvalidParameter(name, "is not a known field")
        if size is not None and size < 1:
            raise InvalidParameter(name, f"must be at least 1, got {size}")
    folder = inspect_folder(read_listing(listing), contents)
    checkpoints: list[Json] = []
    for saved in folder.checkpoints:
        differs = {
            axis: [saved.parallelism[axis], size]
            for axis, size in wanted.items()
            if size is not None and axis in saved.parallelism and saved.parallelism[axis] != size
        }
        free = saved.format in (Format.MEGATRON_DIST, Format.DCP, Format.HUGGINGFACE)
        checkpoints.append(
            {
                "name": saved.name,
                "format": str(saved.format),
                "step": saved.step,
                "state": str(saved.state),
                "problems": list(saved.problems),
                "open_questions": list(saved.open_questions),
                "parallelism": dict(saved.parallelism),
                "resharding": saved.resharding,
                "must_convert": bool(differs) and not free,
                "differs": differs,
                "files": saved.files,
                "size_gb": None if saved.bytes is None else round(saved.bytes / 1e9, 3),
            }
        )
    tracker = folder.tracker
    return {
        "schema": "firstfault.checkpoint-folder/1",
        "resume_from": folder.resume,
        "problems": list(folder.problems),
        "tracker": None
        if tracker is None
        else {
            "path": tracker.path,
            "content": tracker.content,
            "status": tracker.status,
            "problem": tracker.problem,
        },
        "checkpoints": checkpoints,
        "files": folder.facts["files"],
    }


CALCULATOR = Calculator(
    name="checkpoint_folder",
    summary="Inspects a checkpoint folder listing (Megatron, torch_dist, DCP, DeepSpeed, Hugging "
    "Face): complete or cut off, tracker, parallelism it was saved with, resharding needs",
    parameters=PARAMETERS,
    run=run_folder,
)
