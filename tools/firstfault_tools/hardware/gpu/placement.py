"""Which rank runs on the GPU that a hardware finding names? Joins it with times by rank.

A GPU that slows down for heat and a rank that computes long are one fault seen from two sides: the
hardware is the cause and gets the rank, the slow rank is its symptom.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from firstfault_tools.expressions import expression
from firstfault_tools.facts import Fact
from firstfault_tools.finding_roles import FindingRole
from firstfault_tools.findings import Finding, Level

_DISKS = frozenset({"kernel.nvme", "kernel.io_error", "kernel.filesystem"})
_EIO = expression(r"(?i)input/output error|Errno (?:5|30)\b|read-only")
_SLOWS = frozenset(
    {
        "hardware.throttled",
        "hardware.clock_odd",
        "hardware.gpu_busy",
        "hardware.gpu_shared",
        "hardware.pcie_link",
        "hardware.pcie_width",
        "hardware.pcie_link_odd",
    }
)


def join_stragglers(findings: Sequence[Finding]) -> list[Finding]:
    """Findings with ranks on the hardware findings that explain a straggler."""
    out = list(findings)
    for place, slow in enumerate(out):
        index = slow.gpu_index
        if not slow.has(FindingRole.STRAGGLER):
            continue
        if index is None and slow.rank is not None:
            index = _only_suspect(out, slow.rank)
        if index is None:
            continue
        joined = [i for i, f in enumerate(out) if _explains(f, slow, index, out)]
        if not joined:
            continue
        words = f"; it is the GPU of rank {slow.rank}, for which all ranks wait"
        for i in joined:
            hardware = out[i]
            out[i] = replace(
                hardware,
                title=hardware.title + ("" if hardware.says(words) else words),
                rank=slow.rank,
                level=Level.CAUSE if hardware.level is Level.CONTEXT else hardware.level,
                host=hardware.host or slow.host,
                evidence=(*hardware.evidence, *slow.evidence[:2]),
            )
        # what only says that it is slow is of the kind of what makes it slow
        out[place] = replace(slow, level=Level.SYMPTOM, category=out[joined[0]].category)
    return out


def join_storage(findings: Sequence[Finding]) -> list[Finding]:
    """A broken disk with the read error that it caused in a rank: the disk is first, the rank its victim."""
    errors = [f for f in findings if _is_read_error(f)]
    for disk in findings:
        error = _find_victim(disk, errors)
        if error is None:
            continue
        told = _join_disk(disk, error)
        lowered = replace(error, level=Level.SYMPTOM)
        return [told if f is disk else lowered if f is error else f for f in findings]
    return list(findings)


def _is_read_error(finding: Finding) -> bool:
    told = finding.has(FindingRole.READ_ERROR) or finding.kind == "traceback.unhandled"
    return told and _EIO.search(finding.title) is not None


def _find_victim(disk: Finding, errors: Sequence[Finding]) -> Finding | None:
    """The first read error on the host of a broken disk; None where it is another rank's."""
    if disk.kind not in _DISKS or disk.level is not Level.CAUSE:
        return None
    own = next((e for e in errors if disk.host is None or e.host in (None, disk.host)), None)
    if own is None or (disk.rank is not None and own.rank not in (None, disk.rank)):
        return None
    return own


def _join_disk(disk: Finding, error: Finding) -> Finding:
    """The disk with the rank that could not read from it."""
    rank = error.rank if error.rank is not None else disk.rank
    who = f"rank {rank}" if rank is not None else "a rank"
    where = f" of {disk.host}" if disk.host and not disk.says(disk.host) else ""
    path = error.text(Fact.FILE).strip("'\"")
    words = f"Errno 5 (Input/output error){f' on {path}' if path else ''} from it"
    if error.says("read-only"):
        words = "Errno 30 (Read-only file system), since the kernel remounted it read-only"
    return replace(
        disk,
        title=f"{disk.title}{where}; {who} got {words}",
        rank=rank,
        host=disk.host or error.host,
        evidence=(*disk.evidence, *error.evidence[:2]),
    )


def _only_suspect(findings: Sequence[Finding], rank: int) -> int | None:
    """Index of the one card that its readings show to be slow, where a straggler's card is not told.

    A rank is placed by what is listed: on a host of n cards rank r sits on card r mod n, or where it was assigned.
    """
    slow = [f for f in findings if f.kind in _SLOWS and f.gpu_index is not None]
    known = {f.gpu_index for f in slow if f.rank in (None, rank)}
    if len(known) != 1 or any(f.rank not in (None, rank) for f in slow):
        return None
    index = known.pop()
    listed = [f.whole(Fact.GPUS) or 0 for f in findings if f.kind == "hardware.gpu_inventory" and f.flag(Fact.GPUS)]  # fmt: skip
    assigned = any(f.rank == rank for f in slow)
    fits = len(listed) == 1 and listed[0] > 1 and rank % listed[0] == index
    return index if assigned or fits else None


def _explains(hardware: Finding, slow: Finding, index: int, findings: Sequence[Finding]) -> bool:
    deep = hardware.level is Level.CAUSE or hardware.kind in _SLOWS
    if not hardware.kind.startswith("hardware.") or not deep:
        return False
    if hardware.gpu_index != index or hardware.rank not in (None, slow.rank):
        return False
    if hardware.host is not None:
        return slow.host is None or hardware.host == slow.host
    # Without a host the GPU number alone could be any node's: taken only if one output was handed in.
    files = {e.file for f in findings if f.kind.startswith("hardware.gpu_") for e in f.evidence} | {
        e.file for e in hardware.evidence
    }
    return len(files) == 1 or hardware.kind in _SLOWS
