"""Do few of several equal links carry nearly all the traffic? Load balancing that fails.

Reads a switch's table of interface rates in per cent (`show interfaces counters rates`, EOS) and lists of
`port utilisation%`. Uplinks of one leaf carry like loads when flows are hashed well; two full ones beside
idle ones mean that flows of the same addresses land on the same link (ECMP polarisation).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from firstfault_tools.averages import median
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Category, Finding, Level
from firstfault_tools.hardware.excerpt import NumberedLine, keep_near, quote_line
from firstfault_tools.hardware.host_sections import read_sign

GATE = ("Mbps", "Gbps", "tx util", "TX util", "Out %", "out_util", "utilization", "Utilization", "hash", "load-balance")  # fmt: skip
_ROW = expression(
    r"^\s*(?P<port>(?:Et(?:hernet)?|Eth|swp|xe-|et-|Hu|port |p)\s?\d[\d/:]{0,10}[a-z]?\d?)\s(?P<rest>.{4,160})$",
    re.IGNORECASE,
)
_SHARE = expression(r"(?<![\w.])(\d{1,3}(?:\.\d{1,2})?)\s?%")
_HASH = expression(r"(?i)\b(?:hash|load-balanc\w+|ecmp)\b.{0,60}(?:field|src|dst|port|disabled|profile|seed|mode)|udp-src-port")  # fmt: skip
FULL, IDLE, LEAST = 80.0, 40.0, 4


_Row = tuple[NumberedLine, str, float]
"""Line, port and the larger share of its two directions, in percent."""


def _read_tables(
    near: Sequence[NumberedLine],
) -> tuple[list[list[_Row]], str, list[NumberedLine]]:
    """Tables of ports, the switch that printed them, and lines about its hash."""
    tables: list[list[_Row]] = []
    switch, last = "", -9
    hashes: list[NumberedLine] = []
    for number, line in near:
        if len(line) > 300:
            continue
        if sign := re.match(r"^(?P<name>[\w.-]{2,40})[#>] ?show ", line):
            switch = sign["name"]
        elif found := read_sign(line):
            switch = found[0] or switch
        if _HASH.search(line) and not line.lstrip().startswith("#"):
            hashes.append((number, line))
        row = _ROW.match(line)
        shares = _SHARE.findall(row["rest"]) if row else []
        if row is None or not shares:
            continue
        if number != last + 1 or not tables:
            tables.append([])
        last = number
        # in and out are both printed; the larger is the one that hurts
        tables[-1].append(((number, line), row["port"].strip(), max(map(float, shares))))
    return tables, switch, hashes


def find_in_lines(lines: Sequence[NumberedLine], file: str) -> tuple[Finding, ...]:
    """Tables of ports in which few are full and most are idle."""
    near = keep_near(lines, GATE, before=4, after=70)
    tables, switch, hashes = _read_tables(near)
    for table in tables:
        full = [r for r in table if r[2] >= FULL]
        idle = [r for r in table if r[2] <= IDLE]
        if not _is_uneven(table, full, idle):
            continue
        names = ", ".join(r[1] for r in full[:6])
        where = f" of {switch}" if switch else ""
        told = " (the hash uses few fields)" if hashes else ""
        places = [*(r[0] for r in full[:2]), idle[0][0], *hashes[-2:]]
        return (
            Finding(
                kind="network.uneven_uplinks",
                title=f"Load balancing over the uplinks{where} fails: {names} carry {min(r[2] for r in full):g} % and more, "
                f"the other {len(idle)} at most {max(r[2] for r in idle):g} %: the ECMP hash puts nearly all flows onto "
                f"{len(full)} of {len(table)} uplinks{told}; all ranks are slowed alike, no host is to blame",
                level=Level.CAUSE,
                category=Category.PERFORMANCE,
                evidence=tuple(quote_line(file, *p) for p in places),
                facts={"full": [r[1] for r in full], "ports": len(table), "switch": switch},
            ),
        )
    return ()


def _is_uneven(table: Sequence[_Row], full: Sequence[_Row], idle: Sequence[_Row]) -> bool:
    """At most half of the ports are full, all others idle, and far below the full ones."""
    if len(table) < LEAST or not 0 < len(full) <= len(table) / 2:
        return False
    if len(full) + len(idle) < len(table):
        return False
    return median(r[2] for r in full) >= 3 * median(r[2] for r in idle)
