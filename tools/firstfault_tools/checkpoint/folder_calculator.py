"""Can this checkpoint folder be resumed from, and on how many GPUs? The calculator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from firstfault_tools.findings import Json
from firstfault_tools.registry import Calculator

if TYPE_CHECKING:
    from firstfault_tools.checkpoint.folder import Folder

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
        "hidden": {"type": "boolean", "description": "the listing shows hidden files as well"},
        "tensor": {"type": "integer", "minimum": 1, "description": "wanted on load"},
        "pipeline": {"type": "integer", "minimum": 1},
        "expert": {"type": "integer", "minimum": 1},
        "data": {"type": "integer", "minimum": 1},
    },
}


def run_folder(
    listing: str,
    contents: Mapping[str, str] | None = None,
    hidden: bool = False,
    **wanted: int | None,
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
    folder = inspect_folder(read_listing(listing), contents, hidden=hidden)
    checkpoints: list[Json] = []
    for saved in folder.checkpoints:
        differs = {
            axis: [saved.parallelism[axis], size]
            for axis, size in wanted.items()
            if size is not None and axis in saved.parallelism and saved.parallelism[axis] != size
        }
        free = saved.format in (
            Format.MEGATRON_DIST, Format.DCP, Format.HUGGINGFACE, Format.ORBAX
        )  # fmt: skip
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
        "sentence": write_sentence(folder),
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


FAILS = ("points to incomplete", "dangling", "garbled", "empty")


def write_sentence(folder: Folder) -> str:
    """One thing said of the folder: what a restart as it stands does, and what to write to change it."""
    tracker, resume = folder.tracker, folder.resume
    if resume is None:
        problem = (
            folder.problems[0] if folder.problems else "no checkpoint here is shown to be complete"
        )
        first = problem.split(" ", 1)[0]
        # A file's name stays as it is written.
        said = problem if "_" in first or "." in first else f"{problem[:1].upper()}{problem[1:]}"
        return said if said.endswith("?") else f"{said}."
    if tracker is None or tracker.status == "ok":
        return _write_newest(folder, resume)
    if tracker.status == "unread":
        return f"Resume from {resume}, if {tracker.path} names it: its content was not given."
    last = resume.rsplit("/", 1)[-1]
    word = (
        last if tracker.path.endswith("latest") else last.removeprefix("iter_").lstrip("0") or "0"
    )
    remedy = f"write {word} into {tracker.path} to resume from {resume}"
    if tracker.status in FAILS:
        return f"A restart as it stands fails: {tracker.problem}; {remedy}."
    if tracker.status == "behind":
        return f"A restart as it stands loads an older one: {tracker.problem}; {remedy}."
    return f"A restart as it stands finds nothing: {tracker.problem}; {remedy}."


def _write_newest(folder: Folder, resume: str) -> str:
    """Where to resume from, and what becomes of a newer checkpoint that is not whole.

    The Hugging Face trainer takes the folder with the highest step, whole or not (get_last_checkpoint in
    transformers/trainer_utils.py); the loaders of the other layouts pass over what has no index.
    """
    newest = folder.checkpoints[0]
    if newest.name == resume:
        return f"Resume from {'this folder' if resume == '.' else resume}."
    why = (newest.problems or newest.open_questions or ("no step in its name",))[0]
    if str(newest.format) == "huggingface" and newest.problems:
        return (
            f"A restart that takes the newest folder fails: {newest.name} is incomplete: {why}; give "
            f"resume_from_checkpoint={resume}, or move {newest.name} away."
        )
    return f"Resume from {resume}: the newer {newest.name} is {newest.state} ({why})."


CALCULATOR = Calculator(
    name="checkpoint_folder",
    summary="Inspects a checkpoint folder listing (Megatron, torch_dist, DCP, DeepSpeed, Hugging "
    "Face): complete or cut off, tracker, parallelism it was saved with, resharding needs",
    parameters=PARAMETERS,
    run=run_folder,
)
