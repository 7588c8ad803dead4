"""Which part of a step carries the time or the fault? What the script recorded, variant beside variant.

Each variant takes one part out of the user's own step; what the step gains is that part's share. The records
are those of kit/firstfault_component.py, one file a rank, one JSON line a step.
"""

from __future__ import annotations

import json
import math
import re
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from firstfault_tools.averages import median
from firstfault_tools.dataclass import dataclass
from firstfault_tools.errors import UnreadableArtefact

SCHEMA = "firstfault.component/1"
VARIABLE, OUT_VARIABLE = "FIRSTFAULT_COMPONENT", "FIRSTFAULT_COMPONENT_OUT"
BASELINE = "baseline"
VARIANTS: Mapping[str, str] = {
    BASELINE: "the step as it is",
    "synthetic_data": "its first batch again and again: no loader",
    "no_collectives": "every rank alone: no gradient is exchanged (results are wrong, nothing is saved)",
    "local_files": "caches and saves on this node's own disk",
    "no_compile": "without torch.compile",
    "one_rank_fewer": "with one rank fewer",
    "deterministic": "fixed seeds and deterministic kernels",
}
PARTS = {
    "synthetic_data": "the input data",
    "no_collectives": "communication between ranks",
    "local_files": "the shared file system",
    "no_compile": "torch.compile",
    "one_rank_fewer": "the last rank",
    "deterministic": "chance (seeds, order of kernels)",
}
WARM_UP = 3
"""Steps left out at the start of a run: compilation, allocator, first files."""
LEAST_STEPS = 4
SHARE, SHARE_OF_ONE = 0.10, 0.20
"""Share of a step from which on a part carries time, where the baseline ran several times (and its runs differ
by less) and where it ran once: unlike runs of one variant differ by 11 % on a busy machine here."""
SLOW_RANK = 1.2
"""A rank alone against the median of the others; stragglers reported in the field are slower than that
(https://arxiv.org/abs/2505.05713 counts a slowdown of 10 % of a job as straggling)."""
MOST_STEPS = 200_000
_LINE = re.compile(r'^\{"schema": "firstfault\.component/')


@dataclass(frozen=True, slots=True)
class StepRecord:
    """One step of one rank, in milliseconds. data_ms: of it waiting for the batch; save_ms: saving."""

    variant: str
    run: str
    rank: int
    world: int
    host: str
    step: int
    step_ms: float
    data_ms: float = 0.0
    save_ms: float = 0.0
    loss: float | None = None


@dataclass(frozen=True, slots=True)
class Effect:
    """What one part costs. share: of the baseline's step, 0 to 1. carries: beyond scatter and SHARE."""

    component: str
    says: str
    share: float
    carries: bool
    ranks: tuple[int, ...] = ()


def environment_of(variant: str) -> dict[str, str]:
    """Variables that a variant needs before torch is imported."""
    if variant == "no_compile":
        # https://github.com/pytorch/pytorch/blob/main/torch/_dynamo/config.py
        return {"TORCH_COMPILE_DISABLE": "1", "TORCHDYNAMO_DISABLE": "1"}
    if variant == "local_files":
        local = tempfile.gettempdir()
        names = ("TMPDIR", "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR")
        return {name: str(Path(local) / "firstfault-local" / name.lower()) for name in names}
    if variant == "deterministic":
        # https://docs.pytorch.org/docs/stable/notes/randomness.html
        return {"CUBLAS_WORKSPACE_CONFIG": ":4096:8", "PYTHONHASHSEED": "0"}
    return {}


def read_steps(text: str, name: str) -> list[StepRecord]:
    """Steps of one file; a line that was cut by the end of its process is passed over."""
    steps = []
    for line in text.splitlines()[:MOST_STEPS]:
        if not _LINE.match(line):
            continue
        try:
            row: dict[str, Any] = json.loads(line)
            steps.append(
                StepRecord(
                    str(row["variant"]), str(row.get("run") or name), int(row["rank"]), int(row["world"]),
                    str(row.get("host") or "")[:255], int(row["step"]), float(row["step_ms"]),
                    float(row.get("data_ms") or 0), float(row.get("save_ms") or 0),
                    float(row["loss"]) if row.get("loss") is not None else None,
                )
            )  # fmt: skip
        except (ValueError, KeyError, TypeError):
            continue
    if not steps:
        raise UnreadableArtefact(f"{name}: no step of schema {SCHEMA}")
    return steps


def read_folder(folder: Path) -> list[StepRecord]:
    """Steps of all files below a folder; the folder of a file is its run."""
    steps: list[StepRecord] = []
    for path in sorted(folder.rglob("*.jsonl")) if folder.is_dir() else ():
        try:
            found = read_steps(path.read_text(encoding="utf-8", errors="replace"), path.name)
        except UnreadableArtefact:
            continue
        steps += found
    return steps


def find_refusal(folder: Path) -> str:
    """Why a variant cannot be tried, as the script said; empty where it said nothing."""
    for path in sorted(folder.rglob("*.jsonl")) if folder.is_dir() else ():
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines()[:64]:
            if _LINE.match(line) and '"skipped"' in line:
                try:
                    return str(json.loads(line)["skipped"])[:300]
                except (ValueError, KeyError):
                    continue
    return ""


