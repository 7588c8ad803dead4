"""What does a PyTorch out-of-memory message say, in bytes?

Reads every wording since PyTorch 1.0 (c10/cuda/CUDACachingAllocator.cpp and the XPU allocator):
`(GPU 0; 15.90 GiB total capacity; 14.93 GiB already allocated; ...)` with `cached` before 1.4 and
`reserved in total by PyTorch` after, and since 2.0 `GPU 0 has a total capacity of ... of which ... is
free. ... Of the allocated memory ...` (`capacty` until 2.1).
"""

from __future__ import annotations

import re
from functools import cache

from firstfault_tools.dataclass import dataclass
from firstfault_tools.errors import UnreadableArtefact
from firstfault_tools.expressions import expression

MARK = "Tried to allocate"
MESSAGE_WINDOW = 4096
_UNITS = {
    "bytes": 1,
    "byte": 1,
    "b": 1,
    "kib": 1 << 10,
    "mib": 1 << 20,
    "gib": 1 << 30,
    "tib": 1 << 40,
    "kb": 1 << 10,
    "mb": 1 << 20,
    "gb": 1 << 30,
}
_SIZE = r"(\d{1,12}(?:\.\d{1,4})?) ?(bytes?|[KMGT]i?B)"


@dataclass(frozen=True, slots=True)
class OtherProcess:
    """A process named in the message. bytes is what it holds on the card."""

    pid: int
    bytes: int


@dataclass(frozen=True, slots=True)
class OomMessage:
    """Sizes in bytes; None where the wording of that release does not give the number.

    reserved_unallocated: cached by PyTorch and not in use. process: this process on the card, context
    and libraries included. limit: cap set by set_per_process_memory_fraction. tried_step: the
    rounding of the printed request.
    """

    tried: int
    tried_step: int
    gpu: int | None = None
    total: int | None = None
    free: int | None = None
    allocated: int | None = None
    reserved: int | None = None
    reserved_unallocated: int | None = None
    private_pools: int | None = None
    process: int | None = None
    limit: int | None = None
    others: tuple[OtherProcess, ...] = ()
    form: str = "bare"
    text: str = ""


@cache
def _patterns() -> dict[str, re.Pattern[str]]:
    found = {
        "head": rf"(?:CUDA|HIP|XPU|MPS|NPU) out of memory\. ?Tried to allocate {_SIZE}",
        "gpu_old": r"\(GPU (\d{1,3});",
        "gpu_new": r"(?:GPU|NPU) (\d{1,3}) has a total capac[i]?ty of",
        "total_old": rf"{_SIZE} total(?: capacity|;)",
        "total_new": rf"total capac[i]?ty of {_SIZE}",
        "free_old": rf"{_SIZE} free[;)]",
        "free_new": rf"of which {_SIZE} is free",
        "allocated_old": rf"{_SIZE} (?:already allocated|allocated;)",
        "allocated_new": rf"Of the allocated memory {_SIZE} is allocated by PyTorch",
        "reserved_old": rf"{_SIZE} (?:reserved in total by PyTorch|cached)",
        "unallocated_new": rf"{_SIZE} is reserved by PyTorch but unallocated",
        "pools": rf"{_SIZE} allocated in private pools",
        "process": rf"this process has {_SIZE} memory in use",
        "limit": rf"{_SIZE} allowed;",
        "other": rf"Process (\d{{1,10}}) has {_SIZE} memory in use",
    }
    return {name: expression(pattern) for name, pattern in found.items()}


def parse_size(number: str, unit: str) -> int:
    """Bytes of a printed size. PyTorch prints two decimals of KiB, MiB or GiB."""
    return int(float(number) * _UNITS[unit.lower()])


