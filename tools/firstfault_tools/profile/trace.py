"""What did the GPU of one rank run, and when?

Reads a torch.profiler (Kineto) Chrome trace, plain or gzipped, into the time that each class of kernel
covers: GEMM, attention, NCCL, memory, other. Only complete GPU events count; times are microseconds.
"""

from __future__ import annotations

import json
import re
import zlib
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum
from typing import Any

from firstfault_tools.collectives.recorder_dump import rank_of_name
from firstfault_tools.dataclass import dataclass
from firstfault_tools.errors import HostileArtefact, UnreadableArtefact
from firstfault_tools.expressions import expression
from firstfault_tools.profile.intervals import Interval, gaps, length, merge_intervals, subtract

LIMIT_BYTES = 512 * 1024 * 1024
_GEMM = expression(
    r"gemm|cutlass|cublas|xmma|wgmma|nvjet|matmul|_s\d{4,}|conv\d?d|convolve|implicit_con|triton_mm",
    re.IGNORECASE,
)
_ATTENTION = expression(r"flash|fmha|attention|attn|sdpa", re.IGNORECASE)
_NCCL = expression(r"^nccl|ncclDevKernel|ncclKernel|mscclpp|nvshmem", re.IGNORECASE)
_TRANSFER = expression(r"SendRecv|send_recv|ncclSend|ncclRecv", re.IGNORECASE)
_LOADER = expression(r"DataLoader|dataloader|next_batch|get_batch")
_GPU_CATEGORIES = {"kernel", "gpu_memcpy", "gpu_memset"}


class Kernel(StrEnum):
    """Class of a GPU event."""

    GEMM = "gemm"
    ATTENTION = "attention"
    NCCL = "nccl"
    MEMORY = "memory"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Gap:
    """A stretch without any GPU work, and the CPU event that covers most of it ("" if none)."""

    start_us: float
    duration_us: float
    cpu_event: str


@dataclass(frozen=True, slots=True)
class RankTrace:
    """Where the GPU time of one rank went, in microseconds.

    busy_us: covered by each class. exposed_us: NCCL time that no computation hides. idle_us: no GPU
    event at all between the first and the last. loader_us: CPU time in the data loader inside gaps.
    transfer_us: exposed time of point-to-point transfers, in which a pipeline stage waits for a neighbour.
    """

    file: str
    rank: int | None
    world: int | None
    window_us: float
    busy_us: Mapping[Kernel, float]
    exposed_us: float
    idle_us: float
    loader_us: float
    longest_gaps: tuple[Gap, ...]
    top_kernels: tuple[tuple[str, float, int], ...]
    steps_us: tuple[float, ...]
    transfer_us: float = 0.0


def classify_kernel(name: str, category: str) -> Kernel:
    """Class of a GPU event by its name; copies and fills by their category."""
    if category in ("gpu_memcpy", "gpu_memset"):
        return Kernel.MEMORY
    if _NCCL.search(name):
        return Kernel.NCCL
    if _ATTENTION.search(name):
        return Kernel.ATTENTION
    return Kernel.GEMM if _GEMM.search(name) else Kernel.OTHER


def unpack(data: bytes, name: str, limit: int = LIMIT_BYTES) -> bytes:
    """Content of a gzip file, or the data itself. Raises `HostileArtefact` beyond `limit` bytes."""
    if data[:2] != b"\x1f\x8b":
        if len(data) > limit:
            raise HostileArtefact(f"{name}: {len(data)} bytes of trace, the limit is {limit}")
        return data
    decoder = zlib.decompressobj(wbits=31)
    try:
        content = decoder.decompress(data, limit + 1)
    except zlib.error as error:
        raise UnreadableArtefact(f"{name}: broken gzip ({error}); copy the file again") from error
    if len(content) > limit:
        raise HostileArtefact(f"{name}: unpacks to over {limit} bytes; profile fewer steps")
    return content


def looks_like_trace(head: bytes) -> bool:
    """Whether the first bytes, unpacked if need be, are those of a Kineto trace."""
    if head[:2] == b"\x1f\x8b":
        try:
            head = zlib.decompressobj(wbits=31).decompress(head, 64 * 1024)
        except zlib.error:
            return False
    if head.lstrip()[:1] != b"{":
        return False
    return b'"traceEvents"' in head or (
        b'"schemaVersion"' in head and b'"deviceProperties"' in head
    )


