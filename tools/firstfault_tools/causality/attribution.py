"""On which rank did it happen? Rules for naming one rank, and for naming none.

One rank is named only if the evidence singles it out: it alone said it, or it said it clearly first.
If all (or half) of the ranks say the same at the same time, the fault is in what they share; so it is
where two processes say it, though only one of them gives its rank.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from firstfault_tools.causality.exceptions import wraps_worker
from firstfault_tools.causality.incident import LogIncident
from firstfault_tools.expressions import expression
from firstfault_tools.finding_roles import FindingRole
from firstfault_tools.hardware.host_name import name_host
from firstfault_tools.log.digest import Hit, Line
from firstfault_tools.log.exits import Exit
from firstfault_tools.log.place import NOWHERE, Place
from firstfault_tools.log.prefix import ERROR_CODE, read_prefix
from firstfault_tools.log.traceback import Traceback
from firstfault_tools.placement.table import same_host
from firstfault_tools.roles import Role

CLEARLY_FIRST_S = 5.0
FEW = 4
"""Part of the ranks, as one over this, up to which those who report a fault are few."""

TAIL = 6
"""Lines of one message of several lines (`\\tMissing key(s) ...`) that follow its labelled first line."""

APART_S = 0.1
"""Stamps of hosts with a common clock differ by less than this for what happens at once."""


def attribute_rank(incident: LogIncident, hits: Sequence[Hit]) -> tuple[int | None, Hit]:
    """Rank to blame for a group of hits of one signature (or None), and the hit to quote."""
    ordered = sorted(hits, key=lambda h: first_place(incident, h.line))
    if any(word in h.line.text for h in hits for word in _OF_A_BUILD):
        builders = _builders_of(incident)
        if builders:
            built = next((h for h in ordered if rank_of(incident, h.line) in builders), ordered[0])
            return (builders.pop() if len(builders) == 1 else None), built
    named = [h for h in ordered if h.captures.get("rank", "").isdecimal()]
    return _attribute_named(incident, named) if named else _attribute_labelled(incident, ordered)


def _attribute_labelled(incident: LogIncident, ordered: Sequence[Hit]) -> tuple[int | None, Hit]:
    """The same by the labels of the lines: the only rank, else the one that was first."""
    labelled = [h for h in ordered if rank_of(incident, h.line) is not None]
    ranks = {rank_of(incident, h.line) for h in labelled}
    if len(ranks) < 2 and len(processes_of(ordered)) > 1:
        return None, (labelled or ordered)[0]
    if not ranks:
        return _unlabelled_rank(incident, ordered), ordered[0]
    if len(ranks) > 1:
        lead = labelled[0] if _clearly_first(labelled) else _first_of_few(incident, labelled)
        return (rank_of(incident, lead.line), lead) if lead is not None else (None, ordered[0])
    if any(REPEATED.search(h.line.text) for h in ordered):
        return None, ordered[0]
    return (None if _all_failed_alike(incident) else ranks.pop()), labelled[0]


def _attribute_named(incident: LogIncident, named: Sequence[Hit]) -> tuple[int | None, Hit]:
    """The same for hits that print the rank: the only one, else the one that was first."""
    ranks = {int(h.captures["rank"]) for h in named}
    alone = len(ranks) == 1 or _clearly_first(named)
    lead = named[0] if alone else _ended_first(incident, named)
    return (int(lead.captures["rank"]), lead) if lead is not None else (None, named[0])


_BUILD_FAILED = ("Error building extension",)
_OF_A_BUILD = (
    *_BUILD_FAILED,
    "fatal error: ",
    "ninja: build stopped",
    "nvcc fatal",
    " error: #error",
)


def _builders_of(incident: LogIncident) -> set[int]:
    """Ranks whose own build of an extension failed: the others wait for it and only miss its file."""
    spoken = (read_prefix(text)[0].rank for _, _, text in incident.lines_with(_BUILD_FAILED))
    return {rank for rank in spoken if rank is not None}


def rank_of(incident: LogIncident, line: Line) -> int | None:
    """Rank of a line: its label, else the rank its file belongs to."""
    told = incident.told_ranks.get((line.file, line.number))
    if told is not None:
        return told
    of_task = line.place.task is not None and line.place.rank == line.place.task
    if line.place.rank is not None and not (of_task and incident.placement.tasks_disagree):
        return line.place.rank
    digest = incident.digest_of(line.file)
    place = process_of(replace(line.place.within(digest.name_place), rank=None))
    ranks = incident.placement.ranks_of(place, line.file) if place != NOWHERE else None
    if ranks is not None and ranks.candidates:
        return ranks.only
    tail = line.text.startswith("\t") or ERROR_CODE.match(line.text) is not None
    if tail:
        above = next((x for x in incident.lines_before(line, TAIL) if x.text[:1] != "\t"), None)
        if above is not None and above.place.rank is not None:
            return above.place.rank
    return digest.name_rank if set(digest.ranks) <= {digest.name_rank} else None


def process_of(place: Place) -> Place:
    """The facts that tell one process from the others: not a host alone, nor what a library puts before its lines."""
    if place.pid is not None and not place.stream:
        place = replace(place, pid=None)
    place = replace(place, gpu=None)
    return place if replace(place, host=None, stream="") != NOWHERE else NOWHERE


def processes_of(hits: Sequence[Hit]) -> set[tuple[str | None, int]]:
    """(host, pid) of those who say it as a library labels its lines: NCCL gives its pid and no rank."""
    speakers = (h.line.place for h in hits)
    return {(s.host, s.pid) for s in speakers if s.pid is not None and not s.stream}


def host_of(incident: LogIncident, hits: Sequence[Hit]) -> str | None:
    """The one host of all processes that say the same; None where they sit on several."""
    hosts = {h.line.place.host for h in hits} - {None}
    if not hosts:
        ranks = {r for h in hits if (r := rank_of(incident, h.line)) is not None}
        hosts = {incident.placement.host_of(r) for r in ranks} or _hosts_named(incident, hits)
    return next(iter(hosts)) if len(hosts) == 1 else None


def host_told(lead: Hit, hits: Sequence[Hit]) -> str | None:
    """The host that its line names, else the one that the other lines name."""
    own = lead.captures.get("host")
    told = {own} if own else {name for h in hits if (name := h.captures.get("host"))}
    return next(iter(told)) if len(told) == 1 else None


def _hosts_named(incident: LogIncident, hits: Sequence[Hit]) -> set[str | None]:
    """Hosts whose names stand in those of the saved outputs: what a machine says of itself, not the run's log."""
    files = {h.line.file for h in hits}
    return {name_host(f) if incident.role_of(f) is not Role.RUN else None for f in files}


