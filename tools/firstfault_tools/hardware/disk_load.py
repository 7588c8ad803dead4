"""Is a drive at its limit while the GPUs wait? `iostat -x`.

A drive at 100 % utilisation is no fault by itself; beside idle GPUs, offload to that drive or a sister
drive that does nothing it is what the step waits for.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from statistics import median

from firstfault_tools.expressions import expression
from firstfault_tools.findings import Category, Confidence, Finding, Level
from firstfault_tools.hardware.excerpt import NumberedLine, keep_near, quote_line
from firstfault_tools.hardware.host_name import name_host
from firstfault_tools.hardware.host_sections import map_hosts, split_sections
from firstfault_tools.hardware.pages import attach_pages

MARKERS = ("%util",)
_ROW = expression(r"^\s*(?P<device>(?:nvme\d+n\d+|sd[a-z]{1,2}|vd[a-z]|xvd[a-z]|dm-\d+|md\d+))(?P<cells>(?:\s+[\d.]+){6,30})\s*$")  # fmt: skip
_MOVED = (("rMB/s", "read"), ("wMB/s", "written"), ("rkB/s", "read"), ("wkB/s", "written"))
BUSY, IDLE = 95.0, 10.0


def find_in_lines(lines: Sequence[NumberedLine], file: str) -> tuple[Finding, ...]:
    """Drives that are full in most reports; a context fact that explains slowness."""
    near = keep_near(lines, MARKERS, before=0, after=60)
    if not near:
        return ()
    columns: list[str] = []
    load: dict[str, list[float]] = defaultdict(list)
    rates: dict[str, dict[str, float]] = {}
    places: dict[str, NumberedLine] = {}
    for number, line in near:
        if "%util" in line:
            columns = line.split()[1:]
        elif (row := _ROW.match(line)) and columns:
            cells = [float(c) for c in row["cells"].split() if c.count(".") <= 1]
            if len(cells) != len(columns):
                continue
            table = dict(zip(columns, cells, strict=True))
            load[row["device"]].append(table["%util"])
            rates[row["device"]] = table
            places[row["device"]] = (number, line)
    full = [d for d, v in load.items() if median(v) >= BUSY]
    idle = [d for d, v in load.items() if median(v) <= IDLE and d[:2] == (full[0][:2] if full else "")]  # fmt: skip
    if not full:
        return ()
    drive = full[0]
    host = map_hosts(split_sections(near)).get(places[drive][0]) or name_host(file)
    moved = [
        f"{rates[drive][column]:g} {column[1:]} {what}"
        for column, what in _MOVED
        if rates[drive].get(column)
    ]
    beside = f", while {', '.join(idle[:3])} is idle" if idle else ""
    return attach_pages(
        [
            Finding(
                kind="hardware.disk_saturated",
                title=f"drive {', '.join(full[:3])}{f' of {host}' if host else ''} is at {median(load[drive]):.0f} % utilisation"
                f" ({', '.join(moved)}){beside}: disk I/O is the bottleneck, whatever reads or writes there waits for its bandwidth",
                level=Level.CONTEXT,
                category=Category.PERFORMANCE,
                confidence=Confidence.LIKELY,
                evidence=(
                    quote_line(file, *places[drive]),
                    *(quote_line(file, *places[d]) for d in idle[:1]),
                ),
                host=host,
                facts={"drives": full, "idle": idle, "explains": "slow", "weight": 0.5},
            )
        ]
    )