def compare_variants(steps: Sequence[StepRecord]) -> list[Effect]:
    """Effects, the largest first: parts that carry time, ranks that are slow by themselves."""
    runs = _by_variant(steps)
    base = runs.get(BASELINE)
    if not base:
        return []
    whole = median(base.values())
    effects = [_weigh(name, whole, base, own) for name, own in runs.items() if name in PARTS and name != "deterministic"]  # fmt: skip
    effects += _find_slow_ranks(steps, whole)
    effects += _compare_losses(steps)
    return sorted(effects, key=lambda e: (not e.carries, -e.share))


def _by_variant(steps: Sequence[StepRecord]) -> dict[str, dict[tuple[str, int], float]]:
    """variant -> (run, rank) -> median step in ms, without the warm-up."""
    found: dict[str, dict[tuple[str, int], list[float]]] = defaultdict(lambda: defaultdict(list))
    for s in steps:
        if s.step >= WARM_UP and math.isfinite(s.step_ms) and s.step_ms > 0:
            found[s.variant][s.run, s.rank].append(s.step_ms)
    return {
        variant: kept
        for variant, rows in found.items()
        if (kept := {key: median(v) for key, v in rows.items() if len(v) >= LEAST_STEPS})
    }


def _weigh(name: str, whole: float, base: Mapping[Any, float], own: Mapping[Any, float]) -> Effect:
    # a synchronous step ends with the slowest rank; without collectives each counts alone
    without = max(own.values()) if name == "no_collectives" else median(own.values())
    share = (whole - without) / whole
    scatter = (max(base.values()) - min(base.values())) / whole
    once = len({run for run, _ in base}) == 1
    carries = share >= max(SHARE_OF_ONE if once else SHARE, scatter)
    part = PARTS[name]
    figures = f"{whole:.0f} ms a step, {without:.0f} ms without it"
    if carries:
        says = f"{part} takes {share:.0%} of a step: {figures}"
    elif share <= -SHARE:
        says = f"{part} is no cost: {whole:.0f} ms a step with it, {without:.0f} ms without"
    else:
        says = f"{part} takes no time worth naming: {figures}"
    return Effect(name, says, share, carries)


def _find_slow_ranks(steps: Sequence[StepRecord], whole: float) -> list[Effect]:
    """Ranks that are slow where no other rank can hold them up, and whose wait for data is longest."""
    alone = _rank_medians(s for s in steps if s.variant == "no_collectives")
    found = []
    told = [
        ("step", {r: v[0] for r, v in alone.items()}, "alone, without collectives, its step takes"),
        ("data", {r: v[1] for r, v in _rank_medians(s for s in steps if s.variant == BASELINE).items()}, "it waits for its data for"),
    ]  # fmt: skip
    for what, times, words in told:
        if len(times) < 2:
            continue
        worst = max(times, key=lambda r: times[r])
        rest = median([v for r, v in times.items() if r != worst])
        gap = times[worst] - rest
        if times[worst] >= SLOW_RANK * rest and gap >= SHARE * whole:
            host = next((s.host for s in steps if s.rank == worst and s.host), "")
            says = f"rank {worst}{f' on {host}' if host else ''} holds the others up: {words} {times[worst]:.0f} ms, that of the others {rest:.0f} ms"
            found.append(Effect(f"rank {worst} {what}", says, gap / whole, True, (worst,)))
    return found


def _rank_medians(steps: Iterable[StepRecord]) -> dict[int, tuple[float, float]]:
    rows: dict[int, list[StepRecord]] = defaultdict(list)
    for s in steps:
        if s.step >= WARM_UP:
            rows[s.rank].append(s)
    return {
        rank: (median(s.step_ms for s in own), median(s.data_ms for s in own))
        for rank, own in rows.items()
        if len(own) >= LEAST_STEPS
    }


def _compare_losses(steps: Sequence[StepRecord]) -> list[Effect]:
    """Two runs with the same seeds and deterministic kernels: at which step do they part?"""
    runs: dict[str, dict[tuple[int, int], float]] = defaultdict(dict)
    for s in steps:
        if s.variant == "deterministic" and s.loss is not None:
            runs[s.run][s.rank, s.step] = s.loss
    if len(runs) < 2:
        return []
    first, second = list(runs.values())[:2]
    shared = sorted(set(first) & set(second), key=lambda k: k[1])
    parted = next((k for k in shared if first[k] != second[k] and not math.isnan(first[k] + second[k])), None)  # fmt: skip
    if parted is None:
        return [Effect("deterministic", f"two runs with the same seeds agree bit for bit over {len(shared)} losses", 0.0, False)]  # fmt: skip
    rank, step = parted
    both = f"{first[parted]!r} against {second[parted]!r}"
    says = f"two runs with the same seeds part at step {step} on rank {rank} ({both}): an operation without a fixed order, or data read in another order"
    return [Effect("deterministic", says, 1.0, True, (rank,))]
