"""Is an artefact the output of everyday tools (`df`, `ps`, `top`, `free`, `sacct`, `/proc` and cgroup files)?

What such a listing means is told by finders that read its rows; here it is known for what it is.
"""

from __future__ import annotations

from firstfault_tools.artefact import Artefact
from firstfault_tools.hardware.excerpt import number_lines, read_lines
from firstfault_tools.hardware.host.full_mounts import find_in_lines
from firstfault_tools.hardware.host.tables import read_tables, table_names
from firstfault_tools.registry import Reader, Reading

SIGNS = ("Mounted on", "COMMAND", "CMD", "MaxRSS", "VmRSS", "MemTotal", "Mem:", "oom_kill", "shmem", "memory.max")  # fmt: skip

LOOKED_AT = 200
SHARE = 0.4
"""Lines of a listing that are rows of a known table; the rest are prompts, headings and other rows."""


def recognise_listing(name: str, head: bytes) -> bool:
    """Most of what is printed are rows of known tables."""
    text = head[:16_384].decode("utf-8", errors="replace").replace("\r\n", "\n")
    lines = [row for row in number_lines(text)[:LOOKED_AT] if row[1].strip()]
    rows = {
        number
        for table in table_names()
        for record in read_tables(lines, name, table)
        for number, _ in record.places.values()
    }
    return bool(rows) and len(rows) >= SHARE * len(lines)


def read_listings(artefacts: tuple[Artefact, ...]) -> Reading:
    """Full file systems of every listing."""
    found = [f for a in artefacts for f in find_in_lines(read_lines(a), a.name)]
    return Reading(tuple(found))


READER = Reader(
    name="listings",
    summary="df, ps, top, free, sacct MaxRSS, /proc/PID/status, meminfo and cgroup memory files: full file systems, who holds the memory",
    recognise=recognise_listing,
    read=read_listings,
    # saved output often goes on with a log or another command
    owns=False,
)
