"""Does a process that is not of the job run on one of its GPUs?

Reads `nvidia-smi --query-compute-apps` rows and the process box of `nvidia-smi`: the GPU with two compute
processes beside GPUs with one is shared, and its rank takes longer than all others.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from firstfault_tools.expressions import expression
from firstfault_tools.findings import Category, Finding, Level
from firstfault_tools.hardware.excerpt import NumberedLine, keep_marked, quote_line

GATE = ("MiB",)
_CSV = expression(
    r"^\s*(?P<gpu>GPU-[0-9a-f-]{4,40}|[0-9A-F]{8}:[0-9A-F]{2}:[0-9A-F]{2}\.0|\d{1,2}), ?(?P<pid>\d{2,8}),(?: ?(?P<name>[^,]{1,200}),)? ?(?P<mib>\d{1,7}) MiB\s*$"
)
_BOX = expression(
    r"^\|\s+(?P<gpu>\d{1,2})\s+(?:(?:N/A|\d+)\s+(?:N/A|\d+)\s+)?(?P<pid>\d{2,8})\s+C\s+(?P<name>\S.{0,120}?)\s+(?P<mib>\d{1,7})MiB\s+\|"
)
SHARE = 0.02
"""A process with less of the memory of the largest is a monitor."""


_Processes: TypeAlias = Mapping[str, Mapping[str, tuple[NumberedLine, str, int]]]
"""By GPU and pid: the line, the name of the program, its MiB."""


def _find_contexts(rows: _Processes, file: str) -> Finding | None:
    """Processes that hold memory on a GPU beside their own: contexts opened there by ranks of other GPUs."""
    for gpu, own in rows.items():
        guests = {p: r for p, r in own.items() if any(p in o for g, o in rows.items() if g != gpu)}
        home = [r[2] for g, o in rows.items() if g != gpu for p, r in o.items() if p in guests]
        if len(guests) < 2 or max(r[2] for r in guests.values()) > max(home):
            continue
        index = gpu if gpu.isdecimal() else str(list(rows).index(gpu))
        sizes = sorted(r[2] for r in guests.values())
        each = f"{sizes[0]}" if sizes[0] == sizes[-1] else f"{sizes[0]} to {sizes[-1]}"
        return Finding(
            kind="hardware.gpu_contexts",
            title=f"{len(guests)} processes of other ranks hold {each} MiB each on GPU {index} beside their own GPU, "
            f"{sum(sizes) / 1024:.1f} GiB together",
            level=Level.CONTEXT,
            category=Category.OOM,
            evidence=tuple(quote_line(file, *r[0]) for r in list(guests.values())[:4]),
            gpu=index,
            facts={"processes": len(guests), "mib": sum(sizes)},
        )
    return None


def find_in_lines(lines: Sequence[NumberedLine], file: str) -> tuple[Finding, ...]:
    """Processes beside those of the job; a fact that explains slowness."""
    rows = _read_processes(lines)
    if crowd := _find_contexts(rows, file):
        return (crowd,)
    if not rows or _is_one_program(rows):
        return ()
    counts = _leave_out_monitors(rows)
    gpu = _find_shared(counts)
    if gpu is None:
        return ()
    names = Counter(name for own in counts.values() for _, name, _ in own.values())
    pid, (place, name, mib) = min(counts[gpu].items(), key=lambda r: (names[r[1][1]], r[1][2]))
    index = int(gpu) if gpu.isdecimal() else list(rows).index(gpu)
    owner = _find_owner(lines, pid, place[0])
    who = f", {' '.join(owner[1].split()[1:2])}'s" if owner is not None else ""
    return (
        Finding.of_slowness(
            kind="hardware.gpu_shared",
            title=f"another process (pid {pid}{who}: {name}, {mib} MiB) shares GPU {index} with the job: "
            "the rank on that GPU gets only a part of it, and all others wait for that rank",
            evidence=tuple(quote_line(file, *p) for p in (place, owner) if p is not None),
            gpu=str(index),
            weight=0.75,
            facts={"pid": int(pid), "gpu_index": index},
        ),
    )


def _read_processes(lines: Sequence[NumberedLine]) -> _Processes:
    rows: dict[str, dict[str, tuple[NumberedLine, str, int]]] = defaultdict(dict)
    for number, text in keep_marked(lines, GATE)[:4096]:
        found = _CSV.match(text) or _BOX.match(text)
        if found is not None:
            rows[found["gpu"]].setdefault(found["pid"], ((number, text), (found["name"] or "process").strip(), int(found["mib"])))  # fmt: skip
    return rows


def _is_one_program(rows: _Processes) -> bool:
    """One GPU of a grep on which all processes have one name: nobody is a stranger there."""
    return (
        len(rows) == 1 and len({name for own in rows.values() for _, name, _ in own.values()}) < 2
    )


def _leave_out_monitors(rows: _Processes) -> _Processes:
    largest = max(mib for own in rows.values() for _, _, mib in own.values())
    return {
        gpu: {pid: row for pid, row in own.items() if row[2] >= SHARE * largest}
        for gpu, own in rows.items()
    }


def _find_shared(counts: _Processes) -> str | None:
    """The first GPU with more processes than usual, or with two of at most two GPUs; None where most are shared."""
    usual = Counter(len(own) for own in counts.values()).most_common(1)[0][0]
    most = min(usual, 1) if len(counts) <= 2 else usual
    shared = [gpu for gpu, own in counts.items() if len(own) > most]
    if not shared or (len(counts) > 1 and len(shared) * 2 > len(counts)):
        return None
    return shared[0]


def _find_owner(lines: Sequence[NumberedLine], pid: str, after: int) -> NumberedLine | None:
    """The row of ps, further down, that says whose process it is."""
    marked = (place for place in keep_marked(lines, (pid,)) if place[0] > after)
    return next((p for p in marked if re.match(rf"\s*{pid}\s+[a-z]", p[1])), None)
