"""Which pod or host runs under a CPU limit that throttles it? `cpu.max`, `cpu.stat`, and whose rank is it?

A limit of the container's CPU time stops all its threads for the rest of each period: data loading and
kernel launches of that rank are late, and the others wait for it in the collective.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import field

from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Category, Finding, Level
from firstfault_tools.hardware.excerpt import keep_near, quote_line
from firstfault_tools.hardware.host_sections import split_sections
from firstfault_tools.log.logs import Logs

BESIDE = ("nr_throttled", "cpu.max", "cpu.cfs_quota_us", "throttled_usec", "throttled_time")
_MAX = expression(r"^\s*(?:\S*cpu\.max\s*[:=]?\s*)?(?P<quota>max|\d{3,9}) (?P<period>\d{4,7})\s*$")
_STAT = expression(r"^\s*(?P<name>nr_periods|nr_throttled|throttled_usec|throttled_time)[ :=]+(?P<value>\d{1,19})\s*$")  # fmt: skip
_NAME = expression(
    r"^\s*(?:={2,}|-{2,}|#{2,}|\*{2,})\s*(?P<name>[A-Za-z][\w.-]{2,62})\s*(?:[=*#-]{2,})?\s*$"
)
_SLOW = ("metrics.rank_waits", "metrics.rank_straggler", "metrics.straggler", "metrics.host_waits")
LEAST_SHARE = 0.25


@dataclass(slots=True)
class Limit:
    """CPU limit and throttling of one container. cores: None without a limit."""

    name: str | None
    cores: float | None = None
    values: dict[str, int] = field(default_factory=dict)
    places: list[tuple[int, str]] = field(default_factory=list)

    @property
    def share(self) -> float:
        """Share of the periods in which it was throttled."""
        return self.values.get("nr_throttled", 0) / max(self.values.get("nr_periods", 0), 1)


def read_limits(lines: Sequence[tuple[int, str]]) -> list[Limit]:
    """Limits in printed order, by the container whose section they stand in."""
    found: list[Limit] = []
    name: str | None = None
    for section in split_sections(lines):
        name = section.host or name
        for number, text in section.lines:
            if heading := _NAME.match(text):
                name = heading["name"]
            limit, stat = _MAX.match(text), _STAT.match(text)
            if limit is None and stat is None:
                continue
            again = found and (limit is not None and found[-1].places) and found[-1].values
            if not found or found[-1].name != name or again:
                found.append(Limit(name))
            own = found[-1]
            if limit is not None and limit["quota"] != "max":
                own.cores = int(limit["quota"]) / int(limit["period"])
                own.places.append((number, text))
            elif stat is not None:
                own.values[stat["name"]] = int(stat["value"])
                if stat["name"] == "nr_throttled":
                    own.places.append((number, text))
    return found


def find_in_incident(incident: Logs, findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """Containers throttled in a quarter of their periods, with the rank that waits for its data there."""
    out = []
    for digest in incident.digests:
        near = keep_near(digest.kept, BESIDE, before=3, after=2)
        limits = read_limits(near) if near else []
        for one in limits:
            if one.share < LEAST_SHARE or one.values.get("nr_throttled", 0) < 1000:
                continue
            free = sum(1 for o in limits if o is not one and o.share < 0.05)
            out.append(_describe(one, free, digest.file, findings))
    return tuple(out[:4])


def _describe(one: Limit, free: int, file: str, findings: Sequence[Finding]) -> Finding:
    slow = next((f for f in findings if f.kind in _SLOW and _belongs(one.name, f)), None)
    cores = f" to {one.cores:g} CPU{'s' if one.cores != 1 else ''}" if one.cores else ""
    where = f"{one.name} " if one.name else "the container "
    who = f" (rank {slow.rank})" if slow is not None and slow.rank is not None else ""
    beside = f", the other {free} are not throttled" if free else ""
    held = f"; {slow.title}" if slow is not None else "; data loading and kernel launches wait for CPU time"  # fmt: skip
    return Finding(
        kind="hardware.cpu_limit",
        title=f"{where.strip()}{who} runs under a CPU limit{cores} and is throttled in {one.share:.0%} of its periods{beside}{held}",
        level=Level.CAUSE,
        category=Category.PERFORMANCE,
        evidence=(
            *(quote_line(file, n, t, host=one.name) for n, t in one.places[:3]),
            *(slow.evidence[:2] if slow is not None else ()),
        ),
        rank=slow.rank if slow is not None else None,
        host=one.name,
        facts={"cores": one.cores, "throttled_share": round(one.share, 3)},
    )


def _belongs(name: str | None, slow: Finding) -> bool:
    """The slow rank's own lines name the container, or its host is it."""
    if name is None:
        return False
    if slow.host is not None:
        return slow.host == name or slow.host.endswith(f"-{name}")
    own = [e for e in slow.evidence if e.rank == slow.rank and slow.rank is not None]
    return any(re.search(rf"(?<![\w])(?:[\w.-]*-)?{re.escape(name)}(?![\w-])", e.text) for e in own)
