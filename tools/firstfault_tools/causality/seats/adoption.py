"""Whose is a finding that prints no rank? Found by pid, PCI address, pod, host or by who failed alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from firstfault_tools.causality.attribution import WRITTEN_TWICE, raised_by_launcher, rank_of
from firstfault_tools.causality.incident import LogIncident
from firstfault_tools.causality.seats.pods import pod_of, rank_of_ordinal
from firstfault_tools.causality.seats.roster import same_host
from firstfault_tools.causality.weighing import weigh_findings
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Category, Finding, Level
from firstfault_tools.log.scan import make_line
from firstfault_tools.log.speaker import read_speaker

_LOCAL = (Category.OOM, Category.DATA, Category.HARDWARE, Category.NUMERICAL, Category.CODE_BUG)
"""Categories whose faults strike one process; the others lie in what the ranks share."""
_NOBODYS = (Category.SCHEDULER, Category.COMMUNICATION)
"""Categories whose faults are never one rank's own, even if only one rank wrote the log."""

_OF_THE_HOST = frozenset(
    {
        "kernel.nvme", "kernel.nvme_timeout", "kernel.io_error", "kernel.filesystem", "kernel.memory_ue",
        "kernel.machine_check", "kernel.memory_failure", "kernel.panic", "kernel.apei", "kernel.oom_kill",
        "signature.ray-node-memory-kill",
    }
)  # fmt: skip
"""Faults that strike whatever runs on the host: one rank's own where the host has one rank."""
_OF_A_DISK = frozenset(
    {"kernel.nvme", "kernel.nvme_timeout", "kernel.io_error", "kernel.filesystem"}
)
"""Faults that the first rank to read or write there meets first."""

_WHOLE_HOST = frozenset(
    {
        "hardware.sel_power", "hardware.cpu_heat", "network.port_rate",
        "signature.tensorflow-holds-gpus", "signature.tpu-node-unhealthy",
        "signature.ray-node-memory-kill",
    }
)  # fmt: skip
"""Faults of a whole host: not that of the rank which happens to print for it."""

_TASK_END = expression(
    r"srun: error: [\w.-]+: tasks? (?P<task>\d+)(?P<more>[-,]\d[\d,-]*)?: (?P<how>\w[\w ]+)"
)

_TASKS = expression(
    r"(?:^#SBATCH|\bsrun|\bsbatch)\b.{0,200}?\s(?:-n ?|--n?tasks(?:-per-node)?[= ])(?:[2-9]|\d{2,})\b|--launcher[= ]slurm\b"
)
"""A job script that starts several tasks of one process each."""

_TAKEN_BACK = "signature.spot-interruption"
_MACHINE_GONE = frozenset(
    {
        _TAKEN_BACK, "signature.ray-node-dead", "signature.ray-node-preempted", "signature.slurm-node-failure", "signature.host-rebooted",
        "signature.host-kernel-panic", "signature.k8s-node-not-ready", "signature.slurm-node-drained",
    }
)  # fmt: skip
"""A machine is gone with all that ran on it: one rank's end where it had one rank."""

_OF_A_MEMBER = _MACHINE_GONE | {"signature.ray-node-memory-kill", "signature.ray-actor-died"}
_OF_AN_ACTOR = frozenset({"signature.ray-node-preempted", "signature.ray-actor-died"})
_IN_FRONT = expression(
    r"\[?(?:pod/)?(?P<pod>[a-z0-9][a-z0-9.-]{0,200}-\d{1,5})(?:/[\w.-]+)?[\]|:] "
)
_ACTOR = expression(r"\b(?P<what>pid|ip): (?P<value>[\w.:-]+)\s*$")
"""Rows of Ray's report of a dead actor."""
_MEMBER_LINES = 16
"""Lines that a controller writes of one member of its group at most, below the member's heading."""

