"""Is this checkpoint whole, how was it split, and what does loading it elsewhere need?

Works on a listing alone. Formats: Megatron `torch` (mp_rank_*), Megatron `torch_dist`, PyTorch DCP,
DeepSpeed, Hugging Face (safetensors), Orbax. A claim needs a file: what a listing cannot show is said to be open.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from enum import StrEnum
from functools import cache
from types import MappingProxyType

from firstfault_tools.checkpoint.cut_files import (
    CUT_SIZE,
    SAME_SIZE,
    check_sizes,
)
from firstfault_tools.checkpoint.listing import Entry
from firstfault_tools.checkpoint.rank_folders import has_rank_folders, inspect_rank_folders
from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression


class Format(StrEnum):
    """Layout of one checkpoint."""

    MEGATRON_LEGACY = "megatron_torch"
    MEGATRON_DIST = "megatron_torch_dist"
    DCP = "torch_dcp"
    DEEPSPEED = "deepspeed"
    HUGGINGFACE = "huggingface"
    ORBAX = "orbax"
    UNKNOWN = "unknown"


class State(StrEnum):
    """complete: every file the layout promises is there. unclear: the listing cannot show it."""

    COMPLETE = "complete"
    INCOMPLETE = "incomplete"
    UNCLEAR = "unclear"


@dataclass(frozen=True, slots=True)
class Saved:
    """One checkpoint in the folder. parallelism: axis -> size, as far as file names tell."""

    name: str
    format: Format
    step: int | None
    state: State
    problems: tuple[str, ...]
    open_questions: tuple[str, ...]
    parallelism: Mapping[str, int]
    resharding: str
    files: int
    bytes: int | None


@dataclass(frozen=True, slots=True)
class Tracker:
    """The file that names the checkpoint to load. content None: not given."""

    path: str
    content: str | None
    status: str
    problem: str | None


@dataclass(frozen=True, slots=True)
class Folder:
    """Everything found, newest checkpoint first. resume: name of the newest complete one."""

    checkpoints: tuple[Saved, ...]
    tracker: Tracker | None
    resume: str | None
    problems: tuple[str, ...] = ()
    facts: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))


ORBAX_FILES = frozenset({"_CHECKPOINT_METADATA", "manifest.ocdbt", "_METADATA"})
WEIGHTS_ONLY = "no trainer_state.json: weights only, not a training checkpoint"
TRACKERS = ("latest_checkpointed_iteration.txt", "latest")
_STEP_FOLDER = r"(iter_\d{7}|release|global_step_?\d+|checkpoint-\d+|step-\d+|epoch=\d+[^/]*)"


@cache
def _compiled() -> Mapping[str, re.Pattern[str]]:
    source = {
        "step": rf"(?:^|/){_STEP_FOLDER}(?:/|$)",
        "orbax": r"(?:^|/)(\d{1,12}(?:\.orbax-checkpoint-tmp[^/]{0,60})?)/",
        "digits": r"(\d+)",
        "shard": r"(?:^|/)__(\d+)_(\d+)\.distcp$",
        "ds_model": r"(?:^|/)mp_rank_(\d{2})_model_states\.pt$",
        "ds_zero": r"(?:^|/)(?:bf16_|fp16_)?zero_pp_rank_(\d+)_mp_rank_(\d{2})_?optim_states\.pt$",
        "ds_zero3": r"(?:^|/)zero_pp_rank_(\d+)_mp_rank_(\d{2})_model_states\.pt$",
        "ds_layer": r"(?:^|/)layer_(\d+)-model_(\d{2})-model_states\.pt$",
        "hf_part": r"(?:^|/)(model|pytorch_model)-(\d{5})-of-(\d{5})\.(safetensors|bin)$",
        "hf_rng": r"(?:^|/)rng_state_(\d+)\.pth$",
    }
    return {name: expression(pattern) for name, pattern in source.items()}


def inspect_folder(
    entries: Sequence[Entry], contents: Mapping[str, str] | None = None, *, hidden: bool = False
) -> Folder:
    """Inspect a listing. contents: text of small files by path or name (trackers, indexes).

    hidden: the listing shows names that begin with a dot; one such name shows it as well.
    """
    contents = contents or {}
    hidden = hidden or any("/." in f"/{entry.path}" for entry in entries)
    groups, tracker_path = _group_entries(entries)
    checkpoints = [_inspect(name, files, contents, hidden) for name, files in groups.items()]
    checkpoints = [_compare_siblings(saved, checkpoints) for saved in checkpoints]
    checkpoints = [_compare_sizes(saved, checkpoints, groups) for saved in checkpoints]
    checkpoints.sort(key=lambda saved: (saved.step is None, -(saved.step or 0), saved.name))
    found_format = {saved.format for saved in checkpoints}
    sizes = {entry.path: entry.size for entry in entries}
    tracker = _inspect_tracker(tracker_path, sizes, contents, checkpoints, found_format)
    complete = [saved for saved in checkpoints if saved.state is State.COMPLETE]
    return Folder(
        tuple(checkpoints), tracker, complete[0].name if complete else None,
        tuple(_list_problems(checkpoints, complete, tracker)),
        MappingProxyType({"files": len(entries), "checkpoints": len(checkpoints)}),
    )  # fmt: skip


def _group_entries(entries: Sequence[Entry]) -> tuple[dict[str, list[Entry]], str | None]:
    """Files by the checkpoint they are of, and the path of the topmost tracker."""
    groups: dict[str, list[Entry]] = defaultdict(list)
    orbax = any(_file_name(entry) in ORBAX_FILES for entry in entries)
    step = _compiled()["orbax" if orbax else "step"]
    trackers = []
    for entry in entries:
        if _file_name(entry) in TRACKERS:
            trackers.append(entry.path)
            continue
        match = step.search(entry.path)
        groups[entry.path[: match.end(1)] if match else ""].append(entry)
    loose = groups.pop("", [])
    if not groups and loose:
        groups["."] = loose
    return groups, min(trackers, key=lambda path: path.count("/"), default=None)


def _file_name(entry: Entry) -> str:
    return entry.path.rsplit("/", 1)[-1]


def _list_problems(
    checkpoints: Sequence[Saved], complete: Sequence[Saved], tracker: Tracker | None
) -> Iterator[str]:
    """What stands in the way of a resume: of the tracker or the newest checkpoint, or that none is complete."""
    newest = checkpoints[0] if checkpoints else None
    if tracker is not None and tracker.problem:
        yield tracker.problem
    elif complete and newest is not None and newest.state is State.INCOMPLETE:
        yield f"{newest.name} is incomplete: {newest.problems[0]}"
    if complete:
        return
    weights = [saved for saved in checkpoints if WEIGHTS_ONLY in saved.open_questions]
    if weights and not any(saved.problems for saved in weights):
        yield "only weights here: they load for inference or a new run, no run resumes from them"
    else:
        yield f"no checkpoint here is shown to be complete{_say_why(checkpoints)}"


def _say_why(checkpoints: Sequence[Saved]) -> str:
    if not checkpoints:
        return ""
    newest = checkpoints[0]
    why = (*newest.problems, *newest.open_questions)
    where = "" if newest.name == "." else f"{newest.name}: "
    return f": {where}{why[0]}" if why else ""


def _inspect(name: str, files: Sequence[Entry], contents: Mapping[str, str], hidden: bool) -> Saved:
    names = {_file_name(entry) for entry in files}
    problems: list[str] = []
    open_questions: list[str] = []
    parallelism: dict[str, int] = {}
    resharding = ""
    kind = _recognise(files, names)
    if kind is Format.MEGATRON_LEGACY:
        resharding = inspect_rank_folders(files, problems, parallelism)
    elif kind is Format.DEEPSPEED:
        resharding = _inspect_deepspeed(files, problems, open_questions, parallelism)
    elif kind in (Format.MEGATRON_DIST, Format.DCP):
        resharding = _inspect_shards(
            files, names, kind is Format.MEGATRON_DIST, hidden, problems, open_questions, parallelism
        )  # fmt: skip
    elif kind is Format.HUGGINGFACE:
        resharding = _inspect_huggingface(files, names, contents, problems, open_questions,
                                          parallelism)  # fmt: skip
    elif kind is Format.ORBAX:
        resharding = _inspect_orbax(name, names, problems)
    else:
        open_questions.append("no file name of a known layout")
    if any(entry.path.endswith("-unfinished") for entry in files):
        problems.append("a marker file ends in -unfinished: the asynchronous save did not finish")
    check_sizes(files, problems)
    state = State.COMPLETE
    if problems:
        state = State.INCOMPLETE
    elif open_questions:
        state = State.UNCLEAR
    digits = _compiled()["digits"].search(name.rsplit("/", 1)[-1])
    sizes = [entry.size for entry in files if entry.size is not None]
    return Saved(
        name=name, format=kind, step=int(digits[1][:18]) if digits else None, state=state,
        problems=tuple(problems), open_questions=tuple(open_questions),
        parallelism=MappingProxyType(parallelism), resharding=resharding, files=len(files),
        bytes=sum(sizes) if sizes else None,
    )  # fmt: skip


def _recognise(files: Sequence[Entry], names: set[str]) -> Format:
    """The layout by the names of its files."""
    if has_rank_folders(files):
        return Format.MEGATRON_LEGACY
    if _holds(files, "ds_zero", "ds_zero3", "ds_model"):
        return Format.DEEPSPEED
    if _holds(files, "shard"):
        megatron = "common.pt" in names or "metadata.json" in names
        return Format.MEGATRON_DIST if megatron else Format.DCP
    if _looks_huggingface(names):
        return Format.HUGGINGFACE
    return Format.ORBAX if names & ORBAX_FILES else Format.UNKNOWN


def _holds(files: Sequence[Entry], *patterns: str) -> bool:
    """Some file has a name of one of the patterns."""
    wanted = [_compiled()[name] for name in patterns]
    return any(pattern.search(entry.path) for entry in files for pattern in wanted)


def _compare_siblings(saved: Saved, others: Sequence[Saved]) -> Saved:
    """A checkpoint with fewer ranks than one beside it was cut off, or the job was resized."""
    if saved.state is not State.COMPLETE:
        return saved
    for other in others:
        if other.format is not saved.format or other.state is not State.COMPLETE:
            continue
        for axis, size in other.parallelism.items():
            if saved.parallelism.get(axis, 1) < size and saved.files < other.files:
                question = (
                    f"{saved.files} files of {axis} {saved.parallelism.get(axis, 1)}, while "
                    f"{other.name} has {other.files} of {axis} {size}: cut off, or the job was resized"
                )
                return replace(saved, state=State.UNCLEAR, open_questions=(question,))
    return saved


def _compare_sizes(
    saved: Saved, others: Sequence[Saved], groups: Mapping[str, Sequence[Entry]]
) -> Saved:
    """A file far smaller than its namesake in a checkpoint of the same layout was cut off."""
    if saved.state is State.INCOMPLETE:
        return saved
    mine = _sizes_inside(saved.name, groups)
    for other in others:
        if other is saved or other.format is not saved.format or other.state is State.INCOMPLETE:
            continue
        theirs = _sizes_inside(other.name, groups)
        shares = {
            path: mine[path] / theirs[path] for path in mine.keys() & theirs.keys() if theirs[path]
        }
        short = sorted(path for path, share in shares.items() if share < CUT_SIZE)
        if short and any(share >= SAME_SIZE for share in shares.values()):
            problem = (
                f"{saved.name}/{short[0]} has {shares[short[0]]:.0%} of the size it has in {other.name}: "
                "cut off while written"
            )
            return replace(saved, state=State.INCOMPLETE, problems=(*saved.problems, problem))
    return saved


def _sizes_inside(name: str, groups: Mapping[str, Sequence[Entry]]) -> dict[str, int]:
    skip = 0 if name == "." else len(name) + 1
    return {
        entry.path[skip:]: entry.size for entry in groups.get(name, ()) if entry.size is not None
    }


def _missing(seen: set[int], count: int) -> list[int]:
    return sorted(set(range(count)) - seen)


def _inspect_shards(
    files: Sequence[Entry], names: set[str], megatron: bool, hidden: bool, problems: list[str],
    open_questions: list[str], parallelism: dict[str, int],
) -> str:  # fmt: skip
    """__RANK_PART.distcp, an index in .metadata written last, Megatron's common.pt and metadata.json."""
    pattern = _compiled()["shard"]
    # Ranks that hold nothing unique leave no file: gaps in the numbers prove nothing.
    matches = [pattern.search(entry.path) for entry in files]
    parallelism["writers"] = 1 + max(int(match[1]) for match in matches if match)
    if ".metadata" not in names:
        if ".metadata.tmp" in names:
            problems.append(".metadata.tmp was never renamed: the save was cut off before its end")
        elif hidden:
            problems.append(".metadata is missing: it is written last, so the save did not finish")
        else:
            open_questions.append(
                ".metadata is not listed: was the listing made with ls -a or find?"
            )
    if megatron:
        for name in ("common.pt", "metadata.json"):
            if name not in names:
                problems.append(f"{name} is missing")
    return (
        "Resharded on load: any tensor, pipeline or data-parallel size works "
        "(optimizer included) as long as the model is the same."
    )


