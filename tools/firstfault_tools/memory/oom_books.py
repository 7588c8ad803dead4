"""Which bucket broke the budget? Closes the books of an out-of-memory message.

capacity = free + other processes + (context, NCCL and libraries) + fragmentation + allocated.
The four have different fixes, so the answer names one of them and says by which rule.
"""

from __future__ import annotations

from enum import StrEnum

from firstfault_tools.dataclass import dataclass
from firstfault_tools.memory.oom_message import OomMessage
from firstfault_tools.memory.sizes import GIB

OUTSIDE_NORMAL = 6 * GIB
"""Context, NCCL and libraries of one process beyond this are out of the ordinary: 0.75 GiB alone,
1.6 with one communicator, 4 to 7 with many (NVIDIA/nccl issues 864, 964, 1685)."""
CLOSES_WITHIN = GIB // 2


class Bucket(StrEnum):
    """Where the memory went."""

    ALLOCATED = "allocated"
    FRAGMENTATION = "fragmentation"
    NON_PYTORCH = "non_pytorch"
    OTHER_PROCESSES = "other_processes"
    REQUEST = "request"
    """The single request is larger than the card."""
    LIMIT = "limit"
    """A cap set on the process, not the card."""
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Books:
    """Sizes in bytes, None where the message does not say. unexplained: capacity less all the rest."""

    bucket: Bucket
    reason: str
    capacity: int | None
    free: int | None
    allocated: int | None
    fragmentation: int | None
    non_pytorch: int | None
    others: int | None
    unexplained: int | None
    missing: int | None
    fix: str


_FIXES = {
    Bucket.ALLOCATED: "Live tensors fill the card: shrink or split them (see the ranked changes).",
    Bucket.FRAGMENTATION: "Set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True (2.9.x reads the old "
    "name only); avoid sizes that change from step to step.",
    Bucket.NON_PYTORCH: "Fewer NCCL communicators or smaller buffers, fewer libraries on the card; "
    "tensors are not the cause.",
    Bucket.OTHER_PROCESSES: "Another process holds the card: list it with nvidia-smi, end a leftover "
    "one, or ask for an exclusive GPU.",
    Bucket.REQUEST: "This one tensor can never fit: check shapes and indices for a mistake first.",
    Bucket.LIMIT: "Raise or drop torch.cuda.set_per_process_memory_fraction.",
    Bucket.UNKNOWN: "Collect the full message (all sizes follow 'Tried to allocate').",
}


def close_books(message: OomMessage, capacity_gib: float | None = None) -> Books:
    """Account for the whole card and name the bucket. capacity_gib helps where the message is bare."""
    total = message.total
    if total is None and capacity_gib is not None:
        total = int(capacity_gib * GIB)
    others, non_pytorch = _find_outside(message, total)
    bucket, reason = _choose(message, total, others or 0, non_pytorch)
    return Books(
        bucket=bucket,
        reason=reason,
        capacity=total,
        free=message.free,
        allocated=message.allocated,
        fragmentation=message.reserved_unallocated,
        non_pytorch=non_pytorch,
        others=others,
        unexplained=_find_unexplained(message, total, others, non_pytorch),
        missing=message.tried - message.free if message.free is not None else None,
        fix=_FIXES[bucket],
    )


def _find_outside(message: OomMessage, total: int | None) -> tuple[int | None, int | None]:
    """(other processes, context with NCCL and libraries), as far as the message tells."""
    others: int | None = sum(other.bytes for other in message.others) or None
    if message.reserved is None:
        return others, None
    if message.process is not None:
        if total is not None and message.free is not None and not message.others:
            # What no process claims is another container's or another user's.
            rest = total - message.free - message.process
            others = rest if rest > CLOSES_WITHIN else 0
        return others, max(0, message.process - message.reserved)
    if total is None or message.free is None:
        return others, None
    # 1.x wording: context, NCCL and other processes come as one rest.
    return others, max(0, total - message.free - message.reserved - (others or 0))


def _find_unexplained(
    message: OomMessage, total: int | None, others: int | None, non_pytorch: int | None
) -> int | None:
    """What is left of the card where every part is known."""
    parts = (message.free, message.allocated, message.reserved_unallocated, non_pytorch)
    known = [size for size in parts if size is not None]
    if total is None or len(known) < len(parts):
        return None
    return total - sum(known) - (others or 0)


def _choose(
    message: OomMessage, total: int | None, others: int, non_pytorch: int | None
) -> tuple[Bucket, str]:
    tried = message.tried
    if total is not None and tried > total:
        return Bucket.REQUEST, f"{_gib(tried)} asked of a card of {_gib(total)}"
    free, unused = message.free, message.reserved_unallocated
    if free is None or message.allocated is None:
        return Bucket.UNKNOWN, "the message gives no free or allocated size"
    if message.limit is not None and free > tried:
        return Bucket.LIMIT, f"{_gib(free)} is free, yet the process may hold {_gib(message.limit)}"
    short = tried - free
    if unused is not None and unused >= tried:
        return (
            Bucket.FRAGMENTATION,
            f"{_gib(unused)} is cached and unused, more than the {_gib(tried)} asked for, in pieces "
            "too small",
        )
    if others >= short and others > 0.02 * (total or others):
        return (
            Bucket.OTHER_PROCESSES,
            f"other processes hold {_gib(others)}; without them {_gib(short)} would not be missing",
        )
    if unused is not None and unused + free >= tried and unused > 0.02 * (total or unused):
        return (
            Bucket.FRAGMENTATION,
            f"free {_gib(free)} and cached {_gib(unused)} together exceed the {_gib(tried)} asked for",
        )
    if non_pytorch is not None and non_pytorch - OUTSIDE_NORMAL >= short:
        who = "context, NCCL and libraries hold"
        if message.process is None:
            who = "contexts and tensors of other processes, or libraries, hold"
        return (
            Bucket.NON_PYTORCH,
            f"{who} {_gib(non_pytorch)}, far above the usual 1 to 6",
        )
    return (
        Bucket.ALLOCATED,
        f"tensors hold {_gib(message.allocated)}; cache and outside use would not have covered the "
        f"missing {_gib(short)}",
    )


def _gib(size: int) -> str:
    return f"{size / GIB:.2f} GiB"
