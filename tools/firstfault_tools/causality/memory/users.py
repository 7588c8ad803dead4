"""Who used the host memory that ran out, and for which work?

A monitor that kills names its victim, not the user: its table of the largest processes does, and the
method in their names tells the work. Memory that climbs during an evaluation or a save belongs to that
work, not to training.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

from firstfault_tools.causality.incident import LogIncident
from firstfault_tools.causality.memory.killed_work import PLAIN, last_work, name_kept
from firstfault_tools.expressions import expression
from firstfault_tools.facts import Fact
from firstfault_tools.findings import Evidence, Finding
from firstfault_tools.hardware.excerpt import quote_line
from firstfault_tools.log.digest import FileDigest

TOP = 16
"""Rows of Ray's table at most."""
LEADING = 0.3
"""Share of the memory in use that a group of processes must hold to be named."""
BEFORE = 80
"""Lines before the first figure in which the work is looked for."""

ONE_HOLDS = "Held by one process"
"""How the fix begins where one process holds most."""

_TABLE = "memory users"
_ROW = expression(r"^\s*(?P<pid>\d{1,8})\s+(?P<gb>\d+(?:\.\d+)?)\s+(?P<command>\S.{0,300})")
_VICTIM = expression(
    r"name=(?P<name>[\w.:<>-]{1,80}), pid=(?P<pid>\d+), memory used=(?P<used>[\d.]+) ?GB\) was running was (?P<all>[\d.]+) ?GB"
)
_WORKS = (
    (expression(r"(?i)save|checkpoint|state_dict"), "saving"),
    (expression(r"(?i)eval|valid|predict"), "evaluation"),
    (expression(r"(?i)\binit|load|from_pretrained"), "loading"),
)
_TRAINS = expression(r"(?i)['\"]loss['\"]?\s*[:=]|\bloss[:= ]|lm loss|iteration\s+\d+/")


def name_users(incident: LogIncident, finding: Finding) -> Finding:
    """Ray's kill, with the processes that held the memory and what they were doing."""
    victim = next(
        (m for _, _, t in incident.lines_with(("memory used=",)) if (m := _VICTIM.search(t))), None
    )
    for digest, number, _ in incident.lines_with((_TABLE,)):
        at = digest.position(number)
        groups: dict[str, list[float]] = defaultdict(list)
        places: dict[str, Evidence] = {}
        for line, text in digest.kept[at + 1 : at + 1 + TOP]:
            row = _ROW.match(text)
            if row is None:
                if groups:
                    break
                continue
            command = row["command"].strip()
            groups[command].append(float(row["gb"]))
            places.setdefault(command, Evidence(digest.file, line, text.strip()[:300]))
        if not groups:
            continue
        command, sizes = max(groups.items(), key=lambda g: sum(g[1]))
        whole = float(victim["all"]) if victim is not None else 0.0
        if whole and sum(sizes) < LEADING * whole:
            return finding
        work = _work_of(command, digest, at)
        return replace(
            finding,
            title=f"{finding.title}; {_describe(command, sizes)}"
            + (f", {PLAIN[work[0]]}" if work is not None else "")
            + _say_victim(command, victim),
            evidence=(
                *finding.evidence[:3],
                places[command],
                *((quote_line(digest.file, work[1][0], work[1][1]),) if work is not None and work[1] else ()),
            ),
            facts={**finding.facts, **({Fact.FIX.value: ONE_HOLDS} if len(sizes) == 1 and work is None else {})},
        )  # fmt: skip
    return finding


def _describe(command: str, sizes: list[float]) -> str:
    name = command if len(command) <= 80 else f"{command[:77]}..."
    if len(sizes) == 1:
        return f"the largest user is {name} with {sizes[0]:.1f} GB"
    return f"the largest users are {len(sizes)} processes {name} with {sum(sizes):.0f} GB together ({sum(sizes) / len(sizes):.1f} each)"


def _say_victim(command: str, victim: object) -> str:
    if victim is None or victim["name"] in command:  # type: ignore[index]
        return ""
    return f"; {victim['name']} ({victim['used']} GB), which Ray chose to kill, is only the victim"  # type: ignore[index]


def _work_of(
    command: str, digest: FileDigest, at: int
) -> tuple[str, tuple[int, str] | None] | None:
    """The work by the method in the name of the processes, else by the lines before the kill."""
    method = command.rpartition(".")[2] if "::" in command else ""
    named = next((work for words, work in _WORKS if words.search(method)), None)
    told = last_work(digest.kept[max(0, at - BEFORE) : at])
    if named is not None:
        return named, told[1] if told is not None and told[0] == named else None
    return told


def name_growing_work(incident: LogIncident, finding: Finding) -> Finding:
    """Growth of host memory within an evaluation, a save or a load: that work holds it."""
    if not finding.evidence or not finding.opening:
        return finding
    first, last = finding.evidence[0].line, finding.evidence[-1].line
    digest = next((d for d in incident.digests if d.file == finding.evidence[0].file), None)
    if digest is None:
        return finding
    at, end = digest.position(first), digest.position(last)
    told = last_work(digest.kept[max(0, at - BEFORE) : at])
    if told is None or any(_TRAINS.search(t[:400]) for _, t in digest.kept[at : end + 1]):
        return _name_killed(incident, finding)
    work, line = told
    quoted, words = [line], PLAIN[work]
    if work == "evaluation":
        kept = [r for r in digest.kept[max(0, at - BEFORE) : at] if name_kept(r[1])]
        if kept:
            quoted.append(kept[-1])
            words += f" ({name_kept(kept[-1][1])})"
    return _name_killed(
        incident,
        replace(
            finding,
            title=finding.reworded(f": it grew {words}"),
            opening="",
            evidence=(
                *finding.evidence[:4],
                *(quote_line(digest.file, n, t) for n, t in dict.fromkeys(quoted)),
            ),
            page="oom-evaluation" if work == "evaluation" else "host-memory-oom-kill",
        ),
    )


def _name_killed(incident: LogIncident, finding: Finding) -> Finding:
    """The one rank that was killed by SIGKILL is where the memory of the host ran out."""
    if finding.rank is not None:
        return finding
    ranks = {
        e.rank if e.rank is not None else e.local_rank for e in incident.exits if e.signal == 9
    }
    if len(ranks - {None}) != 1 or len(incident.hosts_seen) > 1:
        return finding
    rank = next(iter(ranks - {None}))
    title = finding.title + f"; rank {rank} was killed there (SIGKILL)"
    return replace(finding, rank=rank, title=title)
