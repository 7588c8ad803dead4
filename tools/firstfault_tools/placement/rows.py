"""Which places of the job's processes do the logs print? Rows of the placement table, read from their lines.

Launchers, NCCL, Ray and the programs each tell a part: torchrun's table has rank, local rank, pid and host;
NCCL's communicator lines have rank, device and PCI address; a prefix has what its launcher put there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from firstfault_tools.expressions import expression
from firstfault_tools.hardware.bus import find_slot
from firstfault_tools.hardware.host_name import name_host
from firstfault_tools.log.digest import FileDigest, Mark
from firstfault_tools.log.place import Place
from firstfault_tools.log.prefix import read_prefix
from firstfault_tools.placement.layout import Layout, read_layout
from firstfault_tools.placement.pods import rank_of_ordinal
from firstfault_tools.placement.rank_table import read_seats
from firstfault_tools.placement.table import MOST_LOCAL, PlacementTable, same_host

if TYPE_CHECKING:
    from firstfault_tools.placement.logs import PlacedLogs

MAX_LINES = 4_000
"""Lines looked at in the head and in the tail of each log: places are told at the start or pasted at the end."""

MAX_PAIRS = 1_024
MAX_LOGS = 64
LABELLED_LINES = 400
"""First lines of each log in which labels of workers are looked for."""

LONGEST = 2_000
ALIKE = 8
"""Lines in succession that tell the same place after which the prefixes of a log of one rank are read no further."""

_TOLD = (
    "rank ", "rank=", "rank:", "Rank ", "RANK", "local", "Local", "LOCAL", "host", "Host", "HOST", "node", "Node", "NODE",
    "gpu", "GPU", "cuda", "device", "Device", "PCI", "bus", "Bus", "->", "rocess",
)  # fmt: skip
"""One of them stands in every line whose text behind the prefix tells of a place."""

_COMM = expression(
    r"(?:^|[\s|:])(?P<host>[A-Za-z][\w.-]*):(?P<pid>\d+):\d+ \[(?P<dev>\d+)\].*?"
    r"\brank (?P<rank>\d+) nranks (?P<n>\d+) cudaDev (?P<cuda>\d+)(?: nvmlDev \d+)? busId (?P<bus>[0-9a-fA-F]+)"
)
_USES = expression(
    r"(?i)rank\W{0,3}(?P<rank>\d+)\D{1,40}?(?:uses? |on |-> |device |gpu )(?:cuda:|gpu |device )?(?P<dev>\d+)\b.{0,80}?\b(?P<bus>[0-9a-f]{2}:[0-9a-f]{2})\.?"
)
_AT_BUS = expression(
    r"(?i)\brank(?: of (?:current|this) process)?[ =:#]{1,3}(?P<rank>\d{1,6})\b.{0,80}?"
    r"\bPCI(?:e|[- _]?bus(?:[- _]?id)?)?[ =:]{1,3}(?P<bus>(?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])"
)
"""A rank that tells the PCI address of its GPU."""

_STARTED = expression(
    r"(?i)\brank[ =:]*(?P<rank>\d+)\b.{0,60}?\bpid[ =:]+(?P<pid>\d+)|\bpid[ =:]+(?P<pid2>\d+)\b.{0,60}?\b(?:global[_ ])?rank(?:_?id)?[ =:]+(?P<rank2>\d+)"
)
_NAME = r"[A-Za-z0-9][\w.-]{1,62}"
_RAY = expression(
    rf"\bip=(?P<host>{_NAME}), pid=(?P<pid>\d+)\) world_rank=(?P<rank>\d+), local_rank=(?P<local>\d+)"
)
_ON_GPU = expression(
    rf"(?i)\brank[ =:]*(?P<rank>\d{{1,6}})[,;: ]+(?:(?:->|=>)\s?)?(?:(?:on|host|node|runs on)[ =:]*)?(?P<host>{_NAME})"
    r"[,;: /]+(?:local[_ ]rank|gpu|cuda|device)[ =:]*(?P<local>\d{1,3})\b"
)
_ON_NODE = expression(
    rf"\b[Rr]ank[ =:]+(?P<rank>\d{{1,6}})[,; ]+(?:Node|node|host|Host|hostname)[ =:]+(?P<host>{_NAME})"
)
_SEAT = expression(
    rf"(?i)\brank\W{{1,8}}(?P<rank>\d{{1,6}}) \(local_rank: (?P<local>\d{{1,3}})\)[, ]{{1,2}}(?:on )?(?:host|node)\W{{1,3}}(?P<host>{_NAME})"
)
"""torchrun's rows of its failure table, where a collector wrote them on one line."""

