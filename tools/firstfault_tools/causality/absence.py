"""Which host went silent? What survivors say of the peer they lost, beside who wrote to these logs.

A closed connection, a lost daemon and a store that no longer answers all tell that somebody else
ended first. They name the host; why it ended stands in its own logs, which are often the ones missing.
"""

from __future__ import annotations

import re
from collections import Counter

from firstfault_tools.causality.attribution import rank_of
from firstfault_tools.causality.incident import LogIncident
from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.finding_roles import FindingRole
from firstfault_tools.findings import Confidence, Finding, Level
from firstfault_tools.log.digest import Hit, Line
from firstfault_tools.log.place import name_ranks

PAGE = "peer-exited"
_REMOTE = expression(
    r"remote=\[(?P<store>[^\]\s]{1,80})\]|"
    r"(?:remote peer|[Pp]eer|connect to|Connect to|from peer) (?P<peer>[\w.-]{2,80}?)(?:\.lan|\.local)?<\d+>|"
    r"Remote daemon:.{0,60} on node (?P<daemon>[\w.-]+)|"
    r"(?:[Nn]ode failure on|[Nn]odes?) (?P<node>[\w.-]+)(?: not responding|,|$)"
)
_LOCAL = expression(r"addr=\[(?P<own>[^\]\s]{1,80})\]")
LINES_ROUND = 8
MOST_RANKS = 65_536


@dataclass(slots=True)
class _Loss:
    first: Hit
    hits: int = 0


def read_absence(incident: LogIncident) -> Finding | None:
    """Finding about the one host that all survivors lost and that wrote nothing at the end, or None."""
    reports: dict[str, _Loss] = {}
    speakers: Counter[str] = Counter()
    survivors: set[int] = set()
    lost_peer = incident.signatures.with_role(FindingRole.LOST_PEER)
    for digest in incident.digests:
        for hit in digest.hits:
            if hit.index not in lost_peer:
                continue
            if incident.survived(hit.line):
                continue
            own = _own_host(hit.line)
            if own:
                speakers[_short(own)] += 1
            rank = rank_of(incident, hit.line)
            if rank is not None:
                survivors.add(rank)
            for name in _remotes(incident, hit.line):
                if own is None or _short(own) != _short(name):
                    loss = reports.setdefault(_short(name), _Loss(hit))
                    loss.hits += 1
    lost = {name: loss for name, loss in reports.items() if name not in speakers}
    named = [n for n in lost if not _is_address(n)] or list(lost)
    if len(named) != 1:
        return None
    (name,) = named
    return _finding(incident, name, lost[name], survivors, set(speakers))


def _finding(
    incident: LogIncident, name: str, loss: _Loss, survivors: set[int], speakers: set[str]
) -> Finding:
    who = name_ranks(survivors) if survivors else "the survivors"
    where = f" on {', '.join(sorted(speakers)[:4])}" if speakers else ""
    seen = incident.ranks_seen | survivors
    world = max(incident.world_size or 0, max(seen, default=-1) + 1)
    missing = sorted(set(range(world)) - seen) if survivors and world <= MOST_RANKS else []
    silent = f"; nothing of {name_ranks(missing)} is in these logs" if missing else ""
    return Finding(
        kind="peers.lost",
        title=f"{who}{where} lost the connection to {name}, which closed first{silent}: whether a process there, "
        "the whole host or the path to it failed is not in these logs",
        level=Level.SYMPTOM,
        confidence=Confidence.POSSIBLE,
        evidence=(loss.first.line.evidence(),),
        host=name,
        time=loss.first.line.time,
        page=PAGE,
        facts={"peer": name, "survivors": sorted(survivors)[:64], "survived": False},
    )


def _own_host(line: Line) -> str | None:
    match = _LOCAL.search(line.text)
    return match["own"] if match is not None else line.place.host


def _remotes(incident: LogIncident, line: Line) -> set[str]:
    """Names of peers on the line itself, or in the paragraph it opens."""
    digest = incident.digest_of(line.file)
    texts = [line.text]
    if _REMOTE.search(line.text) is None:
        texts += [text for _, text in digest.lines_after(line.number, LINES_ROUND)]
    out: set[str] = set()
    for text in texts:
        for match in _REMOTE.finditer(text[:2000]):
            name = next(v for v in match.groupdict().values() if v is not None)
            out.add(name)
        if out:
            break
    return out


def _short(name: str) -> str:
    return name if _is_address(name) else name.split(".")[0].split(":")[0].lower()


def _is_address(name: str) -> bool:
    return re.fullmatch(r"[\d.]+|[0-9a-fA-F:]+", name) is not None
