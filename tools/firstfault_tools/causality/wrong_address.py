"""Why did a kernel touch an address it must not: a tensor too large for its indices, or another device?

"Illegal memory access" names no reason. Two stand in the material itself: a tensor of more than 2^31
elements, which a kernel with 32-bit indices cannot address, and a process that never chose its device,
so that a kernel of an extension runs on GPU 0 with pointers of another GPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from math import prod

from firstfault_tools.causality.incident import LogIncident
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Category, Confidence, Finding, Level
from firstfault_tools.log.digest import Line
from firstfault_tools.log.scan import make_line

MOST_INDEX = 2**31 - 1
"""Largest element that a signed 32-bit index reaches."""

MOST_LINES = 20_000
SOURCE_LINES = 30
"""Distance of two lines of one excerpt of source."""

_SHAPE = expression(
    r"(?:(?P<name>[A-Za-z_][\w.]{1,40})\W{1,3}?(?:\w{1,12}[ =:]{1,3})?(?:torch\.Size\()?)?[(\[](?P<sizes>\d{1,12}(?:, ?\d{1,12}){1,5})[)\]]"
)
_NOT_NAME = frozenset({"size", "shape", "torch.size", "tensor", "of", "with", "to", "is", "torch"})
_PER_RANK = expression(
    r"device\(\s*f?['\"]cuda:\{|cuda:\{(?:self\.)?(?:args\.)?(?:local_)?rank|\.(?:to|cuda)\((?:self\.|args\.)?local_rank\)|"
    r"device\(\s*['\"]cuda['\"], (?:args\.)?local_rank|device_ids=\[(?:args\.)?local_rank\]"
)
_CHOOSES = ("set_device", "CUDAGuard", "cuda.device(", "OptionalCUDAGuard", "DeviceGuard")
_WORDS = ("local_rank", "cuda:{", "device_ids")
_OWN_KERNEL = expression(
    r"(?i)\b(?:fused|custom|cuda ext\w*|extension|triton|cupy|numba|\.cu\b|apex|flash\w*|spconv|torch_scatter|pointnet\w*|mmcv\.ops)\b"
)
_ON_FIRST = expression(r"(?i)\bGPU ?0\b.{0,60}?\b(?P<pids>\d{3,8}\b.*)")


def explain_access(incident: LogIncident, fault: Finding) -> Finding:
    """The finding of an illegal access with its reason, where the logs show one."""
    if fault.facts.get("survived") or not fault.evidence:
        return fault
    return _find_oversize(incident, fault) or _find_unset_device(incident, fault) or fault


def _find_oversize(incident: LogIncident, fault: Finding) -> Finding | None:
    """A shape printed before the fault, in the same log, whose elements exceed a 32-bit index."""
    place = fault.evidence[0]
    digest = next((d for d in incident.digests if d.file == place.file), None)
    if digest is None:
        return None
    best: tuple[int, str, str, Line] | None = None
    for number, text in islice(digest.kept, MOST_LINES):
        if number > place.line:
            break
        if ", " not in text or len(text) > 1000:
            continue
        for match in _SHAPE.finditer(text):
            sizes = [int(s) for s in match["sizes"].split(",")]
            count = prod(sizes)
            if (
                count <= MOST_INDEX
                or count > MOST_INDEX**2
                or max(sizes) > MOST_INDEX
                or 0 in sizes
            ):
                continue
            name = match["name"] or ""
            name = "" if name.lower() in _NOT_NAME else name
            best = (count, name, " x ".join(map(str, sizes)), make_line(digest.file, number, text, digest.year))  # fmt: skip
    if best is None:
        return None
    count, name, printed, line = best
    what = f"{name} of {printed}" if name else f"a tensor of {printed}"
    return _describe(
        fault,
        f"{what} has {count} elements, more than 2^31 - 1 = {MOST_INDEX}: a kernel with 32-bit indices (int32) overflows there "
        "and reads or writes outside the tensor, hence the illegal memory access; split the call (smaller micro batch, "
        "chunks), or use a version whose kernel has 64-bit indices",
        [line],
    )


def _find_unset_device(incident: LogIncident, fault: Finding) -> Finding | None:
    """Source that places tensors by local rank and never calls set_device; a rank that is not on GPU 0 failed."""
    if not fault.rank:
        return None
    rows = [(d, n, t) for d, n, t in incident.lines_with(_WORDS) if _PER_RANK.search(t[:500])]
    rows = [r for r in rows if '"' in r[2] or "'" in r[2] or "=" in r[2]]
    if not rows or any(True for _ in incident.lines_with(_CHOOSES)):
        return None
    # only source that shows the set-up as well says what is not called; frames of a traceback do not
    starts = {(d.file, n) for d, n, _ in incident.lines_with(("init_process_group(",))}
    rows = [
        r for r in rows if any(r[0].file == f and abs(r[1] - n) <= SOURCE_LINES for f, n in starts)
    ]
    if not rows or _in_traceback(incident, rows[0][0].file, rows[0][1]):
        return None
    digest, number, text = rows[0]
    lines = [make_line(digest.file, number, text, digest.year)]
    own = next(
        (
            make_line(d.file, n, t, d.year)
            for d, n, t in incident.lines_with(("kernel", "ext", "riton", "used", ".ops"))
            if _OWN_KERNEL.search(t[:500]) and 'File "' not in t
        ),
        None,
    )
    kernel = (
        "a kernel of an extension (custom or fused)"
        if own is None
        else "the custom or fused kernel"
    )
    seen = _pid_on_first(incident, fault)
    more = f"; process {seen[0]} of rank {fault.rank} holds memory on GPU 0 as well" if seen else ""
    return _describe(
        fault,
        f"the code shown places tensors of rank {fault.rank} on cuda:{fault.rank}, and never calls "
        f"torch.cuda.set_device(local_rank): {kernel} is launched on the current device, which is still the default cuda:0 "
        f"(GPU 0), with pointers of another GPU, hence the illegal memory access of rank {fault.rank}{more}; set the device "
        "before the first tensor and the process group, and guard the device in the extension (CUDAGuard)",
        [*lines, *([own] if own else []), *([seen[1]] if seen else [])],
    )


def _in_traceback(incident: LogIncident, file: str, number: int) -> bool:
    return any(
        t.line.file == file and t.start <= number <= t.line.number for t in incident.tracebacks
    )


def _pid_on_first(incident: LogIncident, fault: Finding) -> tuple[int, Line] | None:
    """A pid of the failing rank that is listed on GPU 0, by the launcher's own report."""
    pids = {e.pid for e in incident.exits if e.pid and fault.rank in (e.rank, e.local_rank)}
    for digest, number, text in incident.lines_with(("GPU 0", "GPU0")):
        match = _ON_FIRST.search(text[:500])
        own = next(
            (p for p in pids if match and str(p) in match["pids"].split(" on GPU ")[0]), None
        )
        if own is not None:
            return own, make_line(digest.file, number, text, digest.year)
    return None


def _describe(fault: Finding, title: str, lines: Sequence[Line]) -> Finding:
    return replace(
        fault,
        title=title,
        level=Level.CAUSE,
        category=Category.CODE_BUG,
        confidence=Confidence.LIKELY,
        evidence=(*(line.evidence() for line in lines), *fault.evidence[:2]),
        facts={**fault.facts, "specificity": 2000},
    )
