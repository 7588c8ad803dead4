"""Did a host's CPU slow down for heat or power, so that its ranks launch kernels late?

Joins machine-check lines (`cpu clock throttled`), `turbostat` and `sensors` of a host with the host for
which all others wait.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

from firstfault_tools.expressions import expression
from firstfault_tools.findings import Category, Finding, Level
from firstfault_tools.hardware.excerpt import NumberedLine, keep_near, quote_line
from firstfault_tools.hardware.host_name import name_host
from firstfault_tools.log.logs import Logs

BESIDE = ("cpu clock", "PkgTmp", "Bzy_MHz", "Package id ")
_EVENT = expression(r"(?P<what>Core|Package) temperature (?:is )?above threshold, cpu clock (?:is )?throttled(?: \(total events = (?P<count>\d{1,12})\))?")  # fmt: skip
_SENSOR = expression(
    r"Package id \d+:\s+\+(?P<now>[\d.]+).{0,3}C\s+\(high = \+(?P<high>[\d.]+).{0,3}C"
)
SLOW_HOSTS = (
    "metrics.host_waits",
    "metrics.rank_straggler",
    "metrics.rank_waits",
    "metrics.straggler",
)
LEAST_EVENTS = 100


def find_in_incident(incident: Logs, findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """One finding for each host whose CPU is throttled; a cause where that host is the slow one."""
    by_host: dict[str | None, list[Finding]] = defaultdict(list)
    for digest in incident.digests:
        found = _read(digest.kept, digest.file)
        if found is not None:
            by_host[found.host].append(found)
    out = []
    for host, own in by_host.items():
        heat = own[0]
        slow = [f for f in findings if f.kind in SLOW_HOSTS and f.level in (Level.FAILURE, Level.CAUSE) and f.category is Category.PERFORMANCE]  # fmt: skip
        same = [f for f in slow if f.host == host or (host is None and len(by_host) == 1)]
        if same:
            late = same[0]
            heat = replace(
                heat,
                title=f"{heat.title}; all others wait for this host: {late.title}",
                level=Level.CAUSE,
                host=host or late.host,
                evidence=(*heat.evidence, *late.evidence[:2]),
            )
        out.append(heat)
    return tuple(out)


def _read(lines: Sequence[tuple[int, str]], file: str) -> Finding | None:
    near = keep_near(lines, BESIDE, before=0, after=3)
    count, events = _count_events(near)
    hot = _find_hot(near)
    if count < LEAST_EVENTS and hot is None:
        return None
    host = name_host(file)
    words = [f"its clock was throttled {count} times"] if count else []
    places = events
    if hot is not None:
        words, places = [*words, hot[0]], [*events, hot[1]]
    at = re.search(r"\d\d:\d\d:\d\d", events[0][1]) if events else None
    since = f" since {at[0]}" if at else ""
    return Finding.of_slowness(
        kind="hardware.cpu_heat",
        title=f"the CPU{f' of {host}' if host else ''} throttles for its temperature{since}: {', '.join(words)}; "
        "kernel launches and data loading of its ranks are late (cooling, fans, air flow)",
        evidence=tuple(quote_line(file, n, t, host=host) for n, t in dict.fromkeys(places)),
        host=host,
        weight=0.7,
        facts={"events": count},
    )


def _count_events(near: Sequence[NumberedLine]) -> tuple[int, list[NumberedLine]]:
    """How often the clock was throttled, as counted by the kernel or here; the first and the last line of it."""
    count = 0
    marked = [(place, event) for place in near if (event := _EVENT.search(place[1]))]
    for _, event in marked:
        count = max(count, int(event["count"] or count + 1))
    return count, [place for place, _ in (*marked[:1], *marked[-1:])]


def _find_hot(near: Sequence[NumberedLine]) -> tuple[str, NumberedLine] | None:
    """The first reading of turbostat or sensors that is too hot, in words."""
    columns: list[str] = []
    for number, text in near:
        if _EVENT.search(text):
            continue
        cells = text.split()
        if "PkgTmp" in text or "Bzy_MHz" in text:
            columns = cells
            continue
        row = dict(zip(columns, cells, strict=False))
        words = _judge_row(row) if columns and len(cells) == len(columns) else _judge_sensor(text)
        if words:
            return words, (number, text)
    return None


def _judge_row(row: Mapping[str, str]) -> str:
    """A row of turbostat."""
    heat, clock = row.get("PkgTmp", ""), row.get("Bzy_MHz", "")
    if not heat.isdecimal() or int(heat) < 90:
        return ""
    return f"the CPU package is at {heat} C" + (
        f", cores at {clock} MHz" if clock.isdecimal() else ""
    )


def _judge_sensor(text: str) -> str:
    hot = _SENSOR.search(text)
    if hot is None or float(hot["now"]) < float(hot["high"]):
        return ""
    return f"the CPU package is at {hot['now']} C (high {hot['high']} C)"