_OWN_SEAT = expression(
    rf"(?i)(?<![\w.=:-])(?P<host>(?=[\w.-]{{0,60}}\d){_NAME})[,;]? {{1,2}}local[_ ]?rank[ =:]{{1,2}}(?P<local>\d{{1,3}})\b"
)
"""A process that tells its host and its number there."""

_OWN_BUS = expression(
    r"(?i)\b(?:bdf|(?:pci(?:e|[- _]?bus)?|bus)[- _]?(?:id|addr(?:ess)?))[ =:]{1,3}(?P<bus>(?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])\b"
)
"""The PCI address of its GPU, as a process prints it behind its label."""

_OWN_HOST = expression(rf"(?:^|[\s,])host(?:name)?[=:] ?(?P<host>{_NAME})")
"""A rank that tells where it starts."""

_BESIDE = expression(rf"\((?:on )?host[ =:]{{1,2}}(?P<host>{_NAME})\)")
"""A rank that names its host in brackets, behind what befell it."""

_HOST_LIST = expression(
    rf"\b(?:hosts|nodelist|host_list)[=:] ?\[?(?P<hosts>{_NAME}(?:, ?{_NAME}){{1,64}})"
)
"""Hosts of the job, in the order of their ranks."""

_WORLD_INFO = expression(
    rf"['\"](?P<host>{_NAME})['\"]: \[(?P<gpus>\d{{1,3}}(?:, ?\d{{1,3}}){{0,63}})\]"
)
"""Hosts of the job and their GPUs, as DeepSpeed's launcher prints them."""

_TASKS = expression(
    rf"srun: error: (?P<host>{_NAME}): tasks? (?P<tasks>\d[\d,-]{{0,400}}):|"
    rf"\s{{0,6}}\[?(?P<label>\d{{1,6}})(?:\]|:) (?:\[[\d T:.-]{{8,32}}\] )?(?P<own>{_NAME}):\d{{1,8}}:\d{{1,8}} \["
)
"""Tasks that srun ended on a host, and a line of NCCL behind the label of its task."""

_OWN_RANK = expression(r"\W{0,2}(?:global[_ ])?rank[ =:]{1,2}(?P<rank>\d{1,6})\b")
_HOST_WORDS = ("node", "Node", "host", "Host")
"""One of them stands in every line that names a node and its ranks; most lines hold none."""

_NODE_RANKS = expression(
    rf"^\s*(?:\[[^\]]{{0,80}}\]:?\s*)?(?:node|host) (?P<host>{_NAME})\s+(?=rank)"
)
_RANKS = expression(r"\brank\s+(?P<rank>\d{1,6})\b")
_BUS_PAIR = expression(
    r"(?<![\w.:])(?P<rank>\d{1,5})\s?(?:=|:|->)\s?(?:[0-9a-fA-F]{4,8}:)?(?P<bus>[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7])\b"
)
_POD = expression(
    r"^\[?(?:pod/)?(?=[0-9.-]{0,60}[a-z])(?P<base>[a-z0-9][a-z0-9.-]{0,200}?)[-/](?P<index>\d{1,5})(?:(?:/[\w.-]{1,80})?\])?[ :|]"
)
_NODES = expression(r"--nnodes[= ](\S{1,40})|--standalone\b|\bNNODES[=:] ?['\"]?(\d{1,5})\b")
_PER_NODE = expression(
    r"--nproc[_-]per[_-]node[= ](\d{1,3})\b|\bLOCAL_WORLD_SIZE['\"]?[=:] ?['\"]?(\d{1,3})\b"
)