def first_place(incident: LogIncident, line: Line) -> tuple[int, float, int]:
    """Order of lines that compete for first: by file, time and the start of their traceback."""
    start = next(
        (
            t.start
            for t in incident.tracebacks
            if t.line.file == line.file and t.line.number == line.number
        ),
        line.number,
    )
    files = [d.file for d in incident.digests]
    if len(files) > 1 and line.time is not None:
        return (0, line.time, start)
    return (files.index(line.file) + 1, 0.0, start)


def _clearly_first(ordered: Sequence[Hit]) -> bool:
    """Of several ranks that say the same, one said it well before all others."""
    times: dict[int, float] = {}
    for hit in ordered:
        rank = hit.line.place.rank
        if rank is not None and hit.line.time is not None:
            times.setdefault(rank, hit.line.time)
    stamps = sorted(times.values())
    return len(stamps) >= 2 and stamps[1] - stamps[0] > CLEARLY_FIRST_S


def _first_of_few(incident: LogIncident, labelled: Sequence[Hit]) -> Hit | None:
    """Earliest report by the clock, where a few of many ranks say the same within seconds of each other.

    What strikes all ranks alike has no first; a part of a fabric that breaks is met by its neighbours
    one after the other, and stamps of a fraction of a second tell who met it first.
    """
    first = _first_reports(incident, labelled)
    times = sorted((h.line.time or 0.0, r) for r, h in first.items())
    if len(times) < 2 or not any(t % 1 for t, _ in times):
        return None
    spoken = {
        r for d in incident.digests for h in d.hits if (r := rank_of(incident, h.line)) is not None
    }
    world = max(incident.world_size or 0, *(r + 1 for r in incident.ranks_seen | spoken))
    if FEW * len(first) > world or times[1][0] - times[0][0] < APART_S:
        return None
    return first[times[0][1]]


def _first_reports(incident: LogIncident, labelled: Sequence[Hit]) -> dict[int, Hit]:
    """The earliest report of each rank; none at all where one tells no time of its own."""
    first: dict[int, Hit] = {}
    for hit in labelled:
        rank, time = rank_of(incident, hit.line), hit.line.time
        if time is None and rank is not None and _follows(hit, first.values()):
            continue
        if rank is None or time is None:
            return {}
        if rank not in first or time < (first[rank].line.time or 0.0):
            first[rank] = hit
    return first


def _follows(hit: Hit, others: Iterable[Hit]) -> bool:
    """The line stands behind another of these in its log, so it is not the first of them."""
    line = hit.line
    return any(o.line.file == line.file and o.line.number < line.number for o in others)


def _ended_first(incident: LogIncident, named: Sequence[Hit]) -> Hit | None:
    """The one of several ranks, each with a fault of its own, whose process the launcher saw end first."""
    ends = [e for e in incident.exits if e.code > 0 and e.local_rank is not None]
    if not ends or any("device" not in h.captures for h in named):
        return None
    first = [h for h in named if h.captures["device"] == str(ends[0].local_rank)]
    return first[0] if len({h.captures["rank"] for h in first}) == 1 else None


_LAUNCHER = expression(
    r"deepspeed/launcher/(?!launch\.py)|accelerate/(?:commands|utils)/launch\.py|torch/distributed/(?:run|launch)\.py|horovod/runner/"
)
"""Programs that start ranks and are none themselves."""


