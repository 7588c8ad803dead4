"""Is this checkpoint whole, how was it split, and what does loading it elsewhere need?

Works on a listing alone. Formats: Megatron `torch` (mp_rank_*), Megatron `torch_dist`, PyTorch DCP,
DeepSpeed, Hugging Face. A claim needs a file: what a listing cannot show is said to be open.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cache
from statistics import median
from types import MappingProxyType

from firstfault_tools.checkpoint.listing import Entry


class Format(StrEnum):
    """Layout of one checkpoint."""

    MEGATRON_LEGACY = "megatron_torch"
    MEGATRON_DIST = "megatron_torch_dist"
    DCP = "torch_dcp"
    DEEPSPEED = "deepspeed"
    HUGGINGFACE = "huggingface"
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


TRACKERS = ("latest_checkpointed_iteration.txt", "latest")
_STEP_FOLDER = r"(iter_\d{7}|release|global_step_?\d+|checkpoint-\d+|step-\d+|epoch=\d+[^/]*)"


@cache
def _compiled() -> Mapping[str, re.Pattern[str]]:
    source = {
        "step": rf"(?:^|/){_STEP_FOLDER}(?:/|$)",
        "digits": r"(\d+)",
        "mp": r"(?:^|/)mp_rank_(\d{2,3})(?:_(\d{3}))?(?:_(\d{3}))?/([^/]+)$",
        "shard": r"(?:^|/)__(\d+)_(\d+)\.distcp$",
        "ds_model": r"(?:^|/)mp_rank_(\d{2})_model_states\.pt$",
        "ds_zero": r"(?:^|/)(?:bf16_|fp16_)?zero_pp_rank_(\d+)_mp_rank_(\d{2})_?optim_states\.pt$",
        "ds_zero3": r"(?:^|/)zero_pp_rank_(\d+)_mp_rank_(\d{2})_model_states\.pt$",
        "ds_layer": r"(?:^|/)layer_(\d+)-model_(\d{2})-model_states\.pt$",
        "hf_part": r"(?:^|/)(model|pytorch_model)-(\d{5})-of-(\d{5})\.(safetensors|bin)$",
        "hf_rng": r"(?:^|/)rng_state_(\d+)\.pth$",
    }
    return {name: re.compile(pattern) for name, pattern in source.items()}


def inspect_folder(entries: Sequence[Entry], contents: Mapping[str, str] | None = None) -> Folder:
    """Inspect a listing. contents: text of small files by path or name (trackers, indexes)."""
    contents = contents or {}
    groups: dict[str, list[Entry]] = defaultdict(list)
    step = _compiled()["step"]
    tracker_path = None
    for entry in entries:
        name = entry.path.rsplit("/", 1)[-1]
        if name in TRACKERS:
            if tracker_path is None or entry.path.count("/") < tracker_path.count("/"):
                tracker_path = entry.path
            continue
        match = step.search(entry.path)
        groups[entry.path[: match.end(1)] if match else ""].append(entry)
    loose = groups.pop("", [])
    if not groups and loose:
        groups["."] = loose
    checkpoints = [_inspect(name, files, contents) for name, files in groups.items()]
    checkpoints = [_compare_siblings(saved, checkpoints) for saved in checkpoints]
    checkpoints.sort(key=lambda saved: (saved.step is None, -(saved.step or 0), saved.name))
    found_format = {saved.format for saved in checkpoints}
    sizes = {entry.path: entry.size for entry in entries}
    tracker = _inspect_tracker(tracker_path, sizes, contents, checkpoints, found_format)
    complete = [saved for saved in checkpoints if saved.state is State.COMPLETE]
    problems = []
    if tracker and tracker.problem:
        problems.append(tracker.problem)
    if not complete:
        problems.append("no checkpoint here is shown to be complete")
    return Folder(
        tuple(checkpoints), tracker, complete[0].name if complete else None, tuple(problems),
        MappingProxyType({"files": len(entries), "checkpoints": len(checkpoints)}),
    )  # fmt: skip


def _inspect(name: str, files: Sequence[Entry], contents: Mapping[str, str]) -> Saved:
    names = {entry.path.rsplit("/", 1)[-1] for entry in files}
    patterns = _compiled()
    problems: list[str] = []
    open_questions: list[str] = []
    parallelism: dict[str, int] = {}
    resharding = ""
    kind = Format.UNKNOWN
    if any(patterns["mp"].search(entry.path) for entry in files):
        kind = Format.MEGATRON_LEGACY
        resharding = _inspect_legacy(files, problems, parallelism)
    elif any(patterns["ds_zero"].search(e.path) or patterns["ds_zero3"].search(e.path)
             or patterns["ds_model"].search(e.path) for e in files):  # fmt: skip
        kind = Format.DEEPSPEED
        resharding = _inspect_deepspeed(files, problems, open_questions, parallelism)
    elif any(patterns["shard"].search(entry.path) for entry in files):
        megatron = "common.pt" in names or "metadata.json" in names
        kind = Format.MEGATRON_DIST if megatron else Format.DCP
        resharding = _inspect_shards(files, names, megatron, problems, open_questions, parallelism)
    elif _looks_huggingface(names):
        kind = Format.HUGGINGFACE
        resharding = _inspect_huggingface(files, names, contents, problems, open_questions,
                                          parallelism)  # fmt: skip
    else:
        open_questions.append("no file name of a known layout")
    _check_sizes(files, problems)
    state = State.COMPLETE
    if problems:
        state = State.INCOMPLETE
    elif open_questions:
        state = State.UNCLEAR
    digits = patterns["digits"].search(name.rsplit("/", 1)[-1])
    sizes = [entry.size for entry in files if entry.size is not None]
    return Saved(
        name=name, format=kind, step=int(digits[1][:18]) if digits else None, state=state,
        problems=tuple(problems), open_questions=tuple(open_questions),
        parallelism=MappingProxyType(parallelism), resharding=resharding, files=len(files),
        bytes=sum(sizes) if sizes else None,
    )  # fmt: skip


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


def _check_sizes(files: Sequence[Entry], problems: list[str]) -> None:
    """Empty files, and shards far smaller than their siblings."""
    families: dict[str, list[Entry]] = defaultdict(list)
    for entry in files:
        if entry.size == 0:
            problems.append(f"{entry.path} is empty")
        elif entry.size is not None:
            families[re.sub(r"\d+", "#", entry.path.rsplit("/", 1)[-1])].append(entry)
    for family, members in families.items():
        if len(members) < 4 or family.startswith("__"):
            continue
        middle = median(member.size or 0 for member in members)
        if middle < 1 << 20:
            continue
        # Pipeline stages differ, but a rank a tenth of its siblings was cut off.
        for member in members:
            if (member.size or 0) < middle / 10:
                problems.append(f"{member.path} is a tenth of its siblings or less: cut off?")


def _missing(seen: set[int], count: int) -> list[int]:
    return sorted(set(range(count)) - seen)


def _inspect_legacy(
    files: Sequence[Entry], problems: list[str], parallelism: dict[str, int]
) -> str:
    """mp_rank_TT[_PPP][_EEE]/model_optim_rng.pt, and distrib_optim.pt with a distributed optimizer."""
    pattern = _compiled()["mp"]
    ranks: dict[tuple[int, ...], set[str]] = defaultdict(set)
    for entry in files:
        match = pattern.search(entry.path)
        if match:
            key = tuple(int(part) for part in match.groups()[:3] if part is not None)
            ranks[key].add(match[4])
    width = max(len(key) for key in ranks)
    names = (("tensor",), ("tensor", "pipeline"), ("tensor", "pipeline", "expert"))[width - 1]
    sizes = [1 + max(key[axis] if axis < len(key) else 0 for key in ranks) for axis in range(width)]
    parallelism.update(zip(names, sizes, strict=True))
    expected = 1
    for size in sizes:
        expected *= size
    if len(ranks) < expected:
        problems.append(
            f"{len(ranks)} of {expected} mp_rank folders ({' x '.join(map(str, sizes))})"
        )
    kinds = {kind for found in ranks.values() for kind in found}
    for kind in sorted(kinds & {"model_optim_rng.pt", "model_rng.pt", "distrib_optim.pt"}):
        lacking = [key for key, found in sorted(ranks.items()) if kind not in found]
        # distrib_optim.pt is written by data-parallel rank 0 of every model-parallel rank.
        if lacking:
            shown = ", ".join("_".join(map(str, key)) for key in lacking[:5])
            problems.append(f"{kind} missing in {len(lacking)} rank folders (first: {shown})")
    if not kinds & {"model_optim_rng.pt", "model_rng.pt"}:
        problems.append("no model_optim_rng.pt in any rank folder")
    return (
        "Loads only with the same tensor, pipeline and expert parallelism; convert with Megatron's "
        "tools/checkpoint/convert.py, or load as it is once and save with --ckpt-format torch_dist."
    )


def _inspect_shards(
    files: Sequence[Entry], names: set[str], megatron: bool, problems: list[str],
    open_questions: list[str], parallelism: dict[str, int],
) -> str:  # fmt: skip
    """__RANK_PART.distcp, an index in .metadata written last, Megatron's common.pt and metadata.json."""
    pattern = _compiled()["shard"]
    # Ranks that hold nothing unique leave no file: gaps in the numbers prove nothing.
    matches = [pattern.search(entry.path) for entry in files]
    parallelism["writers"] = 1 + max(int(match[1]) for match in matches if match)
    hidden_listed = any(entry.path.rsplit("/", 1)[-1].startswith(".") for entry in files)
    if ".metadata" not in names:
        if ".metadata.tmp" in names:
            problems.append(".metadata.tmp was never renamed: the save was cut off before its end")
        elif hidden_listed:
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
    model: set[int] = set()
    zero: set[tuple[int, int]] = set()
    zero3: set[tuple[int, int]] = set()
    layers: set[tuple[int, int]] = set()
    for entry in files:
        if match := patterns["ds_model"].search(entry.path):
            model.add(int(match[1]))
        elif match := patterns["ds_zero"].search(entry.path):
            zero.add((int(match[1]), int(match[2])))
        elif match := patterns["ds_zero3"].search(entry.path):
            zero3.add((int(match[1]), int(match[2])))
        elif match := patterns["ds_layer"].search(entry.path):
            layers.add((int(match[1]), int(match[2])))
    parts = zero | zero3
    data = 1 + max((rank for rank, _ in parts), default=0)
    tensor = 1 + max(
        [*(part for _, part in parts), *(part for _, part in layers), *(() if layers else model)],
        default=0,
    )
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


