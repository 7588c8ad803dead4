"""Whose is a finding that prints no rank? Found by pid, PCI address, pod, host or by who failed alone."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from firstfault_tools.causality.attribution import (
    REPEATED,
    WRITTEN_TWICE,
    raised_by_launcher,
)
from firstfault_tools.causality.incident import LogIncident
from firstfault_tools.causality.named_place import STRIKES_ONE
from firstfault_tools.causality.placed_rank import rank_by_place
from firstfault_tools.causality.port_ranks import rank_at_port
from firstfault_tools.correlation.decisions import Relation, Rule, Trail
from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.facts import Fact
from firstfault_tools.finding_roles import FindingRole
from firstfault_tools.findings import Category, Finding, Level
from firstfault_tools.log.place import Place
from firstfault_tools.log.prefix import read_prefix
from firstfault_tools.log.scan import make_line
from firstfault_tools.placement.table import USUAL_LOCAL, same_host

_NOBODYS = (Category.SCHEDULER, Category.COMMUNICATION)
"""Categories whose faults are never one rank's own, even if only one rank wrote the log."""


_ACTOR = expression(r"\b(?P<what>pid|ip): (?P<value>[\w.:-]+)\s*$")
"""Rows of Ray's report of a dead actor."""
ENDED = Rule("rank-that-the-launcher-saw-end", Relation.REFINES, "its lines bear no rank, and the launcher saw one process end by that signal")  # fmt: skip
_SIGNALS = {"Aborted": 6, "Segmentation fault": 11, "Bus error": 7, "Illegal instruction": 4, "Floating point exception": 8}  # fmt: skip
"""What faulthandler prints, as numbers of signals."""
_MEMBER_LINES = 16
"""Lines that a controller writes of one member of its group at most, below the member's heading."""


@dataclass(frozen=True, slots=True)
class _Clues:
    """What a rank is told by: the logs, all findings, and the ranks that raised more than symptoms."""

    incident: LogIncident
    findings: Sequence[Finding]
    failed: frozenset[int]


def assign_ranks(
    incident: LogIncident, findings: Sequence[Finding], trail: Trail | None = None
) -> list[Finding]:
    """Rank of causes that print none: by pid or bus id, else that of the one rank that failed.

    A device-side assertion, a kernel message or a worker's exception names no rank; the exception it
    leads to does. Only if exactly one rank raised anything but symptoms is it taken.
    """
    trail = trail or Trail()
    findings = [_seat_crash(incident, f, trail) for f in findings]
    failed = frozenset(
        f.rank
        for f in findings
        if f.rank is not None
        and f.level in (Level.CAUSE, Level.FAILURE)
        and f.category is not Category.COMMUNICATION
        and not f.survived
    )
    clues = _Clues(incident, findings, failed)
    out = [_assign(clues, f, trail) for f in findings]
    if any(f.has(FindingRole.ON_GPU) for f in out) and len(_orders(incident)) > 1:
        from firstfault_tools.causality.card_runs import follow_card

        out = follow_card(incident, out)
    return out


def place_ranks(incident: LogIncident, findings: Sequence[Finding], trail: Trail) -> list[Finding]:
    """Findings without a rank, with the one that the GPU, address, pod or host that they name stands for."""
    rule, _ = _CLUES[0]
    out: list[Finding] = []
    for finding in findings:
        open_ = finding.rank is None and finding.level in (Level.CAUSE, Level.FAILURE)
        placed = _take(finding, rank_by_place(incident, finding)) if open_ else finding
        if placed is not finding:
            trail.note(rule, finding, placed)
        out.append(placed)
    return out


def _assign(clues: _Clues, before: Finding, trail: Trail) -> Finding:
    """The finding with the rank that the first clue tells, and the host of its rank."""
    finding = _mark_survivor(clues.incident, before)
    several = any(REPEATED.search(e.text) for e in finding.evidence)
    if finding.rank is None and not several and finding.level in (Level.CAUSE, Level.FAILURE):
        for rule, tell in _CLUES:
            finding = tell(clues, finding)
            if finding.rank is not None:
                trail.note(rule, before, finding)
                break
    if finding.rank is not None and finding.host is None:
        finding = replace(finding, host=clues.incident.placement.host_of(finding.rank))
    return finding


def _take(finding: Finding, rank: int | None) -> Finding:
    return replace(finding, rank=rank) if rank is not None else finding


def _is_shared(finding: Finding) -> bool:
    """Who prints a metric, reports a mismatch or fails to meet the others is not who caused it."""
    told = finding.kind.startswith(("metrics.", "collective.", "launch.", "nccl.host_"))
    alike = finding.has(FindingRole.WHOLE_HOST) or finding.has(FindingRole.SAME_PROGRAM)
    return told or alike