def read_table(incident: PlacedLogs) -> PlacementTable:
    """Placement table of an incident."""
    told = max(incident.printed_ranks, default=-1) + 1
    world = max(incident.world_size, told) if incident.world_size else None
    table = PlacementTable(world=world)
    _read_launch(incident, table)
    _read_communicators(incident, table)
    for e in incident.exits:
        if e.rank is not None:
            table.add(Place(e.rank, e.local_rank, host=e.host, pid=e.pid))
    unranked: set[Place] = set()
    for digest in incident.digests:
        table.locals_seen |= set(digest.locals)
        _read_lines(digest, table, unranked)
        _read_columns(digest, table)
    _judge_labels(incident, table)
    _read_tasks(incident, table)
    for file, text in _choose_words(incident):
        _note_words(table, file, read_layout(text))
    for place in unranked:
        if (rank := table.ranks_of(place).only) is not None:
            table.add(replace(place, rank=rank))
    table.gpus = lambda: incident.gpu_table
    return table


_NOTED = expression(r"(?i)\([^()]{0,60}\b(?:ranks?|node[_ ]?rank)\W{0,3}\d[^()]{0,40}\)")
"""A note in brackets: `a05 (ranks 8-15)`, `(node a05, ranks 8-15)`, `a05 (NODE_RANK=1)`."""

_LAYOUT_WORDS = (
    "node*",
    "node *",
    "nodes ",
    "node_rank",
    "NODE_RANK",
    "node rank ",
    "per node",
    "tasks ",
    "ranks ",
)


def _choose_words(incident: PlacedLogs) -> Iterator[tuple[str, str]]:
    """Lines at the head of a log that may say in words how the ranks are laid out, with the log's name."""
    for digest in incident.digests[:MAX_LOGS]:
        for _, text in digest.kept[:LABELLED_LINES]:
            stated = "->" in text or text.startswith("#") or _NOTED.search(text[:LONGEST])
            if stated and len(text) < LONGEST and any(word in text for word in _LAYOUT_WORDS):
                yield digest.file, text


def _note_words(table: PlacementTable, file: str, layout: Layout) -> None:
    """Take in what a line says; a saved output that tells its own host has it under its file's name, too."""
    if not layout.told:
        return
    table.note_layout(layout)
    if layout.host is not None:
        table.hosts_told[file].add(layout.host)
        alias = name_host(file)
        if alias is not None and not same_host(alias, layout.host):
            table.note_layout(layout.rename(alias))


def _read_launch_lines(
    incident: PlacedLogs, table: PlacementTable
) -> tuple[set[int | None], set[int], set[str]]:
    """(numbers of nodes, of processes on one, lists of hosts) that launch lines give."""
    nodes: set[int | None] = set()
    each: set[int] = set()
    lists: set[str] = set()
    for digest in incident.digests:
        for _, text in digest.marked_lines(Mark.WORLD):
            if (own := _PER_NODE.search(text[:LONGEST])) is not None:
                each.add(int(own[1] or own[2]))
            if "WORLD INFO" in text:
                _note_world(text[:LONGEST], table)
            if (listed := _HOST_LIST.search(text[:LONGEST])) is not None:
                lists.add(listed["hosts"].replace(" ", ""))
            if (told := _NODES.search(text[:LONGEST])) is not None:
                count = told[1] or told[2] or "1"
                nodes.add(int(count) if count.isdecimal() else None)
            elif own is not None and own[1]:  # torchrun starts one node unless it is told more
                nodes.add(1)
    return nodes, each, lists


