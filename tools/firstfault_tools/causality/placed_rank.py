"""Which one rank does the place of a finding name: its pid, PCI address, GPU, pod or host?"""

from __future__ import annotations

from dataclasses import replace

from firstfault_tools.causality.attribution import rank_of
from firstfault_tools.causality.incident import LogIncident
from firstfault_tools.causality.named_place import STRIKES_ONE, place_named
from firstfault_tools.expressions import expression
from firstfault_tools.facts import Fact
from firstfault_tools.finding_roles import FindingRole
from firstfault_tools.findings import Finding, Level
from firstfault_tools.log.place import NOWHERE, Place
from firstfault_tools.log.prefix import read_prefix
from firstfault_tools.placement.pods import rank_of_ordinal
from firstfault_tools.placement.table import MOST_LOCAL, same_host

_TASK_END = expression(
    r"srun: error: [\w.-]+: tasks? (?P<task>\d+)(?P<more>[-,]\d[\d,-]*)?: (?P<how>\w[\w ]+)"
)
_TASKS = expression(
    r"(?:^#SBATCH|\bsrun|\bsbatch)\b.{0,200}?\s(?:-n ?|--n?tasks(?:-per-node)?[= ])(?:[2-9]|\d{2,})\b|--launcher[= ]slurm\b"
)
"""A job script that starts several tasks of one process each."""
_HANDLED = expression(
    r"^\[(?P<host>[\w.-]+):(?P<pid>\d+)(?::\d+)*\] (?:\*{3} Process received signal|Signal: )"
)


def rank_by_place(incident: LogIncident, finding: Finding) -> int | None:
    """The rank by the first of the ways that gives one."""
    place = place_named(incident, finding)
    for read in _WAYS:
        rank = read(incident, finding, place)
        if rank is not None:
            return rank
    return None


def _by_warnings(incident: LogIncident, finding: Finding, place: Place) -> int | None:
    """What NCCL warns of strikes the process that prints it."""
    port = finding.has(FindingRole.RDMA) or finding.has(FindingRole.PORT_DOWN)
    own = finding.level is Level.CAUSE and port  # its own port refused it
    if not (own or finding.category in STRIKES_ONE) or not finding.evidence:
        return None
    return _rank_of_nccl(incident, finding) if "NCCL WARN" in finding.evidence[0].text else None


def _by_table(incident: LogIncident, finding: Finding, place: Place) -> int | None:
    if replace(place, host=None) == NOWHERE:
        return None
    return incident.placement.ranks_of(place, gpus=finding.whole(Fact.GPUS_ON_HOST)).only


def _by_index(incident: LogIncident, finding: Finding, place: Place) -> int | None:
    if place.gpu is None or finding.host is not None:
        return None
    return _rank_of_index(incident, finding, place.gpu)


def _by_pod(incident: LogIncident, finding: Finding, place: Place) -> int | None:
    strikes = finding.has(FindingRole.POD_REMOVED) or finding.category in STRIKES_ONE
    return rank_of_ordinal(incident, place.pod) if place.pod and strikes else None


def _by_host(incident: LogIncident, finding: Finding, place: Place) -> int | None:
    """What strikes a host strikes the one rank on it."""
    strikes = finding.has(FindingRole.STRIKES_HOST) or finding.has(FindingRole.BELOW_RANKS)
    if not finding.host or not strikes:
        return None
    return incident.placement.ranks_of(Place(host=finding.host)).only


def _by_task(incident: LogIncident, finding: Finding, place: Place) -> int | None:
    return _task_out_of_memory(incident) if finding.has(FindingRole.TASK_MEMORY_KILL) else None


def _by_signal(incident: LogIncident, finding: Finding, place: Place) -> int | None:
    return _rank_of_signal(incident) if finding.has(FindingRole.HANDLED_SIGNAL) else None


def _by_disk(incident: LogIncident, finding: Finding, place: Place) -> int | None:
    if not finding.host or not finding.has(FindingRole.OF_DISK):
        return None
    return _first_to_raise(incident, finding.host)


