"""Which of several logs is that of the node or rank for which the others wait, by the parts of the step in each?

Every node writes a log of its own, none of its lines names a rank, and each prints how long loading, computing and
waiting took. What differs is who waits: the late one has a long part of its own and a short wait.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from firstfault_tools.expressions import expression
from firstfault_tools.findings import Finding
from firstfault_tools.log.digest import FileDigest
from firstfault_tools.log.logs import Logs
from firstfault_tools.metrics.pace.rank_parts import (
    LEAST,
    RankParts,
    judge_parts,
    names_part,
)
from firstfault_tools.roles import Role

BESIDE = ("logs:2",)

MOST_LOGS, MOST_ROWS, TRIED = 512, 256, 8
"""Logs compared, last lines read of each, and logs without any part after which the rest is not read."""

HEAD_LINES = 12
"""Lines in which a log says whose it is."""

_HOST = expression(r"(?i)\bhost(?:name)?\s?[=:]\s?['\"]?(?P<host>[a-z][\w.-]{1,62})")
_NODE = expression(r"(?i)\bnode(?:[ _](?:rank|id|index))?\s?[=:]\s?(?P<node>\d{1,6})\b")
_RANKS = expression(
    r"(?i)\branks?\s?[=:]\s?\[?(?P<first>\d{1,6})\s?(?:-|–|\.\.)\s?(?P<last>\d{1,6})\b"
)
_PART = expression(
    r"(?P<name>[A-Za-z][\w/+-]{1,40}?)(?:_(?:m?s|sec|time|ms))?\s?[=:]\s{0,3}(?P<value>\d{1,9}(?:\.\d{1,6})?)(?:\s?(?:ms|s)\b|(?=[\s,;|)\]}]|$))"
)


def find_in_incident(incident: Logs, findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """The log whose own part of the step is long while the others wait."""
    logs = [d for d in incident.digests if incident.role_of(d.file) is Role.RUN][:MOST_LOGS]
    if len(logs) < LEAST or any(f.kind == "metrics.rank_waits" for f in findings):
        return ()
    sources: list[RankParts] = []
    for index, digest in enumerate(logs):
        if index >= TRIED and not sources:
            return ()
        source = read_log(digest, index)
        if source is not None:
            sources.append(source)
    found = judge_parts(sources, "") if len(sources) >= LEAST else None
    return (found,) if found is not None else ()


def read_log(digest: FileDigest, index: int) -> RankParts | None:
    """Parts of the step in one log, as those of one source; None where none is printed, or ranks share the log."""
    if len(digest.ranks) > 1:
        return None
    rank = digest.name_rank if digest.name_rank is not None else next(iter(digest.ranks), None)
    source = RankParts(rank if rank is not None else index, file=digest.file)
    head = [text for _, text in islice(digest.kept, HEAD_LINES)]
    host = next((m["host"] for m in map(_HOST.search, head) if m), None)
    source.host = host or digest.name_place.host
    source.called = _call(head, host, digest.file) if rank is None else ""
    for number, text in digest.kept[-MOST_ROWS:]:
        pairs = [
            (m["name"].replace("_", " ").lower(), float(m["value"]))
            for m in _PART.finditer(text[:600])
        ]
        kept = [(name, value) for name, value in pairs if names_part(name)]
        if len(kept) < 2:
            continue
        for name, value in kept:
            source.parts.setdefault(name, []).append(value)
        source.lines.append((number, text))
    return source if len(source.lines) >= LEAST else None


def _call(head: Sequence[str], host: str | None, file: str) -> str:
    """How the source names itself in its first lines, else its file."""
    node = next((m["node"] for m in map(_NODE.search, head) if m), None)
    ranks = next((m for m in map(_RANKS.search, head) if m), None)
    name = host or (f"node {node}" if node is not None else file)
    more = [f"node {node}"] if host and node is not None else []
    more += [f"ranks {ranks['first']}-{ranks['last']}"] if ranks else []
    return f"{name} ({', '.join(more)})" if more else name
