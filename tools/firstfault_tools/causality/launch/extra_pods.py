"""Does the world size count pods that run no trainer? Who was started, beside how many the store waits for.

Operators that set WORLD_SIZE from all pods of a job count its caches and servers as well
(https://github.com/volcano-sh/volcano/issues/4238): all trainers are there, and rank 0 waits for more.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from firstfault_tools.causality.incident import LogIncident
from firstfault_tools.expressions import expression
from firstfault_tools.facts import Fact
from firstfault_tools.findings import Category, Finding, Level
from firstfault_tools.log.digest import Line
from firstfault_tools.log.scan import make_line

_POD = expression(
    r"^\s{0,8}(?P<group>[a-z0-9][a-z0-9.-]{0,200}?)-(?P<index>\d{1,5})\s{1,80}\d{1,3}/\d{1,3}\s{1,20}Running\b"
)
_TRAINERS = ("master", "worker", "chief", "trainer", "learner", "launcher", "replica", "node")


def find_extra_pods(incident: LogIncident, counted: Sequence[Finding]) -> Finding | None:
    """Running pods of other roles that make up exactly the processes a store waited for in vain.

    counted: findings of a store that counted fewer processes than the job has.
    """
    groups: dict[str, list[Line]] = defaultdict(list)
    for digest, number, text in incident.lines_with(("Running",)):
        if (match := _POD.match(text[:400])) is not None:
            groups[match["group"]].append(make_line(digest.file, number, text, digest.year))
    extra = {name: rows for name, rows in groups.items() if not name.endswith(_TRAINERS)}
    others = [row for rows in extra.values() for row in rows]
    trainers = sum(map(len, groups.values())) - len(others)
    for finding in counted:
        joined, world = finding.whole(Fact.JOINED), finding.whole(Fact.WORLD)
        if joined is None or world is None or finding.survived:
            continue
        if not others or (trainers, len(others)) != (joined, world - joined):
            continue
        return Finding(
            kind="launch.extra_pods",
            title=f"WORLD_SIZE of {world} counts {len(others)} pods of the job that run no trainer ({', '.join(extra)}): all "
            f"{joined} trainers joined, and rank 0 waits for processes that were never to start; set WORLD_SIZE to "
            f"{joined}, or give the other pods a job of their own",
            level=Level.CAUSE,
            category=Category.SCHEDULER,
            evidence=(*finding.evidence[:1], *(row.evidence() for row in others[:3])),
            page=finding.page,
            facts={"survived": False, "joined": trainers, "world": int(world)},
        )
    return None