def _by_place(clues: _Clues, finding: Finding) -> Finding:
    return _take(finding, rank_by_place(clues.incident, finding))


def _by_port(clues: _Clues, finding: Finding) -> Finding:
    down = finding.has(FindingRole.PORT_DOWN) and finding.host is not None
    return (
        _take(finding, rank_at_port(clues.incident, finding, clues.findings)) if down else finding
    )


def _by_who_failed(clues: _Clues, finding: Finding) -> Finding:
    local = finding.category in STRIKES_ONE or finding.has(FindingRole.BELOW_RANKS)
    if not local or _is_shared(finding) or finding.flag(Fact.RANKS):
        return finding
    alone = clues.failed if len(clues.failed) < 2 else _ranks_alike(finding, clues.findings)
    rank = _only(alone)
    if rank is not None and not _may_sit(clues, finding, rank):
        rank = _only(_named_on_card(clues, finding))
    return _take(finding, rank)


def _may_sit(clues: _Clues, finding: Finding, rank: int) -> bool:
    """The card that the finding names can be that of the rank: the last place of its number is the card's index."""
    index = finding.gpu_index
    incident = clues.incident
    each = max(incident.placement.per_node or 0, finding.whole(Fact.GPUS_ON_HOST) or 0)
    peers = incident.has_peers or incident.ranks_seen - {0} or any(f.rank for f in clues.findings)
    if index is None or not peers or _orders(incident):
        return True  # cards that are made visible in an order of their own are counted anew
    return rank % max(each, USUAL_LOCAL) == index


def _named_on_card(clues: _Clues, finding: Finding) -> set[int]:
    """Ranks of which another line tells the same kind of fault, be it one that the run got over, and that can sit on the card."""
    return {
        f.rank
        for f in clues.findings
        if f.rank is not None
        and f.level is Level.CAUSE
        and f.category is finding.category
        and _may_sit(clues, finding, f.rank)
    }


def _seat_crash(incident: LogIncident, finding: Finding, trail: Trail) -> Finding:
    """A crash whose lines bear no rank, of the one process that the launcher saw end by that signal."""
    signal = _SIGNALS.get(finding.text(Fact.ERROR))
    if finding.kind != "stacks.fatal_error" or signal is None:
        return finding
    labelled = any(read_prefix(e.text)[0].rank is not None for e in finding.evidence)
    died = {e.rank for e in incident.exits if e.signal == signal and e.rank is not None}
    rank = _only(died)
    if labelled or rank is None or finding.rank == rank:
        return finding
    owner = f"rank {finding.rank} "
    title = f"rank {rank} {finding.title.removeprefix(owner)}"
    seated = replace(finding, rank=rank, title=title if finding.title.startswith(owner) else finding.title)  # fmt: skip
    trail.note(ENDED, finding, seated)
    return seated


def _by_end_on_host(clues: _Clues, finding: Finding) -> Finding:
    """What befell a device of a host, and one process there crashed, as its launcher saw: that is its rank."""
    if not finding.host or _is_shared(finding) or finding.category is not Category.HARDWARE:
        return finding
    host = finding.host
    crashed = (e for e in clues.incident.exits if e.signal in _SIGNALS.values() and e.host)
    ranks = {e.rank for e in crashed if e.rank is not None and same_host(e.host or "", host)}
    rank = _only(ranks)
    return finding if rank is None or not _may_sit(clues, finding, rank) else _take(finding, rank)


def _by_who_raised(clues: _Clues, finding: Finding) -> Finding:
    own = finding.category in STRIKES_ONE
    return _take(finding, _raised_alone(clues.incident, finding)) if own else finding


def _by_growth(clues: _Clues, finding: Finding) -> Finding:
    grown = finding.kind.startswith("metrics.")
    return _take(finding, _victim_of_growth(finding, clues.findings)) if grown else finding


def _by_eviction(clues: _Clues, finding: Finding) -> Finding:
    taken = finding.has(FindingRole.MACHINE_RECLAIMED)
    return _take(finding, _evicted_rank(clues.incident, clues.findings)) if taken else finding


def _by_member(clues: _Clues, finding: Finding) -> Finding:
    member = finding.has(FindingRole.MACHINE_GONE) or finding.has(FindingRole.GROUP_MEMBER)
    return _take(finding, _rank_of_block(clues.incident, finding)) if member else finding