def read_trace(data: bytes, name: str) -> RankTrace:
    """Breakdown of one rank's trace. Raises `UnreadableArtefact`, `HostileArtefact`."""
    try:
        content = json.loads(unpack(data, name))
    except (ValueError, RecursionError) as error:
        raise UnreadableArtefact(f"{name}: broken JSON ({type(error).__name__})") from error
    events = content.get("traceEvents") if isinstance(content, dict) else None
    if not isinstance(events, list):
        raise UnreadableArtefact(f"{name}: no `traceEvents` in it")
    spread = content.get("distributedInfo")
    info: Mapping[str, Any] = spread if isinstance(spread, dict) else {}
    return _break_down(events, name, _rank(info.get("rank"), name), _count(info.get("world_size")))


def _rank(value: object, name: str) -> int | None:
    known = _count(value)
    return known if known is not None else rank_of_name(name, named_only=True)


def _count(value: object) -> int | None:
    whole = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 10_000_000
    return int(value) if whole else None  # type: ignore[call-overload]


def _span(event: Mapping[str, Any]) -> Interval | None:
    start, duration = event.get("ts"), event.get("dur")
    if isinstance(start, bool) or isinstance(duration, bool):
        return None
    if not isinstance(start, int | float) or not isinstance(duration, int | float):
        return None
    if not (-1e18 < start < 1e18 and 0 <= duration < 1e15):
        return None
    return float(start), float(start) + float(duration)


def _break_down(events: list[Any], name: str, rank: int | None, world: int | None) -> RankTrace:
    read = _Events()
    for event in events:
        span = _span(event) if isinstance(event, dict) and event.get("ph") == "X" else None
        if span is not None:
            read.add(span, str(event.get("name", ""))[:300], str(event.get("cat", "")))
    covered = {kind: merge_intervals(found) for kind, found in read.spans.items()}
    everything = merge_intervals(s for found in covered.values() for s in found)
    if not everything:
        raise UnreadableArtefact(
            f"{name}: no GPU event in it; profile with ProfilerActivity.CUDA on a GPU"
        )
    first, last = everything[0][0], everything[-1][1]
    compute = merge_intervals(
        s for kind, found in covered.items() if kind is not Kernel.NCCL for s in found
    )
    exposed = subtract(covered.get(Kernel.NCCL, []), compute)
    holes = sorted(gaps(everything), key=lambda g: g[0] - g[1])
    longest = tuple(Gap(a, b - a, _covering(read.host, a, b)) for a, b in holes[:5] if b > a)
    hidden = subtract(read.find_loading(), everything)
    return RankTrace(
        file=name,
        rank=rank,
        world=world,
        window_us=last - first,
        busy_us={kind: length(found) for kind, found in covered.items()},
        exposed_us=length(exposed),
        idle_us=sum(b - a for a, b in holes),
        loader_us=sum(max(0.0, min(b, last) - max(a, first)) for a, b in hidden),
        longest_gaps=longest,
        top_kernels=tuple((k, float(us), read.calls[k]) for k, us in read.spent.most_common(10)),
        steps_us=tuple(read.steps),
        transfer_us=length(subtract(merge_intervals(read.transfers), compute)),
    )


@dataclass(slots=True)
class _Events:
    """The events of a trace: of the GPU by kind, of the host with their names, and the steps."""

    spans: dict[Kernel, list[Interval]] = field(default_factory=lambda: defaultdict(list))
    host: list[tuple[float, float, str]] = field(default_factory=list)
    steps: list[float] = field(default_factory=list)
    spent: Counter[str] = field(default_factory=Counter)
    calls: Counter[str] = field(default_factory=Counter)
    transfers: list[Interval] = field(default_factory=list)

    def add(self, span: Interval, label: str, category: str) -> None:
        """Take one event."""
        if category in _GPU_CATEGORIES:
            kind = classify_kernel(label, category)
            self.spans[kind].append(span)
            if kind is Kernel.NCCL and _TRANSFER.search(label):
                self.transfers.append(span)
            self.spent[label] += int(span[1] - span[0])
            self.calls[label] += 1
        elif label.startswith("ProfilerStep#") and category != "gpu_user_annotation":
            self.steps.append(span[1] - span[0])
        elif category in ("cpu_op", "user_annotation", "python_function", "cuda_runtime"):
            self.host.append((*span, label))

    def find_loading(self) -> list[Interval]:
        """When the host loads data."""
        return merge_intervals((a, b) for a, b, label in self.host if _LOADER.search(label))


def _covering(host: list[tuple[float, float, str]], start: float, end: float) -> str:
    """Name of the CPU event that covers most of a gap; of several, the shortest (innermost)."""
    best = ("", 0.0, 0.0)
    for a, b, label in host:
        share = min(b, end) - max(a, start)
        if label.startswith("ProfilerStep#") or share <= 0:
            continue
        if (share, a - b) > (best[1], best[2]):
            best = (label, share, a - b)
    return best[0] if best[1] * 2 >= end - start else ""
