"""Which process, and what kind of memory, took the memory of a host or cgroup that ran out?

A kill names its victim. `ps`, `top`, `/proc/PID/status`, `sacct` and the cgroup's `memory.stat` beside it name who
held the memory, and whether it was the processes' own (anonymous), shared memory (shmem, /dev/shm) or page cache.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace

from firstfault_tools.causality.incident import LogIncident
from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.facts import Fact, Json
from firstfault_tools.findings import Category, Confidence, Evidence, Finding, Level
from firstfault_tools.hardware.excerpt import quote_line
from firstfault_tools.hardware.host.tables import Record, read_tables
from firstfault_tools.log.digest import FileDigest
from firstfault_tools.placement.table import same_host

GIB = 1 << 30
WORDS = ("RSS", "RES ", "memory.", "anon ", "MemTotal")
MOST_LINES = 4_000
HOLDS = 0.3
"""Share of what all listed processes hold from which one group of them is named."""

LARGE = 0.5
"""Share of the memory there is from which one process alone explains that it ran out."""

NEARLY_ALL = 85.0
"""Percent of a host's memory (%MEM) that one group of processes holds where memory has run out."""

LITTLE = 0.03
"""Share of a host's memory that is available, below which it has run out."""

_HOST, _SHARED = "Host out of memory", "Shared memory fills"
_LOADERS = "Loader workers hold the memory"
_NUMBERED = expression(r"[ _:#-]*\d+$")
_LOADER = expression(r"(?i)^pt_data_\w+|dataloader|data_worker|multiprocessing[./]spawn")
_KINDS = {
    "anonymous": "anonymous memory, the processes' own (heap, tensors on the CPU)",
    "shared": "shared memory (shmem: /dev/shm, tmpfs, batches of loader workers), which no process frees by ending",
    "file": "page cache of files",
}


@dataclass(frozen=True, slots=True)
class _Told:
    """What the listings tell. ran_out: they show by themselves that memory ran out. task: whose step held it."""

    words: str
    evidence: tuple[Evidence, ...]
    ran_out: bool
    task: str = ""
    fix: str = ""
    """How the fix of the page begins that is of this consumer."""


def name_consumer(incident: LogIncident, finding: Finding) -> Finding:
    """A kill with the listed consumer of the memory; a bare one becomes one for memory where the listings show that."""
    told = [t for d in incident.digests if d.kept.holds(WORDS) for t in _read(d, finding)]
    if not told:
        return finding
    ran_out = any(t.ran_out for t in told)
    memory = finding.category is Category.OOM
    if not memory and not ran_out:
        return finding
    words = "; ".join(dict.fromkeys(t.words for t in told))
    evidence = (*finding.evidence[:2], *dict.fromkeys(e for t in told for e in t.evidence))
    task = next((t.task for t in told if t.task), "")
    fix = next((t.fix for t in reversed(told) if t.fix), "")
    named = {Fact.TASK: task, Fact.FIX: fix}
    told_facts: dict[str, Json] = {fact: text for fact, text in named.items() if text}
    facts = {**finding.facts, **told_facts}
    if memory:
        return replace(finding, title=f"{finding.title}; {words}", evidence=evidence, facts=facts)
    return replace(
        finding,
        facts=facts,
        title=f"{finding.subject} was killed (SIGKILL, -9) because memory ran out: {words}",
        level=Level.CAUSE,
        category=Category.OOM,
        confidence=Confidence.LIKELY,
        evidence=evidence,
        page="host-memory-oom-kill",
    )


def _read(digest: FileDigest, finding: Finding) -> Iterator[_Told]:
    """What one file tells of the host of the kill."""
    lines = [row for row in digest.kept[-MOST_LINES:] if len(row[1]) < 400]

    def rows(table: str) -> list[Record]:
        found = read_tables(lines, digest.file, table)
        return [
            r for r in found if not r.host or not finding.host or same_host(r.host, finding.host)
        ]

    limits, events, stats, hosts = (
        rows(t) for t in ("cgroup_limit", "cgroup_events", "cgroup", "host_memory")
    )
    limit = next((r for r in limits if r.amount("limit")), None)
    kills = next((r for r in events if r.amount("kills")), None)
    short = next(
        (r for r in hosts if (r.amount("free") or 0) < LITTLE * (r.amount("size") or 0)), None
    )
    size = (
        limit.amount("limit")
        if limit is not None
        else short.amount("size")
        if short is not None
        else None
    )
    if kills is not None:
        of = f" of {_gib(size)}" if limit is not None and size else ""
        quoted = _quote(
            digest, kills.places["kills"], *([limit.place] if limit is not None else [])
        )
        yield _Told(
            f"its cgroup (container, pod or Slurm job) reached its limit{of}, as memory.events counts",
            quoted,
            True,
        )
    elif short is not None:
        words = f"the host had {_gib(short.amount('free'))} of {_gib(size)} available (meminfo)"
        quoted = _quote(digest, short.places["free"], short.places["size"])
        yield _Told(words, quoted, True, fix=_HOST)
    for stat in stats[-1:]:
        yield from _tell_kind(digest, stat)
    processes = [*rows("processes"), *rows("process"), *rows("job_steps")]
    yield from _tell_group(digest, processes, size)


