"""Which line of a kernel tells of the very process whose death a program reports? Both name its pid.

A DataLoader says by which signal its worker died and guesses why (shared memory). The kernel saw it: a page of a file
that could not be read, memory that failed, a crash in a library. A listing that shows room where the guess says that
there was none refutes it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from firstfault_tools.causality.incident import LogIncident
from firstfault_tools.correlation.decisions import Relation, Rule, Trail
from firstfault_tools.expressions import expression
from firstfault_tools.finding_roles import FindingRole
from firstfault_tools.findings import Evidence, Finding, Level
from firstfault_tools.hardware.excerpt import quote_line
from firstfault_tools.hardware.host.tables import read_tables
from firstfault_tools.memory.sizes import GIB
from firstfault_tools.placement.table import same_host

SEEN = Rule("kernel-saw-the-process-die", Relation.EXPLAINS, "the kernel names the pid of the process that died, and why")  # fmt: skip
ROOM = Rule("room-was-left", Relation.CONTRADICTS, "a listing shows room where there was said to be none")  # fmt: skip

_KINDS = ("kernel.file_fault", "kernel.memory_failure", "kernel.invalid_opcode")
_OF_WORKER = (*_KINDS, "kernel.segfault")
"""A launcher knows its own process better than the kernel's word for its crash; of a worker it knows nothing."""
_WORKER = expression(r"(?i)\bdataloader \w+ \(pid(?:\(s\))?[ :=]{0,3}(?P<pid>\d{1,8})\)")
_EXIT = expression(r"exitcode: -\d{1,2}\) local_rank: \d{1,3} \(pid: (?P<pid>\d{1,8})\)")
_DEATHS = ((_OF_WORKER, _WORKER), (_KINDS, _EXIT))
_Death = tuple[tuple[str, ...], re.Match[str]]
SHARED_MEMORY = "/dev/shm"
LARGE, USED = 16 * GIB, 50.0
"""Size from which shared memory is enough for the workers of a host at usual batches (64 MB is the default of a container);
percent in use below which it was not filled."""
MOST_ROWS = 400


def join_dead_processes(
    incident: LogIncident, findings: Sequence[Finding], trail: Trail
) -> list[Finding]:
    """Deaths that the kernel explains, and guesses of full memory that a listing refutes."""
    out = list(findings)
    for at, finding in enumerate(out):
        if not _is_live(finding) or finding.kind.startswith("kernel."):
            continue
        told = [(k, m) for e in finding.evidence for k, p in _DEATHS for m in p.finditer(e.text[:1000])]  # fmt: skip
        seen = next((n for n, k in enumerate(out) if _tells_of(k, told, finding)), None)
        if seen is not None:
            out[seen] = _seat(out[seen], finding)
            out[at] = replace(finding, level=Level.SYMPTOM)
            trail.note(SEEN, finding, out[at], out[seen])
        elif finding.has(FindingRole.SHARED_MEMORY_FULL):
            out[at] = _weigh_room(incident, finding)
            if out[at] is not finding:
                trail.note(ROOM, finding, out[at])
    return out


def _is_live(finding: Finding) -> bool:
    return finding.level in (Level.CAUSE, Level.FAILURE) and not finding.survived


def _tells_of(kernel: Finding, told: Sequence[_Death], death: Finding) -> bool:
    there = not kernel.host or not death.host or same_host(kernel.host, death.host)
    same = any(kernel.kind in kinds and kernel.pid == int(m["pid"]) for kinds, m in told)
    return same and there and _is_live(kernel)


def _seat(kernel: Finding, death: Finding) -> Finding:
    """The kernel's line as the cause, of the rank that reports the death."""
    rank = death.rank if kernel.rank is None else kernel.rank
    worker = any(_WORKER.search(e.text[:1000]) for e in death.evidence)
    of = f" of rank {rank}" if rank is not None else ""
    return replace(
        kernel,
        level=Level.CAUSE,
        title=f"{kernel.title}; that was {'a worker of the data loader' if worker else 'the process'}{of}",
        rank=rank,
        evidence=(*kernel.evidence[:3], *death.evidence[-1:]),
    )


def _weigh_room(incident: LogIncident, finding: Finding) -> Finding:
    """The death without the guess, where df shows a large and empty /dev/shm on its host."""
    room = _find_room(incident, finding.host)
    if room is None:
        return finding
    words, place = room
    return replace(
        finding,
        title=f"a process that uses shared memory died of a bus error, but {words}: a page of a mapped file "
        "that could not be read, or memory of the host that failed, ends a process so too; the kernel log tells which",
        level=Level.FAILURE,
        evidence=(*finding.evidence[:3], place),
    )


def _find_room(incident: LogIncident, host: str | None) -> tuple[str, Evidence] | None:
    files = {digest.file: digest for digest, _, _ in incident.lines_with((SHARED_MEMORY,))}
    for file, digest in files.items():
        for row in read_tables(list(digest.kept[:MOST_ROWS]), file, "file_systems"):
            there = not row.host or not host or same_host(row.host, host)
            if row["mount"] != SHARED_MEMORY or not there:
                continue
            size, share = row.amount("size"), row.amount("share")
            if size is None or share is None or size < LARGE or share >= USED:
                return None
            words = f"{SHARED_MEMORY} has {row['size']} and is {row['share']} in use (df)"
            return words, quote_line(file, *row.place, host=row.host)
    return None
