"""How near are memory and disks to their end, and how old is the last checkpoint?"""

from __future__ import annotations

from collections.abc import Iterator

from firstfault_tools.expressions import expression

FULL = 0.95
"""Share from which on the next allocation or checkpoint may fail; the bar that on-call lists use."""

_MEMORY = expression(r"(?m)^(MemTotal|MemAvailable):\s{1,20}(\d{1,15}) kB")
_CGROUP = expression(r"(?m)memory\.(max|current):(\d{1,18})$")
_KILLS = expression(r"(?m)memory\.events:oom_kill (\d{1,9})$")
_DISK = expression(
    r"(?m)^\S{1,400} {1,40}(\S{1,40}) {1,40}(\d{1,18}) {1,40}\d{1,18} {1,40}(\d{1,18}) {1,40}(\d{1,3})% (/.{0,400})$"
)
_CHECKPOINT = expression(r"(?m)^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\S{0,12} (\d{1,18}) (/.{1,400})$")
_NO_DISK = ("squashfs", "iso9660", "overlay", "erofs")
"""File systems that are full by nature or repeat another one."""


def read_headroom(step: str, text: str) -> Iterator[str]:
    """What a person should know at once from the answer of this step; nothing where all is well."""
    if step == "memory":
        yield from _memory(text)
    elif step == "cgroup":
        yield from _cgroup(text)
    elif step == "disk":
        yield from _disk(text)
    elif step == "checkpoints":
        yield from _checkpoints(text)


def _memory(text: str) -> Iterator[str]:
    values = {name: int(kib) for name, kib in _MEMORY.findall(text)}
    total, left = values.get("MemTotal", 0), values.get("MemAvailable")
    if total and left is not None and left < total * (1 - FULL):
        yield f"memory: {left / 2**20:.1f} of {total / 2**20:.1f} GiB are left"


def _cgroup(text: str) -> Iterator[str]:
    values = {name: int(size) for name, size in _CGROUP.findall(text)}
    limit, used = values.get("max", 0), values.get("current", 0)
    if limit and used > limit * FULL:
        yield f"memory: {used / 2**30:.1f} of the container's {limit / 2**30:.1f} GiB are used"
    kills = _KILLS.search(text)
    if kills is not None and int(kills[1]):
        yield f"memory: the kernel has killed {kills[1]} processes of this container for memory"


def _disk(text: str) -> Iterator[str]:
    for kind, size, left, share, mount in _DISK.findall(text):
        if kind not in _NO_DISK and int(size) and int(share) >= FULL * 100:
            yield f"disk: {mount} is {share} % full, {int(left) / 2**20:.1f} GiB are left"


def _checkpoints(text: str) -> Iterator[str]:
    rows = [(time, path) for time, _, path in _CHECKPOINT.findall(text)]
    if rows:
        time, path = max(rows)
        yield f"checkpoint: the newest file is {path}, written {time} (the host's time)"
    else:
        yield "checkpoint: the folder holds none"
