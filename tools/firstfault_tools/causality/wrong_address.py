"""Why did a kernel touch an address it must not: a tensor too large for its indices, or another device?

"Illegal memory access" names no reason. Two stand in the material itself: a tensor of more than 2^31
elements, which a kernel with 32-bit indices cannot address, and a process that never chose its device,
so that a kernel of an extension runs on GPU 0 with pointers of another GPU.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from math import prod

from firstfault_tools.causality.incident import LogIncident
from firstfault_tools.expressions import expression
from firstfault_tools.finding_roles import FindingRole
from firstfault_tools.findings import (
    Category,
    Confidence,
    Finding,
    Level,
    Strength,
    Together,
)
from firstfault_tools.log.digest import FileDigest, Line
from firstfault_tools.log.scan import make_line

MOST_INDEX = 2**31 - 1
"""Largest element that a signed 32-bit index reaches."""

MOST_GRID = 65_535
"""Blocks of a grid in its y and z dimension."""

MOST_LINES = 20_000
SOURCE_LINES = 30
"""Distance of two lines of one excerpt of source."""

_SHAPE = expression(
    r"(?:(?P<name>[A-Za-z_][\w.]{1,40})\W{1,3}?(?:\w{1,12}[ =:]{1,3})?(?:torch\.Size\()?)?[(\[](?P<sizes>\d{1,12}(?:, ?\d{1,12}){1,5})[)\]]"
)
_NOT_NAME = frozenset({"size", "shape", "torch.size", "tensor", "of", "with", "to", "is", "torch"})
_COUNT = expression(
    r"\b(?P<name>(?:num_?\w{0,20}|n_?elements?|numel\w{0,8}|total\w{0,20}))['\"]?\s?[=:]\s?(?P<count>\d{10,13})\b"
)
_BATCH = expression(
    r"(?i)\bbatch(?:[_ ]size)?['\"]?\s?[=: ]\s?(?P<batch>\d{5,8})\b|(?:Size\(|shape[=: (]{1,3})\[?\(?(?P<first>\d{5,8}), ?\d"
)
_DEVICE = expression(
    r"\bdevice['\"]?\s?[=:]\s?['\"]?cuda:(?P<device>\d{1,2})\b|--device[= ]cuda:(?P<flag>\d{1,2})\b"
)
_VISIBLE = expression(r"^\W{0,4}(?:export )?CUDA_VISIBLE_DEVICES=\d{1,2}\s")
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
    if fault.survived or not fault.evidence:
        return fault
    refused = fault.has(FindingRole.LAUNCH_REFUSED)
    return (
        _find_oversize(incident, fault)
        or (_find_long_grid(incident, fault) if refused else None)
        or _find_unset_device(incident, fault)
        or _find_other_device(incident, fault)
        or fault
    )


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
        for oversize in _read_oversizes(text):
            best = (*oversize, make_line(digest.file, number, text, digest.year))
    if best is None:
        return None
    count, name, printed, line = best
    what = f"{name} of {printed} has" if name else f"a tensor of {printed} has"
    if " x " not in printed:
        what = f"{printed} counts"
    return _describe(
        fault,
        f"{what} {count} elements, more than 2^31 - 1 = {MOST_INDEX}: a kernel with 32-bit indices (int32) overflows there "
        f"and {_outcome(fault)}; split the call (smaller micro batch, "
        "chunks), or use a version whose kernel has 64-bit indices",
        [line],
    )


def _read_oversizes(text: str) -> Iterator[tuple[int, str, str]]:
    """(elements, name, shape as printed) of what is too large for the index; of a bare count its name as printed."""
    if len(text) > 1000 or not (", " in text or "=" in text):
        return
    told = _COUNT.search(text)
    if told is not None and int(told["count"]) > MOST_INDEX:
        yield int(told["count"]), "", told["name"]
    for match in _SHAPE.finditer(text):
        sizes = [int(s) for s in match["sizes"].split(",")]
        if MOST_INDEX < prod(sizes) <= MOST_INDEX**2 and max(sizes) <= MOST_INDEX:
            name = match["name"] or ""
            name = "" if name.lower() in _NOT_NAME else name
            yield prod(sizes), name, " x ".join(map(str, sizes))


def _outcome(fault: Finding) -> str:
    if fault.has(FindingRole.LAUNCH_REFUSED):
        return "asks for a grid that is impossible, hence the refused launch"
    return "reads or writes outside the tensor, hence the illegal memory access"


def _find_long_grid(incident: LogIncident, fault: Finding) -> Finding | None:
    """A batch beyond the y and z dimension of a grid, where a kernel takes one block for each sample."""
    place = fault.evidence[0]
    if "configuration" not in place.text:
        return None
    for digest, number, text in incident.lines_with(("atch", "ize(", "hape")):
        if digest.file != place.file or len(text) > 1000:
            continue
        for match in _BATCH.finditer(text):
            batch = int(match["batch"] or match["first"])
            if not MOST_GRID < batch < 16 * MOST_GRID:
                continue
            return _describe(
                fault,
                f"the kernel was to be launched over a batch of {batch}, more than {MOST_GRID}, the largest grid in its y and z "
                "dimension: a kernel with one block for each sample cannot be launched, hence the invalid configuration; "
                "split the batch into calls of at most 65535, or use a version that does so",
                [make_line(digest.file, number, text, digest.year)],
            )
    return None


def _find_other_device(incident: LogIncident, fault: Finding) -> Finding | None:
    """One process that fails on cuda:N, and runs on cuda:0 or where only that GPU is visible."""
    place = fault.evidence[0]
    if len(incident.ranks_seen) > 1:
        return None
    failed: tuple[int, Line] | None = None
    good: Line | None = None
    for digest, number, text in incident.lines_with(("cuda:", "CUDA_VISIBLE_DEVICES=")):
        if digest.file != place.file or len(text) > 1000:
            continue
        device, seen = _DEVICE.search(text), _VISIBLE.search(text)
        line = make_line(digest.file, number, text, digest.year)
        if number < place.line and device is not None:
            failed = (int(device["device"] or device["flag"]), line)
        elif number > place.line and good is None:
            runs = seen or (device is not None and (device["device"] or device["flag"]) == "0")
            after = incident.progress[digest.file].after(number)
            good = line if runs and any(p.training for p in islice(after, 4)) else None
    if failed is None or not failed[0] or good is None:
        return None
    return _describe(
        fault,
        f"the program dies on cuda:{failed[0]} and runs on cuda:0: a kernel of an extension is launched on the current device, "
        f"which is the default cuda:0 while nobody calls torch.cuda.set_device, with pointers of GPU {failed[0]}, hence the "
        "illegal memory access; the card is not the reason. Call torch.cuda.set_device first, let CUDA_VISIBLE_DEVICES show "
        "that GPU alone, or guard the device in the extension (CUDAGuard)",
        [failed[1], good],
    )


def _find_unset_device(incident: LogIncident, fault: Finding) -> Finding | None:
    """Source that places tensors by local rank and never calls set_device; a rank that is not on GPU 0 failed."""
    row = _placed_by_rank(incident) if fault.rank else None
    if row is None or _in_traceback(incident, row[0].file, row[1]):
        return None
    digest, number, text = row
    own = _own_kernel(incident)
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
        [
            make_line(digest.file, number, text, digest.year),
            *([own] if own else []),
            *([seen[1]] if seen else []),
        ],
    )


def _placed_by_rank(incident: LogIncident) -> tuple[FileDigest, int, str] | None:
    """The first line of source that places by rank, beside the set-up, where nothing chooses a device."""
    rows = [(d, n, t) for d, n, t in incident.lines_with(_WORDS) if _PER_RANK.search(t[:500])]
    rows = [r for r in rows if '"' in r[2] or "'" in r[2] or "=" in r[2]]
    if not rows or any(True for _ in incident.lines_with(_CHOOSES)):
        return None
    # only source that shows the set-up as well says what is not called; frames of a traceback do not
    starts = {(d.file, n) for d, n, _ in incident.lines_with(("init_process_group(",))}
    beside = (
        (d, n, t)
        for d, n, t in rows
        if any(d.file == file and abs(n - start) <= SOURCE_LINES for file, start in starts)
    )
    return next(beside, None)


def _own_kernel(incident: LogIncident) -> Line | None:
    """A line that names a kernel which is not PyTorch's."""
    for digest, number, text in incident.lines_with(("kernel", "ext", "riton", "used", ".ops")):
        if _OWN_KERNEL.search(text[:500]) and 'File "' not in text:
            return make_line(digest.file, number, text, digest.year)
    return None


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
        facts={**fault.facts},
        strength=Strength(Together.SETTING),
    )