def _read_launch(incident: PlacedLogs, table: PlacementTable) -> None:
    """Nodes of the job and processes on each, as its launch lines give them; what differs is not known."""
    nodes, each, lists = _read_launch_lines(incident, table)
    if not nodes and any(e.local_rank is not None and e.pid is None for e in incident.exits):
        nodes.add(1)  # torch.multiprocessing.spawn starts processes of one host, and gives no pid
    table.per_node = each.pop() if len(each) == 1 else None
    table.nodes = max((n for n in nodes if n), default=None) if None not in nodes else None
    if table.per_node is None and table.nodes and table.world:
        table.per_node = table.world // table.nodes
    if table.nodes is None and table.per_node and table.world:
        table.nodes = table.world // table.per_node
    if len(lists) == 1:
        _spread_hosts(table, lists.pop().split(","))


def _spread_hosts(table: PlacementTable, hosts: Sequence[str]) -> None:
    """A list of hosts gives each as many ranks in turn, where the size of the job is a multiple of them."""
    each, rest = divmod(table.world or 0, len(hosts))
    if each and not rest and table.per_node in (None, each):
        table.per_node = each
        for index, host in enumerate(hosts):
            table.note_shift(index * each, host, "")


def _note_world(text: str, table: PlacementTable) -> None:
    """First rank of each host, from the launcher's list of hosts and GPUs."""
    first = 0
    for match in _WORLD_INFO.finditer(text):
        count = match["gpus"].count(",") + 1
        for local in range(min(count, MOST_LOCAL)):
            # a launcher that starts one node may not know its name
            host = match["host"] if match["host"] != "localhost" else None
            table.add(Place(first + local, local, host=host))
        first += count


def _read_tasks(incident: PlacedLogs, table: PlacementTable) -> None:
    """Hosts of srun's tasks, where a task is a rank: as srun ends them, and as NCCL names itself behind the label."""
    if not table.tasks_are_ranks:
        return
    for digest in incident.digests:
        for _, text in digest.kept[-MAX_LINES:]:
            if (found := _TASKS.match(text)) is not None:
                told = found["tasks"] or found["label"]
                for task in _numbers_of(told):
                    table.add(Place(task, host=found["host"] or found["own"]))


def _numbers_of(listed: str) -> Iterator[int]:
    """16, 18, 19, 20 of `16,18-20`."""
    for part in listed.split(","):
        first, _, last = part.partition("-")
        if first.isdecimal():
            yield from range(int(first), min(int(last or first), int(first) + MAX_PAIRS) + 1)


def _read_communicators(incident: PlacedLogs, table: PlacementTable) -> None:
    """Rows of NCCL's communicator, launch and device lines; of communicators the largest has the job's ranks."""
    world = 0
    largest: dict[int, Place] = {}
    for digest in incident.digests:
        for _, text in digest.marked_lines(Mark.SEAT):
            if len(text) > LONGEST:
                continue
            if (match := _COMM.search(text)) is not None:
                size = int(match["n"])
                if size > world:  # ranks of smaller communicators are group ranks
                    world, largest = size, {}
                if size == world:
                    rank = int(match["rank"])
                    largest[rank] = Place(rank, host=match["host"], pid=int(match["pid"]), gpu=int(match["cuda"]), pci=find_slot(match["bus"]))  # fmt: skip
            else:
                _read_device_line(text, table)
    for row in largest.values():
        table.add(row)


def _read_device_line(text: str, table: PlacementTable) -> None:
    for match in _STARTED.finditer(text):
        said, pid = match["rank"] or match["rank2"], match["pid"] or match["pid2"]
        table.add(Place(int(said), pid=int(pid) or None))
    if "PCI" in text and "NVRM" not in text and (at := _AT_BUS.search(text)) is not None:
        table.add(Place(int(at["rank"]), pci=find_slot(at["bus"])))
    elif (used := _USES.search(text)) is not None:
        table.add(Place(int(used["rank"]), gpu=int(used["dev"]), pci=find_slot(used["bus"])))


def _choose_lines(digest: FileDigest) -> Iterator[str]:
    kept = digest.kept
    count = len(kept)
    places = (
        [slice(0, count)]
        if count <= 2 * MAX_LINES
        else [slice(0, MAX_LINES), slice(count - MAX_LINES, count)]
    )
    for place in places:
        for _, text in kept[place]:
            if len(text) < LONGEST and ("ank" in text or "RANK" in text or "rocess" in text):
                yield text