def _tell_kind(digest: FileDigest, stat: Record) -> Iterator[_Told]:
    """Which kind of memory fills the cgroup; shmem is counted as file as well."""
    shared = stat.amount("shared") or 0.0
    kinds = {
        "anonymous": stat.amount("anonymous") or 0.0,
        "shared": shared,
        "file": (stat.amount("file") or 0.0) - shared,
    }
    kind, held = max(kinds.items(), key=lambda k: k[1])
    if held >= LARGE * max(sum(kinds.values()), 1.0):
        rest = ", ".join(f"{_gib(v)} {k}" for k, v in kinds.items() if k != kind)
        words = f"{_gib(held)} of it are {_KINDS[kind]} ({rest}; memory.stat)"
        fix = _SHARED if kind == "shared" else ""
        yield _Told(words, _quote(digest, stat.places[kind]), False, fix=fix)


def _tell_group(digest: FileDigest, rows: Sequence[Record], size: float | None) -> Iterator[_Told]:
    """The process, or the processes of one name, that hold most."""
    groups = _group_processes(rows)
    held = {name: sum(r.amount("resident") or 0 for r in own) for name, own in groups.items()}
    name = max(held, key=lambda n: held[n], default="")
    if not name or held[name] < max(HOLDS * sum(held.values()), LARGE * (size or 0) / 2, GIB):
        return
    own = sorted(groups[name], key=lambda r: -(r.amount("resident") or 0))
    who, each = _call(own[0]), ""
    if len(own) > 1:
        who = f"{len(own)} processes {name[:60]}"
        each = f" ({_gib(held[name] / len(own))} each)"
    if _LOADER.search(name):
        who += " (DataLoader workers)"
    words = f"{who} held {_gib(held[name])}{each}{_say_kind(own[0])}"
    share = sum(r.amount("share") or 0 for r in own)
    words += f", {share:.0f}% of the host's memory" if share >= NEARLY_ALL else ""
    quoted = _quote(digest, *(r.places["resident"] for r in own[:2]))
    fix = _LOADERS if _LOADER.search(name) else ""
    yield _Told(words, quoted, share >= NEARLY_ALL, _say_task(own[0]), fix)


def _group_processes(rows: Sequence[Record]) -> dict[str, list[Record]]:
    """The last row of each process, by the name without its number."""
    latest = {(r.table, r["pid"] or r["step"]): r for r in rows if r.amount("resident")}
    groups: dict[str, list[Record]] = defaultdict(list)
    for row in latest.values():
        groups[_NUMBERED.sub("", row["command"] or row["name"] or row["step"])].append(row)
    return groups


def _call(row: Record) -> str:
    if row["step"]:
        task = _say_task(row)
        return f"step {row['step']}" + (f" ({task})" if task else "")
    return f"process {row['pid']} ({row['command'][:60]})"


def _say_task(row: Record) -> str:
    """The task of a job's account, with its node; '' of any other process."""
    return f"task {row['task']} on {row['node']}" if row["step"] and row["node"] else ""


def _say_kind(row: Record) -> str:
    """Of which kind the memory of a process is, where its status tells."""
    whole = row.amount("resident") or 1.0
    kind = next((k for k in _KINDS if (row.amount(k) or 0) >= LARGE * whole), None)
    return f", {_gib(row.amount(kind))} of it {_KINDS[kind]}" if kind is not None else ""


def _quote(digest: FileDigest, *places: tuple[int, str]) -> tuple[Evidence, ...]:
    return tuple(quote_line(digest.file, n, t) for n, t in places)


def _gib(size: float | None) -> str:
    return f"{(size or 0) / GIB:.0f} GiB"