_REMOVALS = frozenset(
    {
        "kubernetes.tainted", "kubernetes.evicted", "kubernetes.preempted", "signature.k8s-liveness-killed",
    }
)  # fmt: skip
_DESCRIBED = expression(
    r"\bkubectl (?:-n \S+ )?(?:describe|logs) pods?[ /](?P<pod>[a-z0-9][a-z0-9.-]+)|^Name: +(?P<named>[a-z0-9][a-z0-9.-]+)"
)
_DESCRIPTION = 80
"""Lines that the description of a pod has between its heading and its events at most."""

_SHOWN_BY_FAILED = frozenset({"signature.lustre-client-evicted", "signature.inodes-used-up"})
"""Faults of what lies below the ranks, told by the system: the one rank that failed on it is the first."""


def adopt_ranks(incident: LogIncident, findings: Sequence[Finding]) -> list[Finding]:
    """Rank of causes that print none: by pid or bus id, else that of the one rank that failed.

    A device-side assertion, a kernel message or a worker's exception names no rank; the exception it
    leads to does. Only if exactly one rank raised anything but symptoms is it taken.
    """
    failed = {
        f.rank
        for f in findings
        if f.rank is not None
        and f.level in (Level.CAUSE, Level.FAILURE)
        and f.category is not Category.COMMUNICATION
        and not f.facts.get("survived")
    }
    out = []
    for finding in findings:
        finding = _mark_survivor(incident, finding)
        # who prints a metric, reports a mismatch or fails to meet the others is not who caused it
        shared = finding.kind.startswith(("metrics.", "collective.", "launch.", "nccl.host_"))
        if finding.rank is None and finding.level in (Level.CAUSE, Level.FAILURE):
            rank = _rank_by_seat(incident, finding)
            local = finding.category in _LOCAL or finding.kind in _SHOWN_BY_FAILED
            local = local and not shared and not finding.facts.get("ranks")
            local = local and finding.kind not in _WHOLE_HOST
            if rank is None and local:
                rank = _only(failed) if len(failed) < 2 else _only(_ranks_alike(finding, findings))
            if rank is None and finding.kind.startswith("metrics."):
                rank = _victim_of_growth(finding, findings)
            if rank is None and finding.kind == _TAKEN_BACK:
                rank = _evicted_rank(incident, findings)
            if rank is None and finding.kind in _OF_A_MEMBER:
                rank = _rank_of_block(incident, finding)
            if rank is None and finding.kind in _OF_AN_ACTOR:
                rank, finding = _rank_of_actor(incident, finding)
            if rank is None and finding.kind in _MACHINE_GONE and (host := _host_gone(finding)):
                rank = incident.seating.by_host(host)
                rank = incident.seating.by_exclusion(host) if rank is None else rank
            own = not shared and finding.kind not in _WHOLE_HOST
            # what several processes report alike is not that of the one whose traceback was pasted
            own = own and int(str(finding.facts.get("told_by") or 0)) < 2
            # the first rank prints what was averaged over all
            own = own and finding.category is not Category.NUMERICAL
            own = own and not any(WRITTEN_TWICE.search(e.text) for e in finding.evidence)
            if rank is None and own and finding.category not in _NOBODYS:
                rank = _sole_rank(incident)
            if rank is not None:
                finding = replace(finding, rank=rank)
        if finding.rank is not None and finding.host is None:
            finding = replace(finding, host=incident.roster.host_of(finding.rank))
        out.append(finding)
    if any(f.kind.startswith(_ON_A_CARD) for f in out) and len(_orders(incident)) > 1:
        from firstfault_tools.causality.seats.card_runs import follow_card

        out = follow_card(incident, out)
    return weigh_findings(incident, out)


def _only(ranks: set[int]) -> int | None:
    return next(iter(ranks)) if len(ranks) == 1 else None


def _ranks_alike(finding: Finding, findings: Sequence[Finding]) -> set[int]:
    """Ranks that report a cause of this kind themselves, beside others that failed of something else."""
    return {
        f.rank
        for f in findings
        if f.rank is not None
        and f.category is finding.category
        and f.level is Level.CAUSE
        and not f.facts.get("survived")
    }