def _by_actor(clues: _Clues, finding: Finding) -> Finding:
    if not finding.has(FindingRole.ACTOR_GONE):
        return finding
    rank, finding = _rank_of_actor(clues.incident, finding)
    return _take(finding, rank)


def _by_comparison(clues: _Clues, finding: Finding) -> Finding:
    """A GPU that is held back, where a comparison of the ranks names one that can only sit there.

    Ranks of whole hosts count on: that of the GPU of index g is a multiple of the GPUs and g.
    """
    slow = {f.rank for f in clues.findings if f.has(FindingRole.STRAGGLER) and f.rank is not None}
    rank = _only(slow)
    if not finding.has(FindingRole.SLOWS) or rank is None:
        return finding
    table = clues.incident.placement
    index = finding.gpu_index
    each = table.per_node or max(finding.whole(Fact.GPUS_ON_HOST) or 0, USUAL_LOCAL)
    node = table.node_told(finding.host) if finding.host else None
    fits = index is None or rank % each == index
    there = node is None or rank // each == node
    elsewhere = finding.host and not same_host(table.host_of(rank) or finding.host, finding.host)
    known = index is not None or node is not None
    return _take(finding, rank) if fits and there and known and not elsewhere else finding


def _by_absence(clues: _Clues, finding: Finding) -> Finding:
    """A fault of one host or process, where of all ranks one alone never came: the silent one is its victim."""
    absent = {f.rank for f in clues.findings if f.has(FindingRole.ABSENT)}
    rank = None if None in absent else _only([r for r in absent if r is not None])
    if rank is None or not finding.host or _is_shared(finding) or finding.flag(Fact.RANKS):
        return finding
    own = clues.incident.placement.host_of(rank)
    return _take(finding, rank) if own is None or same_host(own, finding.host) else finding


def _by_machine(clues: _Clues, finding: Finding) -> Finding:
    host = _host_gone(finding) if finding.has(FindingRole.MACHINE_GONE) else None
    if not host:
        return finding
    table = clues.incident.placement
    rank = table.ranks_of(Place(host=host)).only
    return _take(finding, table.by_exclusion(host) if rank is None else rank)


def _by_sole_process(clues: _Clues, finding: Finding) -> Finding:
    if _is_shared(finding) or finding.category in (*_NOBODYS, Category.NUMERICAL):
        return finding  # the first rank prints what was averaged over all
    # what several processes report alike is not that of the one whose traceback was pasted
    several = (finding.whole(Fact.TOLD_BY) or 0) >= 2
    if several or any(WRITTEN_TWICE.search(e.text) for e in finding.evidence):
        return finding
    rank = _sole_rank(clues.incident)
    if rank is not None and not _may_sit(clues, finding, rank):
        rank = _only(_named_on_card(clues, finding))
    return _take(finding, rank)


_CLUES: tuple[tuple[Rule, Callable[[_Clues, Finding], Finding]], ...] = (
    (Rule("rank-of-its-place", Relation.REFINES, "the pid, GPU, address or pod that it names is placed on one rank"), _by_place),
    (Rule("rank-at-the-port", Relation.REFINES, "of the ranks whose RDMA connections broke, one sits on the host of the port"), _by_port),
    (Rule("rank-that-failed-alone", Relation.REFINES, "it strikes one process, and one rank alone failed"), _by_who_failed),
    (Rule("rank-that-crashed-there", Relation.REFINES, "the launcher saw one process crash on the host of the device"), _by_end_on_host),
    (Rule("rank-that-raised-it", Relation.REFINES, "one of several ranks raised it in code of its own"), _by_who_raised),
    (Rule("rank-that-ran-out", Relation.REFINES, "one rank ran out of the memory whose growth is shown"), _by_growth),
    (Rule("rank-of-the-evicted-pod", Relation.REFINES, "one rank's pod was removed from the machine that was taken back"), _by_eviction),
    (Rule("rank-of-the-member", Relation.REFINES, "it stands below the heading of one member of the group"), _by_member),
    (Rule("rank-of-the-actor", Relation.REFINES, "the report of the dead actor gives its process"), _by_actor),
    (Rule("rank-that-is-slow", Relation.REFINES, "the comparison of the ranks names one slow rank, and it sits on such a GPU"), _by_comparison),
    (Rule("rank-that-never-came", Relation.REFINES, "one rank alone is missing from the collective, and it struck one host"), _by_absence),
    (Rule("rank-of-the-machine", Relation.REFINES, "the machine that is gone had one rank"), _by_machine),
    (Rule("rank-of-the-only-process", Relation.REFINES, "one process raised, and nothing tells of others"), _by_sole_process),
)  # fmt: skip
"""What tells the rank of a finding that prints none; the first that does is taken."""


