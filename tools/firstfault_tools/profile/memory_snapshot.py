"""What do CUDA memory snapshots say of an out-of-memory error: who holds it, does it leak, is it shattered?"""

from __future__ import annotations

from firstfault_tools.errors import ToolError, UnreadableArtefact
from firstfault_tools.findings import Category, Confidence, Evidence, Finding, Json, Level
from firstfault_tools.profile.snapshot import (
    Growth,
    Site,
    Snapshot,
    looks_like_snapshot,
    read_snapshots,
)
from firstfault_tools.registry import Artefact, Reader, Reading

GIB = 1024**3
# Troughs that rise again and again and hardly fall are growth and not the first step's.
RISING_WINDOWS = 3
FALLING_WINDOWS = 2
GAINED_SHARE = 0.1
SHATTERED_SHARE = 0.25


def recognise(name: str, head: bytes) -> bool:
    """Whether an artefact is a CUDA memory snapshot."""
    return looks_like_snapshot(head)


def read(artefacts: tuple[Artefact, ...]) -> Reading:
    """Findings over the snapshots of all ranks. Raises `ToolError` where none could be read."""
    snapshots: list[Snapshot] = []
    refused: list[ToolError] = []
    for artefact in artefacts:
        try:
            snapshots.extend(read_snapshots(artefact.data(), artefact.name))
        except ToolError as error:
            refused.append(error)
    if not snapshots:
        raise refused[0] if refused else UnreadableArtefact("no memory snapshot was given")
    findings = [f for s in snapshots for f in (*_leaks(s), *_failures(s))]
    findings.extend(_holders(s) for s in snapshots)
    rows: list[Json] = [_row(s) for s in snapshots]
    skipped: list[Json] = [str(error) for error in refused]
    return Reading(tuple(findings), {"devices": rows, "unreadable": skipped})


def _who(snapshot: Snapshot) -> str:
    return f"rank {snapshot.rank}" if snapshot.rank is not None else f"device {snapshot.device}"


def _quote(snapshot: Snapshot, text: str) -> Evidence:
    return Evidence(file=snapshot.file, line=0, text=text, rank=snapshot.rank)


def _site(site: Site) -> str:
    return f"{site.bytes / GIB:.3f} GiB in {site.blocks} blocks at {site.place}"


def _holders(snapshot: Snapshot) -> Finding:
    top = snapshot.sites[0] if snapshot.sites else None
    most = f"; most at {top.place} ({top.bytes / GIB:.2f} GiB)" if top else ""
    title = (
        f"{_who(snapshot)} holds {snapshot.allocated / GIB:.2f} GiB of "
        f"{snapshot.reserved / GIB:.2f} GiB reserved{most}"
    )
    return Finding(
        kind="memory.snapshot",
        title=title,
        level=Level.CONTEXT,
        category=Category.OOM,
        confidence=Confidence.CONFIRMED,
        evidence=tuple(_quote(snapshot, _site(s)) for s in snapshot.sites[:5]),
        gpu=str(snapshot.device),
        facts={**_row(snapshot), "explains": {"memory": 0.5}},
    )


def _row(snapshot: Snapshot) -> dict[str, Json]:
    return {
        "rank": snapshot.rank,
        "device": snapshot.device,
        "reserved_gib": snapshot.reserved / GIB,
        "allocated_gib": snapshot.allocated / GIB,
        "largest_free_block_gib": snapshot.largest_free / GIB,
        "expandable_segments": snapshot.expandable,
        "top_sites": [
            {"place": s.place, "gib": s.bytes / GIB, "blocks": s.blocks} for s in snapshot.sites
        ],
        "troughs_gib": [t / GIB for t in snapshot.growth.troughs] if snapshot.growth else [],
    }


def grows(growth: Growth | None, live_bytes: int) -> bool:
    """Whether a history shows growth that a warm-up does not explain."""
    if growth is None or growth.gained_bytes <= 0:
        return False
    half = len(growth.troughs) // 2
    late = growth.troughs[-1] - growth.troughs[half]
    large = growth.gained_bytes >= GAINED_SHARE * max(live_bytes, growth.troughs[-1])
    # A good part of the gain must fall into the second half; the first steps always grow.
    lasting = growth.rising >= RISING_WINDOWS and growth.falling <= FALLING_WINDOWS
    return lasting and large and late * 4 >= growth.gained_bytes


def _leaks(snapshot: Snapshot) -> list[Finding]:
    growth = snapshot.growth
    if growth is None or not grows(growth, snapshot.allocated):
        return []
    shape = "in steps" if growth.stepwise else "steadily"
    site = growth.sites[0] if growth.sites else None
    where = f"; what stays was allocated at {site.place}" if site else ""
    return [
        Finding(
            kind="memory.growth",
            title=(
                f"live memory of {_who(snapshot)} grows {shape}, by {growth.gained_bytes / GIB:.3f} "
                f"GiB over the recorded history{where}"
            ),
            level=Level.CAUSE if snapshot.failures else Level.FAILURE,
            category=Category.OOM,
            evidence=tuple(_quote(snapshot, _site(s)) for s in growth.sites[:5]),
            rank=snapshot.rank,
            gpu=str(snapshot.device),
            facts={
                "gained_gib": growth.gained_bytes / GIB,
                "shape": "staircase" if growth.stepwise else "slope",
            },
        )
    ]


def _failures(snapshot: Snapshot) -> list[Finding]:
    if not snapshot.failures:
        return []
    failure = snapshot.failures[0]
    unused = snapshot.reserved - snapshot.allocated
    shattered = (
        snapshot.reserved > 0
        and unused >= SHATTERED_SHARE * snapshot.reserved
        and unused >= failure.bytes > snapshot.largest_free
    )
    title = (
        f"{_who(snapshot)} could not allocate {failure.bytes / GIB:.2f} GiB at {failure.place}, with "
        f"{failure.free_bytes / GIB:.2f} GiB free on the device"
    )
    if shattered:
        title += (
            f": {unused / GIB:.2f} GiB lie reserved but in pieces of at most "
            f"{snapshot.largest_free / GIB:.2f} GiB (fragmentation)"
        )
    text = f"oom: {failure.bytes} bytes at {failure.place}, device_free {failure.free_bytes}"
    return [
        Finding(
            kind="memory.fragmentation" if shattered else "memory.out_of_memory",
            title=title,
            level=Level.CAUSE,
            category=Category.OOM,
            confidence=Confidence.CONFIRMED,
            evidence=(
                _quote(snapshot, text),
                *(_quote(snapshot, _site(s)) for s in snapshot.sites[:3]),
            ),
            rank=snapshot.rank,
            gpu=str(snapshot.device),
            page="cuda-memory-fragmentation" if shattered else "cuda-out-of-memory",
            facts={
                "tried_gib": failure.bytes / GIB,
                "device_free_gib": failure.free_bytes / GIB,
                "reserved_unallocated_gib": unused / GIB,
            },
        )
    ]


SIGNS = ("total_size", "device_traces")

READER = Reader(
    name="memory_snapshot",
    summary="CUDA memory snapshots: top allocation sites, growth, fragmentation",
    recognise=recognise,
    read=read,
)