def raised_by_launcher(traceback: Traceback) -> bool:
    """The exception is that of the program that starts the ranks."""
    return any(_LAUNCHER.search(f.path) for f in traceback.frames)


ABORTED = 6


def _are_aborts(incident: LogIncident, hits: Sequence[Hit]) -> bool:
    aborts = incident.signatures.with_role(FindingRole.ABORT)
    return any(h.index in aborts for h in hits)


def _all_failed_alike(incident: LogIncident) -> bool:
    """The launcher lists every rank with the plain exit code 1: one was pasted, all raised the same."""
    table = [e for e in incident.exits if e.rank is not None]
    world = max((e.rank or 0 for e in table), default=0) + 1
    waited = any(w.timed_out for w in incident.work)
    if waited or world < 2 or any(e.code != 1 for e in table):
        return False
    return len({e.rank for e in table}) == max(world, incident.world_size or 0)


RAISED_SOON = 8
"""Lines after the words of a tool (a compiler, a loader) in which the rank that ran it raises."""


def _rank_raising_next(incident: LogIncident, line: Line) -> int | None:
    """Rank of the labelled exception that follows unlabelled words at once."""
    after = (
        t
        for t in incident.tracebacks
        if t.line.file == line.file and 0 < t.start - line.number <= RAISED_SOON
    )
    first = min(after, key=lambda t: t.start, default=None)
    return rank_of(incident, first.line) if first is not None else None


REPEATED = expression(r"\[repeated \d{1,6}x across cluster\]")
"""Ray shows one of several processes that said the same."""

WRITTEN_TWICE = expression(r"\b([A-Z]\w{3,40}(?:Error|Exception))\1\b")
"""One line that two processes wrote at the same time: both raised the same."""


def _unlabelled_rank(incident: LogIncident, hits: Sequence[Hit]) -> int | None:
    """Rank of an unlabelled failure: from the launcher's report, or 0 for a run of one process."""
    places = {(h.line.file, h.line.number) for h in hits}
    raised = [t for t in incident.tracebacks if (t.line.file, t.line.number) in places]
    if _raised_by_several(raised) or any(WRITTEN_TWICE.search(h.line.text) for h in hits):
        return None
    if not raised and (next_rank := _rank_raising_next(incident, hits[0].line)) is not None:
        return next_rank
    failed = [e for e in incident.exits if e.signal not in (15, 6) and e.code != 0]
    if _are_of_others(failed, hits):
        return None
    failed = failed or _aborts_that_failed(incident, hits)
    if failed:
        return _rank_of_exits(incident, failed, hits[0].line.file)
    if incident.ranks_seen - {0} or incident.hosts_seen or incident.has_peers:
        return None
    return 0 if _raised_once(incident) else None


def _raised_by_several(raised: Sequence[Traceback]) -> bool:
    """More than one stack ends so, or the launcher's own, which speaks for any of its workers."""
    several = len({(t.line.file, t.line.number) for t in raised}) > 1
    return several or any(raised_by_launcher(t) for t in raised)


def _rank_of_exits(incident: LogIncident, exits: Sequence[Exit], file: str) -> int | None:
    """The one rank of processes that ended, else that of their one local rank."""
    ranks = {e.rank for e in exits if e.rank is not None}
    if ranks:
        return ranks.pop() if len(ranks) == 1 else None
    local_ranks = {e.local_rank for e in exits if e.local_rank is not None}
    return _rank_of_local(incident, local_ranks.pop(), file) if len(local_ranks) == 1 else None


def _are_of_others(exits: Sequence[Exit], hits: Sequence[Hit]) -> bool:
    """The launcher names processes by their pids, and none of them wrote this."""
    speakers = {h.line.place.pid for h in hits}
    if None in speakers:
        return False
    return all(e.pid is not None and e.pid not in speakers for e in exits)


def _aborts_that_failed(incident: LogIncident, hits: Sequence[Hit]) -> list[Exit]:
    """Processes that aborted of themselves: with these words, or alone and without a watchdog."""
    aborted = [e for e in incident.exits if e.signal == ABORTED]
    alone = len(aborted) == 1 and not incident.work
    return aborted if alone or _are_aborts(incident, hits) else []


def _rank_of_local(incident: LogIncident, local: int, file: str) -> int | None:
    """Rank of a local rank: the same number where there is no second node."""
    found = incident.placement.ranks_of(Place(local_rank=local), file).only
    alone = incident.placement.no_second_node and len(incident.hosts_seen) <= 1
    return local if found is None and alone else found


def _raised_once(incident: LogIncident) -> bool:
    """One line ends all stacks that are of the program and were not got over."""
    first = {
        t.line.number
        for t in incident.tracebacks
        if not t.chained and not t.ignored and not wraps_worker(t)
    }
    return len(first) == 1


def of_other_hosts(one: Line, other: Line) -> bool:
    """Two outputs of two hosts: what the one says is not about the device of the other."""
    hosts = [line.place.host or name_host(line.file) for line in (one, other)]
    return one.file != other.file and None not in hosts and not same_host(*map(str, hosts))