def _raised_alone(incident: LogIncident, finding: Finding) -> int | None:
    """The one of several ranks that raised it itself: its traceback is that rank's own."""
    ranks = finding.wholes(Fact.RANKS)
    if not finding.flag(Fact.RAISED) or len(ranks) != 1:
        return None
    # what a comparison of ranks raises is raised by whoever compared
    compares = _COMPARES.search(finding.title) is not None
    return int(str(ranks[0])) if len(incident.ranks_seen) > 1 and not compares else None


_COMPARES = expression(
    r"(?i)\b(?:on all ranks|all ranks|other ranks|ranks? differ|mismatch|does not match|not the same)\b"
)


def _only(ranks: Collection[int]) -> int | None:
    return next(iter(ranks)) if len(ranks) == 1 else None


def _ranks_alike(finding: Finding, findings: Sequence[Finding]) -> set[int]:
    """Ranks that report a cause of this kind themselves, beside others that failed of something else."""
    return {
        f.rank
        for f in findings
        if f.rank is not None
        and f.category is finding.category
        and f.level is Level.CAUSE
        and not f.survived
    }


_ORDER = expression(r"VISIBLE_DEVICES['\"]?\s*[=:]\s*['\"]?\d{1,2}(?:,\s?\d{1,2})+")


def _orders(incident: LogIncident) -> set[str]:
    """The lists of cards that were made visible to the runs in the logs."""
    lines = incident.lines_with(("VISIBLE_DEVICES",))
    return {m[0] for _, _, t in lines if (m := _ORDER.search(t[:1000])) is not None}


def _evicted_rank(incident: LogIncident, findings: Sequence[Finding]) -> int | None:
    """The one rank whose pod was removed from the machine that the cloud took back."""
    removed = {rank_by_place(incident, f) for f in findings if f.has(FindingRole.POD_REMOVED)}
    return next(iter(removed)) if len(removed) == 1 else None


def _rank_of_block(incident: LogIncident, finding: Finding) -> int | None:
    """Rank in whose block of a controller's report all the lines stand: `[Rank 1]`, then what befell it."""
    ranks: set[int | None] = set()
    for evidence in finding.evidence:
        digest = next((d for d in incident.digests if d.file == evidence.file), None)
        text = digest.text_of(evidence.line) if digest is not None else None
        if digest is None or text is None:
            return None
        line = make_line(digest.file, evidence.line, text, digest.year)
        own = (line.place.stream, line.place.pid)
        above = (
            x
            for x in incident.lines_before(line, _MEMBER_LINES)
            if (x.place.stream, x.place.pid) == own
        )
        heads = (x for x in above if x.place.rank is not None)
        head = next(heads, None)
        headed = head is not None and not head.text[head.body :].strip(" :")
        ranks.add(head.place.rank if head is not None and headed else None)
    return next(iter(ranks)) if len(ranks) == 1 else None


def _rank_of_actor(incident: LogIncident, finding: Finding) -> tuple[int | None, Finding]:
    """Rank and host of the actor of whose death Ray reports: its pid and address stand above the reason."""
    for evidence in finding.evidence[:1]:
        digest = next((d for d in incident.digests if d.file == evidence.file), None)
        text = digest.text_of(evidence.line) if digest is not None else None
        if digest is None or text is None:
            continue
        line = make_line(digest.file, evidence.line, text, digest.year)
        rows = [
            m for x in incident.lines_before(line, _MEMBER_LINES) if (m := _ACTOR.search(x.text))
        ]
        told = {m["what"]: m["value"] for m in reversed(rows)}
        host, pid = told.get("ip"), told.get("pid", "")
        process = Place(pid=int(pid) if pid.isdecimal() else None, host=host)
        rank = incident.placement.ranks_of(process).only
        if rank is None and host is not None:
            rank = incident.placement.ranks_of(Place(host=host)).only
        return rank, replace(finding, host=finding.host or host)
    return None, finding


def _host_gone(finding: Finding) -> str | None:
    return finding.host or finding.text(Fact.NODE) or None


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
    if any(t.line.place.task is not None or raised_by_launcher(t) for t in incident.tracebacks):
        return None
    if len(crashes) != 1 or incident.ranks_seen - {0} or incident.hosts_seen or incident.work:
        return None
    reported = {e.rank if e.rank is not None else e.local_rank for e in incident.exits} - {None}
    if len(reported) == 1:
        return reported.pop()
    return 0 if not reported and not incident.has_peers else None
