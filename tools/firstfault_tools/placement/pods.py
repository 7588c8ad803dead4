"""Which pod does a line name, to which job does a pod belong, and which rank does its number say?"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from firstfault_tools.expressions import expression

if TYPE_CHECKING:
    from firstfault_tools.placement.logs import PlacedLogs

_PREFIX = expression(r"^\s*\[pod/(?P<pod>[a-z0-9][\w.-]*)/")
_NAMED = expression(
    r"\bpods?/(?P<slash>[a-z0-9][a-z0-9.-]*)|\b[Pp]od[ :=]+\"?(?:[a-z0-9-]+/)?(?P<word>[a-z0-9][a-z0-9.]*-[a-z0-9.-]*)"
)


def pod_of(text: str) -> str | None:
    """Pod that an event or a log line names, or None."""
    match = _PREFIX.match(text)
    if match is not None:
        return match["pod"]
    match = _NAMED.search(text)
    return (match["slash"] or match["word"]) if match is not None else None


def family_of(pod: str) -> str:
    """Name of the job a pod belongs to: without replica index, hash and role."""
    stem = re.sub(
        r"(?:-[a-z0-9]{8,10}-[a-z0-9]{5}|-\d{1,9}(?:-\d{1,9}){0,3}(?:-[a-z0-9]{5})?)$", "", pod
    )
    return re.sub(r"-(?:worker|master|launcher|chief|ps|head|leader|trainer|node)$", "", stem)


_ORDINAL = expression(r"(?P<base>(?:.*-)?(?P<role>[a-z]+)\d*)-(?P<index>\d{1,4})$")
_FIRST = ("master", "chief")
MOST_PODS = 4_096
_SEVERAL = expression(
    r"nvidia\.com/gpu['\"]?:\s*['\"]?(?:[2-9]|\d\d)|--nproc[_-]per[_-]node[= ](?:gpu|auto|[2-9]|\d\d)|slotsPerWorker: *(?:[2-9]|\d\d)|"
    r"\b[Ll]ocal[_ -][Rr]ank['\"]?[ :=]{1,3}[1-9]|\bcuda:[1-9]|\bGPU ?[1-9]\b|\[[1-9]\] NCCL"
)
_SIGNS = ("gpu", "GPU", "nproc", "slotsPer", "ocal", "cuda:", "] NCCL")


def rank_of_ordinal(incident: PlacedLogs, pod: str) -> int | None:
    """Rank that a pod's number says where every pod is one process: behind the master's, from 0 without one."""
    match = _ORDINAL.fullmatch(pod)
    if match is None or any(e.local_rank for e in incident.exits):
        return None
    if any(_SEVERAL.search(text[:1000]) for _, _, text in incident.lines_with(_SIGNS)):
        return None
    role, index = match["role"], int(match["index"])
    stem = match["base"].removesuffix(role)
    heads = tuple(f"{stem}{first}-0" for first in _FIRST)
    # part of a longer name, or an address, is somebody else's
    led = role not in _FIRST and any(
        re.search(rf"(?<![\w.-]){re.escape(head)}(?![\w.:-]\w)", text) is not None
        for _, _, text in incident.lines_with(heads)
        for head in heads
    )
    shift = 1 if led else 0
    if incident.printed_ranks and not _is_borne_out(incident, match["base"], stem, shift):
        return None
    rank = index + shift
    return rank if incident.world_size is None or rank < incident.world_size else None


def _is_borne_out(incident: PlacedLogs, base: str, stem: str, shift: int) -> bool:
    """Every rank that was printed stands beside the pod that this count gives it, in a job of known size."""
    count = {f"{stem}{first}-0": 0 for first in _FIRST} if shift else {}
    world = incident.world_size or 0
    count |= {f"{base}-{i - shift}": i for i in range(shift, min(world, MOST_PODS))}
    beside = {r for pod, ranks in incident.placement.ranks_on.items() for r in ranks if count.get(pod) == r}  # fmt: skip
    return incident.printed_ranks <= beside