_ON_A_CARD = ("hardware.xid", "signature.cuda-", "signature.xid-")
_ORDER = expression(r"VISIBLE_DEVICES['\"]?\s*[=:]\s*['\"]?\d{1,2}(?:,\s?\d{1,2})+")


def _orders(incident: LogIncident) -> set[str]:
    """The lists of cards that were made visible to the runs in the logs."""
    lines = incident.lines_with(("VISIBLE_DEVICES",))
    return {m[0] for _, _, t in lines if (m := _ORDER.search(t[:1000])) is not None}


def _evicted_rank(incident: LogIncident, findings: Sequence[Finding]) -> int | None:
    """The one rank whose pod was removed from the machine that the cloud took back."""
    removed = {_rank_by_seat(incident, f) for f in findings if f.kind in _REMOVALS}
    return next(iter(removed)) if len(removed) == 1 else None


def _rank_of_block(incident: LogIncident, finding: Finding) -> int | None:
    """Rank in whose block of a controller's report all the lines stand: `[Rank 1]`, then what befell it."""
    ranks: set[int | None] = set()
    for evidence in finding.evidence:
        digest = next((d for d in incident.digests if d.file == evidence.file), None)
        text = incident.text_of(digest, evidence.line) if digest is not None else None
        if digest is None or text is None:
            return None
        line = make_line(digest.file, evidence.line, text, digest.year)
        own = (line.speaker.stream, line.speaker.pid)
        above = (
            x
            for x in incident.lines_before(line, _MEMBER_LINES)
            if (x.speaker.stream, x.speaker.pid) == own
        )
        heads = (x for x in above if x.speaker.rank is not None)
        head = next(heads, None)
        headed = head is not None and not head.text[head.body :].strip(" :")
        ranks.add(head.speaker.rank if head is not None and headed else None)
    return next(iter(ranks)) if len(ranks) == 1 else None


def _rank_of_actor(incident: LogIncident, finding: Finding) -> tuple[int | None, Finding]:
    """Rank and host of the actor of whose death Ray reports: its pid and address stand above the reason."""
    for evidence in finding.evidence[:1]:
        digest = next((d for d in incident.digests if d.file == evidence.file), None)
        text = incident.text_of(digest, evidence.line) if digest is not None else None
        if digest is None or text is None:
            continue
        line = make_line(digest.file, evidence.line, text, digest.year)
        rows = [
            m for x in incident.lines_before(line, _MEMBER_LINES) if (m := _ACTOR.search(x.text))
        ]
        told = {m["what"]: m["value"] for m in reversed(rows)}
        host, pid = told.get("ip"), told.get("pid", "")
        rank = incident.seating.roster.by_pid(int(pid), host) if pid.isdecimal() else None
        if rank is None and host is not None:
            rank = incident.seating.by_host(host)
        return rank, replace(finding, host=finding.host or host)
    return None, finding


def _host_gone(finding: Finding) -> str | None:
    return finding.host or str(finding.facts.get("node") or "") or None


def _victim_of_growth(finding: Finding, findings: Sequence[Finding]) -> int | None:
    """The one rank that ran out of the memory whose growth a metric shows."""
    if finding.category is not Category.OOM:
        return None
    out_of_memory = {f.rank for f in findings if f.category is Category.OOM and f.rank is not None}
    return next(iter(out_of_memory)) if len(out_of_memory) == 1 else None


def _mark_survivor(incident: LogIncident, finding: Finding) -> Finding:
    """A finding of another tool about a line that the run got over is survived too."""
    place = finding.evidence[0] if finding.evidence else None
    if place is None or place.line == 0 or finding.kind.startswith("metrics."):
        return finding
    if "survived" in finding.facts:
        return finding
    survived = incident.passed(place.file, place.line, finding.time or place.time)
    return replace(finding, facts={**finding.facts, "survived": survived})


