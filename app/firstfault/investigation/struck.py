"""Whom does a fault strike that is no single rank's or host's? The ranks, hosts or part that its finding itself tells of."""

from __future__ import annotations

import re
from collections.abc import Iterable

from firstfault.investigation.diagnosis import Struck
from firstfault.investigation.examination import Examination
from firstfault_tools.facts import Fact
from firstfault_tools.findings import Evidence, Finding
from firstfault_tools.log.prefix import read_prefix

MOST_HOSTS = 8
MOST_PREFIX = 400


def find_struck(examination: Examination, finding: Finding) -> Struck:
    """What the finding tells of its place beside one rank and one host."""
    facts = (Fact.BUSY_RANK, Fact.RANK)
    one = next((r for f in facts if (r := finding.whole(f)) is not None), None)
    named = finding.names(Fact.HOSTS) or _hosts_said(examination, finding)
    node = finding.text(Fact.NODE)
    return Struck(
        ranks=(one,) if one is not None else tuple(sorted(set(finding.wholes(Fact.RANKS)))),
        quoted=tuple(sorted(set(_ranks_of(finding.evidence)))),
        hosts=tuple(dict.fromkeys(named or ([node] if node else [])))[:MOST_HOSTS],
        reporters=_hosts_of(finding.evidence)[:MOST_HOSTS],
        part=_name_part(finding),
        pod=finding.pod or "",
    )


def _name_part(finding: Finding) -> str:
    """The task of an account, the link or the switch, as a person calls it."""
    link, switch = finding.text(Fact.LINK), finding.text(Fact.SWITCH)
    named = link if not link.isdecimal() else ""
    return finding.text(Fact.TASK) or named or (f"switch {switch}" if switch else "")


def _ranks_of(evidence: Iterable[Evidence]) -> tuple[int, ...]:
    """Ranks that wrote the lines, or of which they are."""
    told = (e.rank if e.rank is not None else read_prefix(e.text[:MOST_PREFIX])[0].rank for e in evidence)  # fmt: skip
    return tuple(r for r in told if r is not None)


def _hosts_of(evidence: Iterable[Evidence]) -> tuple[str, ...]:
    """Hosts or pods that wrote the lines."""
    places = ((e.host, read_prefix(e.text[:MOST_PREFIX])[0]) for e in evidence)
    told = (host or place.host or place.pod or "" for host, place in places)
    return tuple(dict.fromkeys(h for h in told if h))


def _hosts_said(examination: Examination, finding: Finding) -> tuple[str, ...]:
    """Hosts that the logs know and the cause's first clause names, in its order."""
    placement = examination.logs.placement
    known = {h for h in (*placement.ranks_on, *placement.order, *_hosts_of(finding.evidence)) if h}
    head = finding.title.partition("; ")[0]
    at = {
        host: found.start()
        for host in known
        if (found := re.search(rf"(?<![\w.-]){re.escape(host)}(?![\w-])", head)) is not None
    }
    return tuple(sorted(at, key=lambda host: at[host]))