def _looks_huggingface(names: set[str]) -> bool:
    pattern = _compiled()["hf_part"]
    known = {
        "model.safetensors",
        "pytorch_model.bin",
        "trainer_state.json",
        "adapter_model.safetensors",
    }
    return bool(names & known) or any(pattern.search(name) for name in names)


def _inspect_huggingface(
    files: Sequence[Entry], names: set[str], contents: Mapping[str, str], problems: list[str],
    open_questions: list[str], parallelism: dict[str, int],
) -> str:  # fmt: skip
    pattern, rng = _compiled()["hf_part"], _compiled()["hf_rng"]
    parts: dict[tuple[str, str], set[int]] = defaultdict(set)
    totals: dict[tuple[str, str], int] = {}
    ranks = set()
    for entry in files:
        if match := pattern.search(entry.path):
            key = (match[1], match[4])
            parts[key].add(int(match[2]))
            totals[key] = max(totals.get(key, 0), int(match[3]))
        elif match := rng.search(entry.path):
            ranks.add(int(match[1]))
    for key, total in totals.items():
        gaps = [n for n in range(1, min(total, 100_000) + 1) if n not in parts[key]]
        if gaps:
            problems.append(f"{len(gaps)} of {total} weight shards missing (first: {gaps[0]:05d})")
        index = f"{key[0]}.{'safetensors' if key[1] == 'safetensors' else 'bin'}.index.json"
        if index not in names:
            problems.append(f"{index} is missing: the shards cannot be found by name")
    if ranks:
        parallelism["data"] = 1 + max(ranks)
        gaps = _missing(ranks, 1 + max(ranks))
        if gaps:
            problems.append(f"rng_state of rank {gaps[0]} is missing")
    weights = {"model.safetensors", "pytorch_model.bin", "adapter_model.safetensors"} & names
    if not weights and not parts:
        problems.append("no weights: neither model.safetensors nor shards")
    if "trainer_state.json" in names and not {"optimizer.pt", "optimizer.bin"} & names:
        open_questions.append("no optimizer.pt: a resume would start with fresh optimizer states")
    if "trainer_state.json" not in names:
        open_questions.append("no trainer_state.json: weights only, not a training checkpoint")
    return "Weights load anywhere; optimizer.pt is whole, so any data-parallel size can resume."


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
    if path.endswith("latest"):
        wanted = text
    elif text == "release":
        wanted = "release"
    elif re.fullmatch(r"\d{1,9}", text):
        wanted = f"iter_{int(text):07d}"
    else:
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
