"""Do processes of a host fight for memory or for one CPU core? `free` tables and `taskset -p` lines.

A host that swaps, or processes that all sit on one core, make a job slow without any error.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from firstfault_tools.expressions import expression
from firstfault_tools.findings import Category, Confidence, Evidence, Finding, Level
from firstfault_tools.hardware.excerpt import keep_marked

MARKERS = ("Mem:", "Swap:", "affinity list:")
_MEM = expression(r"^\s*Mem:\s+(?P<total>\d{1,15})[GMK]?i?\s+(?P<used>\d{1,15})[GMK]?i?\s+\d+\S*\s+\S+\s+\S+\s+(?P<left>\d{1,15})[GMK]?i?\s*$")  # fmt: skip
_SWAP = expression(
    r"^\s*Swap:\s+(?P<total>\d{1,15})[GMK]?i?\s+(?P<used>\d{1,15})[GMK]?i?\s+\d+\S*\s*$"
)
_BOUND = expression(
    r"pid (?P<pid>\d{1,9})'s current affinity list: (?P<cores>\d{1,5})(?:-(?P=cores))?\s*$"
)
LEFT, SWAPPED = 0.03, 0.3
"""Share of memory that is available, and of swap in use, past which a host swaps all the time."""


def find_in_lines(lines: Sequence[tuple[int, str]], file: str) -> tuple[Finding, ...]:
    """Facts that explain a slow run."""
    kept = keep_marked(lines, MARKERS)[:5_000]
    if not kept:
        return ()
    return (*_find_swap(kept, file), *_find_one_core(kept, file))


def _find_swap(kept: Sequence[tuple[int, str]], file: str) -> tuple[Finding, ...]:
    memory: tuple[int, str] | None = None
    for number, text in kept:
        if found := _MEM.match(text):
            short = int(found["left"]) < LEFT * int(found["total"])
            memory = (number, text) if short else None
        elif memory is not None and (swap := _SWAP.match(text)):
            total, used = int(swap["total"]), int(swap["used"])
            if total and used >= SWAPPED * total:
                title = (
                    f"the memory of the host is used up and {used / total:.0%} of its swap is in use: processes wait "
                    "for pages from disk (swapping), and all ranks wait for that host"
                )
                return (_make("host_swaps", title, [memory, (number, text)], file, 0.85),)
            memory = None
    return ()


def _find_one_core(kept: Sequence[tuple[int, str]], file: str) -> tuple[Finding, ...]:
    by_core: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for number, text in kept:
        if found := _BOUND.search(text):
            by_core[found["cores"]].append((number, text))
    core = max(by_core, key=lambda c: len(by_core[c]), default=None)
    if core is None or len(by_core[core]) < 2:
        return ()
    title = (
        f"{len(by_core[core])} processes are bound to CPU core {core} alone (affinity): ranks and their loader "
        "workers share one core, whatever the machine has"
    )
    return (_make("one_core", title, by_core[core][:4], file, 0.9),)


def _make(
    name: str, title: str, places: Sequence[tuple[int, str]], file: str, weight: float
) -> Finding:
    return Finding(
        kind=f"hardware.{name}",
        title=title,
        level=Level.CONTEXT,
        category=Category.PERFORMANCE,
        confidence=Confidence.LIKELY,
        evidence=tuple(Evidence(file, n, t.strip()[:400]) for n, t in places),
        page="dataloader-cpu-cores" if name == "one_core" else "throughput-drop",
        facts={"explains": "slow", "weight": weight},
    )
