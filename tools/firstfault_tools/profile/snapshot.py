"""Which lines of code hold the GPU memory, and does what they hold keep growing?

Reads a CUDA memory snapshot (`torch.cuda.memory._dump_snapshot`): the blocks that were live, grouped
by the innermost frame of user code, and the history of allocations, replayed forwards. Format:
pytorch torch/cuda/memory.py, `_snapshot`. The pickle is read without running it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from firstfault_tools.collectives.plain_pickle import load_plain_pickle
from firstfault_tools.collectives.recorder_dump import rank_of_name
from firstfault_tools.dataclass import dataclass
from firstfault_tools.errors import UnreadableArtefact
from firstfault_tools.log.traceback import is_library

WINDOWS = 12


@dataclass(frozen=True, slots=True)
class Site:
    """A place in the code and the live bytes allocated there."""

    place: str
    bytes: int
    blocks: int


@dataclass(frozen=True, slots=True)
class Growth:
    """How the allocated bytes moved over the recorded history, in windows of equal length.

    troughs: lowest level in each window: what a step leaves behind. rising: number of windows
    whose trough lies above the one before; falling: below. sites: where the bytes come from that were never freed.
    """

    troughs: tuple[int, ...]
    rising: int
    falling: int
    gained_bytes: int
    stepwise: bool
    sites: tuple[Site, ...]


@dataclass(frozen=True, slots=True)
class OutOfMemory:
    """A failed allocation in the history."""

    bytes: int
    free_bytes: int
    place: str


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Memory of one device of one process. Bytes throughout."""

    file: str
    rank: int | None
    device: int
    reserved: int
    allocated: int
    largest_free: int
    sites: tuple[Site, ...]
    growth: Growth | None
    failures: tuple[OutOfMemory, ...]
    expandable: bool


def looks_like_snapshot(head: bytes) -> bool:
    """Whether the first bytes are those of a CUDA memory snapshot."""
    if head[:1] != b"\x80":
        return False
    start = head[:4096]
    return (b"segments" in start and b"total_size" in head) or (
        b"device_traces" in start and b"action" in head
    )


def read_snapshots(data: bytes, name: str) -> tuple[Snapshot, ...]:
    """One snapshot per device in use. Raises `UnreadableArtefact`, `HostileArtefact`."""
    content = load_plain_pickle(data, name)
    if not isinstance(content, dict) or not isinstance(content.get("segments"), list | tuple):
        raise UnreadableArtefact(f"{name}: no CUDA memory snapshot (no `segments`)")
    by_device: dict[int, list[Mapping[Any, Any]]] = defaultdict(list)
    for segment in content["segments"]:
        if isinstance(segment, dict):
            by_device[_int(segment.get("device"))].append(segment)
    traces = content.get("device_traces")
    histories = list(traces) if isinstance(traces, list | tuple) else []
    devices = set(by_device) | {i for i, history in enumerate(histories) if history}
    if not devices:
        raise UnreadableArtefact(f"{name}: the snapshot holds no device")
    settings = content.get("allocator_settings")
    expandable = isinstance(settings, dict) and bool(settings.get("expandable_segments"))
    return tuple(
        _device(name, d, by_device[d], histories[d] if d < len(histories) else [], expandable)
        for d in sorted(devices)[:64]
    )


def _int(value: object) -> int:
    whole = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63
    return int(value) if whole else 0  # type: ignore[call-overload]


def _device(
    name: str,
    device: int,
    segments: list[Mapping[Any, Any]],
    history: object,
    expandable: bool,
) -> Snapshot:
    held: Counter[str] = Counter()
    blocks: Counter[str] = Counter()
    reserved = allocated = largest_free = 0
    for segment in segments:
        reserved += _int(segment.get("total_size"))
        found = segment.get("blocks")
        for block in found if isinstance(found, list | tuple) else ():
            if not isinstance(block, dict):
                continue
            size = _int(block.get("size"))
            if block.get("state") == "active_allocated":
                place = site_of(block.get("frames"))
                allocated += size
                held[place] += size
                blocks[place] += 1
            elif block.get("state") == "inactive":
                largest_free = max(largest_free, size)
    events = (
        [e for e in history if isinstance(e, dict)] if isinstance(history, list | tuple) else []
    )
    return Snapshot(
        file=name,
        rank=rank_of_name(name, named_only=True),
        device=device,
        reserved=reserved,
        allocated=allocated,
        largest_free=largest_free,
        sites=tuple(Site(p, n, blocks[p]) for p, n in held.most_common(10)),
        growth=_replay(events),
        failures=tuple(
            OutOfMemory(_int(e.get("size")), _int(e.get("device_free")), site_of(e.get("frames")))
            for e in events
            if e.get("action") == "oom"
        )[:16],
        expandable=expandable,
    )


def site_of(frames: object) -> str:
    """`function (file:line)` of the innermost frame of user code; "unknown" without a stack."""
    first = ""
    for frame in frames if isinstance(frames, list | tuple) else ():
        if not isinstance(frame, dict):
            continue
        file, function = str(frame.get("filename", ""))[:400], str(frame.get("name", ""))[:200]
        place = f"{function} ({file}:{_int(frame.get('line'))})"
        first = first or place
        if file and not is_library(file):
            return place
    return first or "unknown"


def _replay(events: list[dict[Any, Any]]) -> Growth | None:
    """Level of live bytes through the history, relative to its start; None for a short history."""
    live: dict[int, tuple[int, str]] = {}
    level, levels = 0, []
    for event in events:
        action = event.get("action")
        address = _int(event.get("addr"))
        if action == "alloc":
            size = _int(event.get("size"))
            live[address] = (size, site_of(event.get("frames")))
            level += size
        elif action == "free_completed":
            level -= live.pop(address, (_int(event.get("size")), ""))[0]
        else:
            continue
        levels.append(level)
    if len(levels) < WINDOWS * 4:
        return None
    width = len(levels) / WINDOWS
    troughs = [min(levels[int(i * width) : int((i + 1) * width)]) for i in range(WINDOWS)]
    climbs = [b - a for a, b in pairwise(troughs)]
    gained = troughs[-1] - troughs[0]
    held: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    for size, place in live.values():
        held[place] += size
        counts[place] += 1
    large = sum(sorted(climbs)[-4:])
    return Growth(
        troughs=tuple(troughs),
        rising=sum(c > 0 for c in climbs),
        falling=sum(c < 0 for c in climbs),
        gained_bytes=gained,
        # A staircase climbs in few steps (an event every N iterations), a slope in every window.
        stepwise=gained > 0 and large * 10 >= gained * 7,
        sites=tuple(Site(p, n, counts[p]) for p, n in held.most_common(5)),
    )