def _sole_rank(incident: LogIncident) -> int | None:
    """Rank of the one process whose exception is in unlabelled logs: what its launcher says, else 0."""
    crashes = {
        (t.line.file, t.line.number) for t in incident.tracebacks if not t.chained and not t.ignored
    }
    if any(t.line.speaker.task is not None or raised_by_launcher(t) for t in incident.tracebacks):
        return None
    if len(crashes) != 1 or incident.ranks_seen - {0} or incident.hosts_seen or incident.work:
        return None
    reported = {e.rank if e.rank is not None else e.local_rank for e in incident.exits} - {None}
    if len(reported) == 1:
        return reported.pop()
    return 0 if not reported and not incident.has_peers else None


def _pod(finding: Finding) -> str | None:
    """Pod that a line of Kubernetes is about."""
    if not finding.kind.startswith("signature.k8s-"):
        return None
    pods = {pod for e in finding.evidence[:3] if (pod := pod_of(e.text)) is not None}
    return next(iter(pods)) if len(pods) == 1 else None


def _pod_described(incident: LogIncident, finding: Finding) -> str | None:
    """Pod whose description a line without a name stands in."""
    place = finding.evidence[0]
    digest = incident.digest_of(place.file)
    at = digest.position(place.line)
    for _, text in reversed(digest.kept[max(0, at - _DESCRIPTION) : at]):
        match = _DESCRIBED.search(text) if "kubectl" in text or text.startswith("Name:") else None
        if match is not None:
            return match["pod"] or match["named"]
    return None


def _pod_in_front(finding: Finding) -> str | None:
    """Pod whose name a collector put in front of every quoted line of a fault that strikes one process."""
    if finding.category not in _LOCAL or not finding.kind.startswith(("signature.", "traceback.")):
        return None
    found = {
        m["pod"] if (m := _IN_FRONT.match(e.text)) is not None else None for e in finding.evidence
    }
    return found.pop() if len(found) == 1 else None


def _host_in_front(incident: LogIncident, finding: Finding) -> str | None:
    """Host that a launcher or a collector put in front of the lines."""
    hosts = {read_speaker(e.text)[0].host for e in finding.evidence[:3]}
    return next(iter(hosts)) if len(hosts) == 1 else None


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


def _rank_of_gpu(incident: LogIncident, finding: Finding, bus: str) -> int | None:
    """Rank of the GPU at an address: put together from listings, indices and hosts."""
    seats = incident.gpu_seats
    pid, index = seats.pid_at(bus), seats.index_at(bus)
    rank = incident.roster.by_pid(pid, finding.host) if pid is not None else None
    if rank is None:
        rank = seats.rank_at(bus)
    if rank is None and index is not None:
        host = finding.host or _host_in_front(incident, finding)
        rank = incident.seating.by_gpu(host, index, None)
    return rank


MOST_LOCAL = 16
"""Ranks of the largest host: with fewer, and no host named, the index of a GPU is the rank on it."""


def _rank_of_index(incident: LogIncident, finding: Finding, index: int) -> int | None:
    """Rank on GPU `index` of the only host there is, where that rank is heard of."""
    if not finding.kind.startswith("hardware."):
        return None
    told = (f"rank {index} ", f"Rank {index} ", f"rank={index} ")
    if index not in incident.ranks_seen and next(incident.lines_with(told), None) is None:
        return None
    seats = incident.gpu_seats
    world = max((*incident.ranks_seen, index, (incident.world_size or 1) - 1)) + 1
    if world < 2 or world > MOST_LOCAL or incident.hosts_seen or not seats.alone:
        return None
    return seats.local_rank_on(index)


def _rank_of_nccl(incident: LogIncident, finding: Finding) -> int | None:
    """Rank of the one process that printed the warnings of NCCL: by its pid, else by its channels."""
    from firstfault_tools.causality.seats.gpu_seats import seat_nccl_process

    speakers = {(s.host, s.pid) for e in finding.evidence if (s := read_speaker(e.text)[0]).pid}
    if len(speakers) != 1:
        return None
    host, pid = speakers.pop()
    if host is None or pid is None:
        return None
    rank = incident.roster.by_pid(pid, host)
    return rank if rank is not None else seat_nccl_process(incident, host, pid)