_WAYS = (
    _by_warnings,
    _by_table,
    _by_index,
    _by_pod,
    _by_host,
    _by_task,
    _by_signal,
    _by_disk,
)


def _task_out_of_memory(incident: LogIncident) -> int | None:
    """The one task that srun names as out of memory, where several tasks of a host are ranks."""
    rows = [m for _, _, t in incident.lines_with(("srun: error",)) if (m := _TASK_END.search(t))]
    tasks = {int(m["task"]) for m in rows if m["how"].startswith("Out Of") and not m["more"]}
    launched = any(e.local_rank is not None for e in incident.exits)
    if len(tasks) != 1 or launched:
        return None
    several = any(m["more"] for m in rows) or any(
        _TASKS.search(text) for _, _, text in incident.lines_with(("SBATCH", "srun ", "slurm"))
    )
    return next(iter(tasks)) if several else None


def _rank_of_index(incident: LogIncident, finding: Finding, index: int) -> int | None:
    """Rank on GPU `index` of the only host there is, where that rank is heard of."""
    if not finding.kind.startswith("hardware."):
        return None
    if (rank := _rank_of_visible(incident, index)) is not None:
        return rank
    told = (f"rank {index} ", f"Rank {index} ", f"rank={index} ")
    if index not in incident.ranks_seen and next(incident.lines_with(told), None) is None:
        return None
    gpus = incident.gpu_table
    world = max((*incident.ranks_seen, index, (incident.world_size or 1) - 1)) + 1
    if world < 2 or world > MOST_LOCAL or incident.hosts_seen or not gpus.alone:
        return None
    return gpus.local_rank_on(index)


def _rank_of_visible(incident: LogIncident, index: int) -> int | None:
    """Rank on GPU `index` where the only run of the only host was given a list of cards: its place in the list."""
    gpus = incident.gpu_table
    world = incident.world_size or 1
    if len(gpus.visible) != 1 or not gpus.alone or incident.hosts_seen:
        return None
    return gpus.local_rank_on(index) if world in (1, len(next(iter(gpus.visible)))) else None


def _rank_of_nccl(incident: LogIncident, finding: Finding) -> int | None:
    """Rank of the one process that printed the warnings of NCCL: by its pid, else by its channels."""
    from firstfault_tools.placement.gpus import find_nccl_rank

    speakers = {
        Place(host=s.host, pid=s.pid, gpu=s.gpu)
        for e in finding.evidence
        if (s := read_prefix(e.text)[0]).pid and s.host
    }
    if len(speakers) != 1:
        return None
    speaker = speakers.pop()
    host, pid = speaker.host, speaker.pid
    if host is None or pid is None:
        return None
    rank = incident.placement.ranks_of(speaker).only
    return rank if rank is not None else find_nccl_rank(incident, host, pid)


def _rank_of_signal(incident: LogIncident) -> int | None:
    """Rank of the one process whose signal handler wrote its last words."""
    from firstfault_tools.placement.gpus import find_nccl_rank

    found = {
        (m["host"], int(m["pid"]))
        for _, _, t in incident.lines_with(("Process received signal", "] Signal: "))
        if (m := _HANDLED.match(t)) is not None
    }
    if len(found) != 1:
        return None
    host, pid = found.pop()
    rank = find_nccl_rank(incident, host, pid)
    return rank if rank is not None else incident.placement.ranks_of(Place(pid=pid, host=host)).only


def _first_to_raise(incident: LogIncident, host: str) -> int | None:
    """The one rank of a host that raised an exception of its own, or ended with an exit code of its own."""
    raised = {
        rank_of(incident, t.line)
        for t in incident.tracebacks
        if not t.chained and same_host(t.line.place.host or "", host)
    } - {None}
    if len(raised) == 1:
        return raised.pop()
    ended = {
        e.rank
        for e in incident.exits
        if e.rank is not None
        and e.code > 0
        and e.signal is None
        and same_host(incident.placement.host_of(e.rank) or "", host)
    }
    return next(iter(ended)) if len(ended) == 1 else None