def _inspect_deepspeed(
    files: Sequence[Entry], problems: list[str], open_questions: list[str],
    parallelism: dict[str, int],
) -> str:  # fmt: skip
    patterns = _compiled()
    model, zero, zero3, layers = (
        {tuple(map(int, m.groups())) for e in files if (m := patterns[name].search(e.path))}
        for name in ("ds_model", "ds_zero", "ds_zero3", "ds_layer")
    )
    data = 1 + max((part[0] for part in zero | zero3), default=0)
    tensor = 1 + max((p[-1] for p in zero | zero3 | (layers or model)), default=0)
    parallelism.update({"data": data, "tensor": tensor})
    for label, seen in (("optim_states", zero), ("model_states", zero3)):
        if not seen:
            continue
        lacking = [(d, t) for d in range(data) for t in range(tensor) if (d, t) not in seen]
        if lacking:
            problems.append(
                f"{label}: {len(seen)} of {data * tensor} partitions, first missing "
                f"zero_pp_rank_{lacking[0][0]}_mp_rank_{lacking[0][1]:02d}"
            )
    if not zero3 and not model and not layers:
        problems.append("no mp_rank_*_model_states.pt: the weights are missing")
    if not zero and not zero3:
        open_questions.append("no partitioned optimizer states: ZeRO off, or they were not saved")
    if zero3:
        parallelism["zero_stage"] = 3
    return (
        "Optimizer partitions load only with the same data-parallel size: convert with "
        "ds_to_universal.py and load_universal, or take the weights out with zero_to_fp32.py."
    )