def _rank_by_seat(incident: LogIncident, finding: Finding) -> int | None:
    seating = incident.seating  # adds to the roster what labels of lines tell
    pid = str(finding.facts.get("pid") or "")
    if pid.isdecimal():
        rank = incident.roster.by_pid(int(pid), finding.host)
        if rank is None:
            rank = incident.gpu_seats.rank_of_pid(int(pid))
        if rank is not None:
            return rank
    if finding.category in _LOCAL and finding.evidence and "NCCL WARN" in finding.evidence[0].text:
        rank = _rank_of_nccl(incident, finding)
        if rank is not None:
            return rank
    facts = finding.facts
    bus = str(facts.get("pci") or facts.get("bus") or facts.get("pci_address") or "")
    rank = incident.roster.by_bus(bus, finding.host) if bus else None
    index, gpus = facts.get("gpu_index"), facts.get("gpus_on_host")
    if rank is None and isinstance(index, int):
        rank = seating.by_gpu(finding.host, index, gpus if isinstance(gpus, int) else None)
    if rank is None and bus:
        rank = _rank_of_gpu(incident, finding, bus)
    if rank is None and isinstance(index, int) and finding.host is None:
        rank = _rank_of_index(incident, finding, index)
    pod = facts.get("pod") or _pod(finding) or _pod_in_front(finding)
    if not pod and finding.kind == "signature.k8s-liveness-killed":
        pod = _pod_described(incident, finding)
    if rank is None and isinstance(pod, str):
        rank = seating.by_pod(pod)
        if rank is None and (finding.kind in _REMOVALS or finding.category in _LOCAL):
            rank = rank_of_ordinal(incident, pod)
    if rank is None and finding.host and finding.kind in _OF_THE_HOST | _SHOWN_BY_FAILED:
        rank = seating.by_host(finding.host)
    if rank is None and finding.kind == "signature.slurm-oom-kill":
        rank = _task_out_of_memory(incident)
    if rank is None and finding.kind in _SIGNALLED:
        rank = _rank_of_signal(incident)
    if rank is None and finding.host and finding.kind in _OF_A_DISK:
        rank = _first_to_raise(incident, finding.host)
    return rank


_SIGNALLED = frozenset({"signature.shm-too-small", "signature.exit-sigbus", "signature.segfault"})
"""Deaths by a signal, which a handler (Open MPI, UCX) reports with host and pid in front."""
_HANDLED = expression(
    r"^\[(?P<host>[\w.-]+):(?P<pid>\d+)(?::\d+)*\] (?:\*{3} Process received signal|Signal: )"
)


def _rank_of_signal(incident: LogIncident) -> int | None:
    """Rank of the one process whose signal handler wrote its last words."""
    from firstfault_tools.causality.seats.gpu_seats import seat_nccl_process

    found = {
        (m["host"], int(m["pid"]))
        for _, _, t in incident.lines_with(("Process received signal", "] Signal: "))
        if (m := _HANDLED.match(t)) is not None
    }
    if len(found) != 1:
        return None
    host, pid = found.pop()
    rank = incident.roster.by_pid(pid, host)
    if rank is None:
        rank = seat_nccl_process(incident, host, pid)
    return rank if rank is not None else incident.gpu_seats.rank_of_pid(pid)


def _first_to_raise(incident: LogIncident, host: str) -> int | None:
    """The one rank of a host that raised an exception of its own, or ended with an exit code of its own."""
    raised = {
        rank_of(incident, t.line)
        for t in incident.tracebacks
        if not t.chained and same_host(t.line.speaker.host or "", host)
    } - {None}
    if len(raised) == 1:
        return raised.pop()
    ended = {
        e.rank
        for e in incident.exits
        if e.rank is not None
        and e.code > 0
        and e.signal is None
        and same_host(incident.roster.host_of(e.rank) or "", host)
    }
    return next(iter(ended)) if len(ended) == 1 else None