def _read_lines(digest: FileDigest, table: PlacementTable, unranked: set[Place]) -> None:
    one = _is_of_one_rank(digest)
    last, alike = None, 0
    for text in _choose_lines(digest):
        if one and alike >= ALIKE and not any(word in text for word in _TOLD):
            continue
        place = _read_line(text, digest, table, unranked)
        alike = alike + 1 if place == last else 0
        last = place


def _read_columns(digest: FileDigest, table: PlacementTable) -> None:
    """Hosts of ranks by the columns of a table, where it gives each rank one host."""
    seats: dict[int, set[str]] = {}
    for rank, host in read_seats(
        text for _, text in digest.kept[:MAX_LINES] if len(text) < LONGEST
    ):
        seats.setdefault(rank, set()).add(host)
    if len(seats) > 1 and all(len(hosts) == 1 for hosts in seats.values()):
        for rank, (host,) in seats.items():
            table.ranks_on[host].add(rank)


def _is_of_one_rank(digest: FileDigest) -> bool:
    """One rank speaks in the whole log."""
    alone = len(digest.ranks) == 1 or (not digest.ranks and digest.name_rank is not None)
    return alone and not digest.locals


def _read_line(
    text: str, digest: FileDigest, table: PlacementTable, unranked: set[Place]
) -> Place | None:
    """The place that the line's prefix tells; it and what the text behind it tells are noted."""
    if "world_rank=" in text and (ray := _RAY.search(text)) is not None:
        table.add(Place(int(ray["rank"]), int(ray["local"]), host=ray["host"], pid=int(ray["pid"])))
        return None
    place, body = read_prefix(text)
    if place.rank is None and place.host and (own := _OWN_RANK.match(text, body)) is not None:
        table.ranks_on[place.host].add(int(own["rank"]))
    if place.rank is not None or place.task is not None:
        place = _seat_of(place, text, body)
    if place.rank is not None:
        _add_prefix(place, digest, table)
    elif place.host and place != Place(host=place.host) and len(unranked) < MAX_PAIRS:
        unranked.add(place)
    if (pod := _POD.match(text)) is not None and (rank := find_rank(text)) is not None:
        table.pods[pod["base"], int(pod["index"])].add(rank)
    _read_gpus(text, table)
    if "local_rank: " in text and (seat := _SEAT.search(text)) is not None:
        table.add(Place(int(seat["rank"]), int(seat["local"]), host=seat["host"]), digest.file)
    if any(word in text for word in _HOST_WORDS):
        _read_hosts(text, table)
    return place


def _read_hosts(text: str, table: PlacementTable) -> None:
    """Ranks beside the name of their host."""
    for match in _ON_NODE.finditer(text):
        table.ranks_on[match["host"]].add(int(match["rank"]))
    if (node := _NODE_RANKS.match(text)) is not None:
        table.ranks_on[node["host"]] |= {int(m["rank"]) for m in _RANKS.finditer(text)}


def _read_gpus(text: str, table: PlacementTable) -> None:
    """Ranks beside the GPU or the local rank of their host, and lists of ranks and addresses."""
    for match in _ON_GPU.finditer(text):
        if any(c.isdecimal() for c in match["host"]) and not match["host"].isdecimal():
            index, local = int(match["local"]), "local" in match[0].lower()
            row = Place(int(match["rank"]), host=match["host"])
            table.add(replace(row, local_rank=index) if local else replace(row, gpu=index))
    pairs = _BUS_PAIR.findall(text) if text.count(":") > 1 else []
    if len(pairs) > 1:
        for rank, bus in pairs:
            table.add(Place(int(rank), pci=find_slot(bus)))