def _inspect_orbax(name: str, names: set[str], problems: list[str]) -> str:
    """Orbax writes into a temporary folder and renames it when every process is done."""
    if ".orbax-checkpoint-tmp" in name:
        problems.append(
            "the folder was never renamed from its temporary name: the save was cut off"
        )
    elif "_CHECKPOINT_METADATA" not in names and "_METADATA" not in names:
        problems.append("neither _CHECKPOINT_METADATA nor _METADATA: the save did not finish")
    return "Resharded on load: any mesh works with the same tree of arrays."


def _looks_huggingface(names: set[str]) -> bool:
    pattern = _compiled()["hf_part"]
    known = {
        "model.safetensors",
        "pytorch_model.bin",
        "trainer_state.json",
        "adapter_model.safetensors",
    }
    return bool(names & known) or any(pattern.search(name) for name in names)


def _check_shards(seen: set[int], total: int, index: str, names: set[str]) -> Iterator[str]:
    gaps = [n for n in range(1, min(total, 100_000) + 1) if n not in seen]
    if gaps:
        yield f"{len(gaps)} of {total} weight shards missing (first: {gaps[0]:05d})"
    if index not in names:
        yield f"{index} is missing: the shards cannot be found by name"


def _inspect_huggingface(
    files: Sequence[Entry], names: set[str], contents: Mapping[str, str], problems: list[str],
    open_questions: list[str], parallelism: dict[str, int],
) -> str:  # fmt: skip
    pattern, rng = _compiled()["hf_part"], _compiled()["hf_rng"]
    parts: dict[tuple[str, str], set[int]] = defaultdict(set)
    totals: dict[tuple[str, str], int] = {}
    ranks = {int(match[1]) for entry in files if (match := rng.search(entry.path))}
    for entry in files:
        if match := pattern.search(entry.path):
            key = (match[1], match[4])
            parts[key].add(int(match[2]))
            totals[key] = max(totals.get(key, 0), int(match[3]))
    for (stem, kind), total in totals.items():
        problems += _check_shards(parts[stem, kind], total, f"{stem}.{kind}.index.json", names)
    if ranks:
        parallelism["data"] = 1 + max(ranks)
        gaps = _missing(ranks, 1 + max(ranks))
        if gaps:
            problems.append(f"rng_state of rank {gaps[0]} is missing")
    weights = {"model.safetensors", "pytorch_model.bin", "adapter_model.safetensors"} & names
    if not weights and not parts:
        problems.append("no weights: neither model.safetensors nor shards")
    states = {"optimizer.pt", "optimizer.bin"} & names
    if "trainer_state.json" not in names:
        open_questions.append(WEIGHTS_ONLY)
    elif not states:
        open_questions.append("no optimizer.pt: a resume would start with fresh optimizer states")
    if states:
        return "Weights load anywhere; optimizer.pt is whole, so any data-parallel size can resume."
    return "Weights load anywhere; no optimizer states lie here."


