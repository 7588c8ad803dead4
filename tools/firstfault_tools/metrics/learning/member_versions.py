"""Does one member of a group go on with an older version of the weights than the others?

Rollout engines, replicas and servers print the version of the weights that they load. One that misses an
update raises nothing: its samples get more off-policy with every step.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from firstfault_tools.averages import median
from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Category, Finding, Level
from firstfault_tools.hardware.excerpt import keep_marked, quote_line
from firstfault_tools.log.logs import Logs

MARKERS = ("version", "weight_step", "weights of step", "policy_step")
_MEMBER = expression(
    r"(?i)\b(?P<kind>replica|engine|rollout(?:[ _-]?worker)?|server|worker|actor|instance|generator|inference[ _-]?worker)[ _#:=-]{0,2}(?P<index>\d{1,5})\b"
)
_VERSION = expression(
    r"(?i)\b(?:weights?|policy|model|params?|serving|with|loaded|at|current)[ _-]{1,2}(?:weights?[ _])?(?:version|step)[ :=v]{0,3}(?P<version>\d{1,9})\b"
)
_MISSED = expression(
    r"(?i)(?:timed? ?out|fail\w*|skipp\w+|lost|refused|error|unreachable|dropped).{0,80}\b(?:continu\w+|keep\w*|serv\w+|us\w+|stay\w*)\b.{0,30}\b(?:version|weights|step)\b"
)
_UPDATE = expression(r"(?i)update_?weights?|weights?[ _](?:update|sync|transfer)|sync_?weights?|refit|version \d")  # fmt: skip
BEHIND = 2
MOST_LINES = 20_000


@dataclass(slots=True)
class Member:
    """Last version a member serves or loaded, and where it missed an update."""

    name: str
    version: int
    last: tuple[str, int, str]
    missed: tuple[str, int, str] | None = None


def read_members(lines: Sequence[tuple[int, str]], file: str, members: dict[str, Member]) -> int:
    """Fill `members` from one log; the newest version that any of its lines names."""
    newest = -1
    for number, text in keep_marked(lines, MARKERS)[:MOST_LINES]:
        if len(text) > 1000:
            continue
        who = _MEMBER.search(text)
        if who is None:
            continue
        name = f"{who['kind'].lower()} {who['index']}"
        told = [int(m["version"]) for m in _VERSION.finditer(text)]
        missed = _MISSED.search(text) is not None and _UPDATE.search(text) is not None
        announced = [int(v) for v in re.findall(r"(?i)\bversion[ =:]{1,2}(\d{1,9})\b", text)]
        newest = max([newest, *announced])
        if not told and not missed:
            continue
        member = members.setdefault(name, Member(name, -1, (file, number, text)))
        if told:
            member.version = told[-1]
            member.last = (file, number, text)
        if missed:
            member.missed = member.missed or (file, number, text)
    return newest


def find_in_incident(incident: Logs, findings: Sequence[Any]) -> tuple[Finding, ...]:
    """Members that stay behind: they missed an update, or the others are two versions further."""
    members: dict[str, Member] = {}
    newest = -1
    for digest in incident.digests:
        newest = max(newest, read_members(digest.kept, digest.file, members))
    late = [m for m in members.values() if m.version >= 0 and newest - m.version >= BEHIND]
    if not late or (len(late) * 2 > len(members) and not any(m.missed for m in late)):
        return ()
    usual = median([m.version for m in members.values() if m not in late] or [newest])
    # a log that ends earlier shows an older version: only a missed update or a repeated old one counts
    late = [m for m in late if m.missed is not None]
    if not late:
        return ()
    one = late[0]
    assert one.missed is not None
    host = re.search(r"\bip=(\d{1,3}(?:\.\d{1,3}){3})", one.missed[2])
    where = f" ({host[1]})" if host else ""
    return (
        Finding(
            kind="metrics.stale_weights",
            title=f"{one.name}{where} missed a weight update and goes on with old weights, version {one.version}, while the others are at "
            f"version {max(newest, int(usual))}: its samples get more and more off-policy, so policy mismatch and gradient norm grow and the reward falls",
            level=Level.CAUSE,
            category=Category.NUMERICAL,
            evidence=tuple(
                quote_line(f, n, t) for f, n, t in dict.fromkeys([one.missed, one.last])
            ),
            host=host[1] if host else None,
            facts={"member": one.name, "version": one.version, "newest": newest, "survived": False},
        ),
    )