def find_messages(text: str, limit: int = 1000) -> tuple[OomMessage, ...]:
    """Every out-of-memory message in a text, at most `limit`. Linear in the text."""
    head = _patterns()["head"]
    starts: list[int] = []
    place = text.find(MARK)
    while place >= 0 and len(starts) <= limit:
        # The mark is rare and the search for it fast; the wording around it decides.
        begin = max(0, place - 64)
        for match in head.finditer(text[begin : place + 64]):
            if not starts or begin + match.start() > starts[-1]:
                starts.append(begin + match.start())
        place = text.find(MARK, place + len(MARK))
    found = []
    for index, start in enumerate(starts[:limit]):
        end = starts[index + 1] if index + 1 < len(starts) else len(text)
        found.append(_read(text[start : min(end, start + MESSAGE_WINDOW)]))
    return tuple(found)


def read_message(text: str) -> OomMessage:
    """The first message in a text. Raises UnreadableArtefact where there is none."""
    found = find_messages(text, 1)
    if not found:
        raise UnreadableArtefact(
            "no 'out of memory. Tried to allocate' in this text; paste the whole error line"
        )
    return found[0]


def _read(raw: str) -> OomMessage:
    # Terminals and trackers wrap the line; the wording itself holds no line break.
    text = " ".join(raw.split())
    patterns = _patterns()
    head = patterns["head"].search(text)
    if head is None:
        raise UnreadableArtefact("the size after 'Tried to allocate' is cut off")
    old, new = patterns["gpu_old"].search(text), patterns["gpu_new"].search(text)
    gpu = old or new
    allocated = _find_size(text, "allocated_old", "allocated_new")
    reserved, unallocated = _complete(
        allocated, _find_size(text, "reserved_old"), _find_size(text, "unallocated_new")
    )
    pools = _find_size(text, "pools")
    if pools is not None and allocated is not None and pools > allocated:
        pools = None
    total = _find_size(text, "total_old") or _find_size(text, "total_new")
    others = _read_others(text, total)
    process = _find_size(text, "process")
    if process is None and reserved is not None:
        # Inside a container PyTorch cannot tell its own process from others by number: the one that
        # holds at least what PyTorch reserved is this one.
        own = [other for other in others if other.bytes >= reserved]
        if len(own) == 1:
            process = own[0].bytes
            others.remove(own[0])
    return OomMessage(
        tried=parse_size(head[1], head[2]),
        tried_step=max(1, _UNITS[head[2].lower()] // 100),
        gpu=int(gpu[1]) if gpu else None,
        total=total,
        free=_find_size(text, "free_new", "free_old"),
        allocated=allocated,
        reserved=reserved,
        reserved_unallocated=unallocated,
        private_pools=pools,
        process=process,
        limit=_find_size(text, "limit"),
        others=tuple(others),
        form="2.x" if new else "1.x" if old else "bare",
        text=re.split(r" If reserved | See documentation | Please use ", text)[0][:700],
    )


def _find_size(text: str, *names: str) -> int | None:
    """Bytes by the first of these patterns that the text holds."""
    found = (_patterns()[name].search(text) for name in names)
    match = next((m for m in found if m is not None), None)
    return parse_size(match[1], match[2]) if match is not None else None


def _complete(
    allocated: int | None, reserved: int | None, unallocated: int | None
) -> tuple[int | None, int | None]:
    """(reserved, reserved but unallocated), each from the others where it is not printed."""
    if allocated is None:
        return reserved, unallocated
    if reserved is not None and reserved < allocated:
        # before 1.4 `cached` was what is cached beyond the tensors
        return allocated + reserved, reserved
    if reserved is None and unallocated is not None:
        return allocated + unallocated, unallocated
    if reserved is not None and unallocated is None:
        return reserved, max(0, reserved - allocated)
    return reserved, unallocated


def _read_others(text: str, total: int | None) -> list[OtherProcess]:
    """Other processes on the card; one whose use cannot be read is printed with a number near 2^64."""
    found = (
        OtherProcess(int(match[1]), parse_size(match[2], match[3]))
        for match in _patterns()["other"].finditer(text)
    )
    return [other for other in found if total is None or other.bytes <= total]