def _name_wanted(path: str, text: str) -> str | None:
    """Folder that a tracker's text names; None where it names none."""
    if path.endswith("latest") or text == "release":
        return text
    return f"iter_{int(text):07d}" if re.fullmatch(r"\d{1,9}", text) else None


def _inspect_tracker(
    path: str | None, sizes: Mapping[str, int | None], contents: Mapping[str, str],
    checkpoints: Sequence[Saved], formats: set[Format],
) -> Tracker | None:  # fmt: skip
    needs = formats & {Format.MEGATRON_LEGACY, Format.MEGATRON_DIST, Format.DEEPSPEED}
    if path is None:
        if not needs or all(saved.name == "." for saved in checkpoints):
            return None
        name = "latest" if Format.DEEPSPEED in formats else TRACKERS[0]
        return Tracker(
            name, None, "missing",
            f"{name} is missing: the loader finds no checkpoint and starts from scratch or stops",
        )  # fmt: skip
    content = contents.get(path, contents.get(path.rsplit("/", 1)[-1]))
    if sizes.get(path) == 0 or (content is not None and not content.strip()):
        return Tracker(path, content, "empty", f"{path} is empty: it was cut off while written")
    if content is None:
        return Tracker(path, None, "unread", None)
    text = content.strip()[:200]
    wanted = _name_wanted(path, text)
    if wanted is None:
        return Tracker(
            path, text, "garbled", f"{path} holds {text[:40]!r}, not an iteration: half-written?"
        )
    chosen = [saved for saved in checkpoints if saved.name.rsplit("/", 1)[-1] == wanted]
    if not chosen:
        return Tracker(
            path, text, "dangling", f"{path} names {wanted}, which is not in the listing"
        )
    if chosen[0].state is State.INCOMPLETE:
        return Tracker(
            path, text, "points to incomplete",
            f"{path} names {wanted}, which is incomplete: {chosen[0].problems[0]}",
        )  # fmt: skip
    newest = checkpoints[0]
    if newest is not chosen[0] and newest.state is State.COMPLETE and newest.step is not None:
        return Tracker(
            path, text, "behind",
            f"{path} names {wanted}, while {newest.name} is newer and complete",
        )  # fmt: skip
    return Tracker(path, text, "ok", None)