def _seat_of(place: Place, text: str, body: int) -> Place:
    """The place with what the labelled words tell of themselves: host, local rank, address of the GPU."""
    if "ocal" in text and (seat := _OWN_SEAT.search(text, body)) is not None:
        told = Place(local_rank=int(seat["local"]), host=seat["host"])
        bus = _OWN_BUS.search(text, body)
        return place.within(replace(told, pci=find_slot(bus["bus"])) if bus is not None else told)
    if place.rank is not None and not place.host and "host" in text:
        found = _OWN_HOST.search(text, body) or _BESIDE.search(text, body)
        return replace(place, host=found["host"]) if found is not None else place
    return place


def _add_prefix(place: Place, digest: FileDigest, table: PlacementTable) -> None:
    """What the prefix of a line tells of its rank: host, local rank, node, and the pid of an actor."""
    if place.host and len(table.ranks_on) < MAX_PAIRS:
        table.ranks_on[place.host].add(int(str(place.rank)))
    if place.pid is not None and not place.stream:
        place = Place(place.rank, place.local_rank, place.node_rank, host=place.host)
    if place.task is not None and place.task != place.rank:
        table.tasks_disagree = True
    told = (place.local_rank, place.node_rank, place.pid, place.pci)
    if any(fact is not None for fact in told) and place not in table.rows[-MAX_PAIRS:]:
        table.add(place, digest.file)


def _judge_labels(incident: PlacedLogs, table: PlacementTable) -> None:
    """Whether numbers that a launcher put in front of lines are ranks of the job."""
    hits = [h.line.place for d in incident.digests for h in d.hits]
    raised = [t.line.place for t in incident.tracebacks]
    _judge_tasks(incident, table, hits, raised)
    _judge_locals(table, [*hits, *raised])
    if not incident.printed_ranks:
        table.label_ranks = _read_pods(incident)


def _judge_tasks(
    incident: PlacedLogs, table: PlacementTable, hits: Sequence[Place], raised: Sequence[Place]
) -> None:
    """Tasks of srun are ranks where each is one process and no line says otherwise."""
    tasks = [p for p in hits if p.task is not None]
    both = [p for p in tasks if p.rank is not None]
    labels = {p.task for p in tasks if p.task is not None}
    table.tasks_seen = labels | {p.task for p in raised if p.task is not None}
    launched = any(e.local_rank is not None for e in incident.exits)
    if not (launched or table.tasks_disagree) and all(p.task == p.rank for p in both):
        ended = any(e.task in labels for e in incident.exits if e.task)
        table.tasks_are_ranks = bool(both) or len(labels) > 1 or ended


def _judge_locals(table: PlacementTable, places: Sequence[Place]) -> None:
    """Local ranks are ranks where they count further than a node has GPUs."""
    on_hosts = [p for p in places if p.host is not None and p.local_rank is not None]
    agreed = all(p.rank in (None, p.local_rank) for p in on_hosts)
    table.locals_are_ranks = agreed and any((p.local_rank or 0) >= MOST_LOCAL for p in on_hosts)


def _read_pods(incident: PlacedLogs) -> dict[str, int]:
    """Ranks of several pods whose names are in front of lines, by their ordinals."""
    heads = (t for d in incident.digests for _, t in d.kept[:LABELLED_LINES] if "-" in t[:80])
    names = {pod for t in heads if (pod := read_prefix(t)[0].pod) is not None}
    ranks = {name: rank_of_ordinal(incident, name) for name in names if len(names) > 1}
    return {name: rank for name, rank in ranks.items() if rank is not None}


_LABEL = expression(
    r"\[rank(\d{1,6})\]|\[[Rr]ank (\d{1,6})\]|\bRank (\d{1,6})\] |[\s|Z]rank[ =](\d{1,6}): |"
    r"(?<![\w.])rank=(\d{1,6})[ ,]{1,2}(?:world|local)|\b[Pp]rocess (\d{1,6})(?::| of \d)|\bprocess_index[=:] ?(\d{1,6})\b|(?<![\w$])(?:GLOBAL_)?RANK[=:] ?['\"]?(\d{1,6})\b"
)


def find_rank(text: str) -> int | None:
    """Rank label anywhere near the start of a line that a pod's name begins."""
    match = _LABEL.search(text[:300])
    return int(next(g for g in match.groups() if g)) if match is not None else None
