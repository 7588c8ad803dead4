"""Which rank is it? One table of all that is known of the job's processes, asked by any fact about one.

A row is a place of which the rank is known: from a line's prefix, a launcher's table, NCCL's communicator
lines, a listing (rows.py). What a question leaves open stays open: several candidates are no rank.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from copy import copy
from dataclasses import field
from typing import Protocol, TypeVar

from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.hardware.bus import find_slot
from firstfault_tools.log.place import Place
from firstfault_tools.placement.layout import Layout, number_from

T = TypeVar("T")
MOST_LOCAL = 16
"""Ranks of the largest host: GPUs of an HGX or DGX node with one process each (16 in a DGX-2)."""

USUAL_LOCAL = 8
"""Ranks of a usual host: GPUs of an HGX, DGX or MI300X node. More than that are two hosts, unless labels say else."""


class GpuListing(Protocol):
    """What nvidia-smi, the kernel and launchers list of the GPUs and processes of one host."""

    indices: dict[str, set[int]]
    named: set[str]

    def index_at(self, bus: str) -> int | None:
        """Index of the GPU at an address."""

    def local_rank_on(self, index: int) -> int | None:
        """Local rank of the process on a GPU."""

    def turn_at(self, bus: str) -> int | None:
        """Its place among all that were named."""

    def pid_at(self, bus: str) -> int | None:
        """The process on it."""

    def rank_at(self, bus: str) -> int | None:
        """The rank on it."""

    def rank_of_pid(self, pid: int) -> int | None:
        """Rank of a process."""


_POD = expression(r"(?P<base>.{1,253})-(?P<index>\d{1,5})")
_ADDRESS_NAME = expression(r"(?i)^ip-(\d{1,3})-(\d{1,3})-(\d{1,3})-(\d{1,3})(?:\.|$)")
"""Host names that a cloud makes of the address."""


def shorten_host(name: str) -> str:
    """One spelling of a host: its short name in small letters, an address as a whole."""
    if (match := _ADDRESS_NAME.match(name)) is not None:
        name = ".".join(match.groups())
    if name[:1].isdecimal() and name.count(".") == 3:
        return name
    return name.split(".")[0].lower()


def same_host(one: str, other: str) -> bool:
    """Whether two names mean one host: short or full name; addresses only as a whole."""
    return shorten_host(one) == shorten_host(other)


@dataclass(frozen=True, slots=True)
class Ranks:
    """Ranks that a place may stand for, and what says so."""

    candidates: frozenset[int] = frozenset()
    reason: str = ""

    @property
    def only(self) -> int | None:
        """The rank, where there is but one candidate."""
        return next(iter(self.candidates)) if len(self.candidates) == 1 else None


@dataclass(slots=True)
class PlacementTable:
    """Processes of one job.

    rows: places with a rank. nodes, per_node: hosts of the job and processes on each, where told.
    shifts: of a host or a log of one host, the rank of its first process. world: ranks of the job.
    tasks_are_ranks, locals_are_ranks: launcher's labels count over the whole job, one process each.
    label_ranks: ranks by the names of workers that are one process each. order: hosts by node number, as told.
    hosts_told: hosts that a note in a log names with their place.
    """

    rows: list[Place] = field(default_factory=list)
    ranks_on: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))
    pods: dict[tuple[str, int], set[int]] = field(default_factory=lambda: defaultdict(set))
    shifts: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))
    world: int | None = None
    nodes: int | None = None
    per_node: int | None = None
    tasks_are_ranks: bool = False
    tasks_disagree: bool = False
    """A task printed another rank than its number: one launcher a node, whose numbers are no ranks."""

    locals_are_ranks: bool = False
    label_ranks: dict[str, int] = field(default_factory=dict)
    order: dict[str, int] = field(default_factory=dict)
    hosts_told: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    gpus: Callable[[], GpuListing] | None = None
    """Listings of GPUs, read where a place has an address or a process id that no row knows."""

    locals_seen: set[int] = field(default_factory=set)
    tasks_seen: set[int] = field(default_factory=set)

    def add(self, row: Place, file: str = "") -> None:
        """Take in a place of which the rank is known; file: the log whose lines all come from one host."""
        if row.rank is None:
            return
        self.rows.append(row)
        if row.host:
            self.ranks_on[row.host].add(row.rank)
        if row.local_rank is not None:
            self.note_shift(row.rank - row.local_rank, row.host, file)

    def note_shift(self, shift: int, host: str | None, file: str) -> None:
        """Note the rank of the first process of a host, as one of its processes shows it."""
        for node in ({shorten_host(host)} if host else set()) | ({f"/{file}"} if file else set()):
            self.shifts[node].add(shift)

    def note_layout(self, layout: Layout) -> None:
        """Take in what was said of the layout of the ranks; what the logs themselves show is kept."""
        each = self.per_node = self.per_node or layout.per_node
        for host, (first, last) in layout.spans.items():
            self.note_shift(first, host, "")
            self.ranks_on[host] |= set(range(first, last + 1))
        self.order |= layout.order
        if each is None or not self.order:
            return
        for host in (*self.order, *self.ranks_on):
            node = number_from(host, self.order)
            own = self._ranks_of_host(host)
            if node is not None and own <= set(range(node * each, (node + 1) * each)):
                self.note_shift(node * each, host, "")

    def with_layout(self, layout: Layout) -> PlacementTable:
        """This table and what was said of the layout."""
        told = copy(self)
        told.shifts = defaultdict(set, {h: set(s) for h, s in self.shifts.items()})
        told.ranks_on = defaultdict(set, {h: set(r) for h, r in self.ranks_on.items()})
        told.order = dict(self.order)
        told.note_layout(layout)
        return told

    def host_told(self, file: str) -> str | None:
        """The one host that a saved output names as its own, in a note with its place."""
        return only(self.hosts_told.get(file, ()))

    def node_told(self, host: str) -> int | None:
        """Number of a host's node, as a note or a person tells it."""
        return only(n for h, n in self.order.items() if same_host(h, host))

    def ranks_of(self, place: Place, file: str = "", gpus: int | None = None) -> Ranks:
        """Candidates for the rank of a place, by the best fact it has; none beyond the size of the job.

        file: the log it stands in, of one host. gpus: GPUs of its host, where known.
        """
        if place.rank is not None:
            return Ranks(frozenset({place.rank}), "its rank is printed")
        best = Ranks()
        for found in self._deduce(place, file, gpus):
            inside = frozenset(r for r in found.candidates if self.world is None or r < self.world)
            if len(inside) == 1:
                return Ranks(inside, found.reason)
            best = best if best.candidates or not inside else Ranks(inside, found.reason)
        return best

    def _deduce(self, place: Place, file: str, gpus: int | None) -> Iterator[Ranks]:
        """What each fact of a place says, the surest first."""
        host = place.host
        if place.task is not None and self.tasks_are_ranks:
            yield Ranks(frozenset({place.task}), "every task of the launcher is one rank")
        if place.local_rank is not None:
            yield from self._of_local(place, place.local_rank, file)
        if place.pid is not None:
            yield from self._of_pid(host, place.pid)
        if place.pci is not None:
            slot = find_slot(place.pci)
            yield Ranks(self._of_rows(host, pci=slot), "a rank gave this PCI address")
        if place.gpu is not None:
            yield as_one(self.by_gpu(host, place.gpu, gpus), "its host and GPU are of this rank")
        if place.pci is not None and self.gpus is not None:
            yield from self._of_listing(self.gpus(), place.pci, host)
        if place.node_rank is not None and self._nodes_are_ranks():
            yield Ranks(frozenset({place.node_rank}), "every node has one process")
        if place.pod is not None or place.replica is not None:
            name = place.pod or f"{place.stream}-{place.replica}"
            yield as_one(self.label_ranks.get(name), "every worker is one process")
            yield as_one(self.by_pod(name), "the members of the job are numbered by rank")
        if place == Place(host=host) and host:
            yield as_one(self.by_host(host), "its host has this rank alone")

    def _of_pid(self, host: str | None, pid: int) -> Iterator[Ranks]:
        yield Ranks(self._of_rows(host, pid=pid), "a line gives the rank of its process")
        yield as_one(self._in_turn(host, pid), "the workers of its host have numbers in turn")
        if self.gpus is not None:
            yield as_one(self.gpus().rank_of_pid(pid), "its launcher started it in this turn")

    def _in_turn(self, host: str | None, pid: int) -> int | None:
        """Rank of a process whose launcher started its workers one after the other, as the ids of two others show."""
        seats = [
            (r.rank, r.local_rank, r.pid)
            for r in self.rows
            if r.rank is not None and r.local_rank is not None and r.pid is not None
            and (self.no_second_node if host is None or r.host is None else same_host(r.host, host))
        ]  # fmt: skip
        base = only(own - local for _, local, own in seats)
        first = only(rank - local for rank, local, _ in seats)
        if base is None or first is None or len({own for _, _, own in seats}) < 2:
            return None
        local = pid - base
        return first + local if 0 <= local < (self.per_node or USUAL_LOCAL) else None

    def _of_local(self, place: Place, local: int, file: str) -> Iterator[Ranks]:
        host = place.host
        told = self._of_seat(host, local) if host else frozenset()
        if len(told) == 1:
            yield Ranks(told, f"rank and local rank stand together for {host}")
        shifts = self.shifts.get(shorten_host(host) if host else f"/{file}", set())
        yield Ranks(frozenset(s + local for s in shifts), "other processes of its host give both")
        if place.node_rank is not None and self.per_node:
            rank = place.node_rank * self.per_node + local
            yield as_one(rank, f"node {place.node_rank} of {self.per_node} processes each")
        if self.one_node or self.locals_are_ranks:
            yield as_one(local, "the job has one node")
        yield as_one(self.by_gpu(host, local, self.per_node), "its host has a whole block of ranks")
        if self.world and self.per_node and self.world // self.per_node <= MOST_NODES:
            every = range(local, self.world, self.per_node)
            yield Ranks(frozenset(every), f"local rank {local} of every node")

    def _of_listing(self, gpus: GpuListing, address: str, host: str | None) -> Iterator[Ranks]:
        """Ranks at a PCI address by what nvidia-smi, the kernel and launchers list."""
        pid, index = gpus.pid_at(address), gpus.index_at(address)
        seat = gpus.local_rank_on(index) if index is not None else None
        if pid is not None:
            yield Ranks(self._of_rows(host, pid=pid), "its process was seen on this GPU")
        yield as_one(gpus.rank_at(address), "a listing gives the index at this PCI address")
        if index is not None and seat is not None:
            count = max(len(gpus.indices), len(gpus.named))
            rank = self.by_gpu(host, seat, count if self._fills(host, count) else None)
            yield as_one(rank, "its host and GPU are of this rank")
        elif (
            index is None
            and (turn := gpus.turn_at(address)) is not None
            and self._fills(host, len(gpus.named))
        ):
            rank = self.by_gpu(host, turn, len(gpus.named))
            yield as_one(
                rank,
                "all GPUs of its host were named, and they count in the order of their addresses",
            )

    @property
    def one_node(self) -> bool:
        """What was printed says that all ranks sit on one host: its size is the world size."""
        if not self.no_second_node:
            return False
        if self.nodes is not None:
            return self.nodes == 1
        whole = self.per_node or len(self.locals_seen)
        return self.world is not None and self.world <= whole

    @property
    def no_second_node(self) -> bool:
        """Nothing speaks of another host: what a launcher says of its own workers may be of the whole job."""
        begin = set().union(*self.shifts.values())
        small = self.world is None or self.world <= max(USUAL_LOCAL, len(self.locals_seen))
        return self.nodes in (None, 1) and small and begin <= {0} and len(self.ranks_on) < 2

    def _nodes_are_ranks(self) -> bool:
        """One process on each node: lines that give both numbers agree, or there are as many."""
        both = [r for r in self.rows if r.node_rank is not None]
        if any(r.rank != r.node_rank for r in both) or any(r.local_rank for r in self.rows):
            return False
        numbers = {r.node_rank for r in both}
        return self.per_node == 1 or len(numbers) > 1 or self.world == self.nodes is not None

    def _of_rows(self, host: str | None, **facts: int | str) -> frozenset[int]:
        """Ranks of the rows with these facts, on this host where both name one."""
        return frozenset(
            r.rank
            for r in self.rows
            if r.rank is not None
            and all(getattr(r, name) == value for name, value in facts.items())
            and (not host or not r.host or same_host(r.host, host))
        )

    def _of_seat(self, host: str, index: int) -> frozenset[int]:
        """Ranks with this local rank on a host, else those on the GPU of this index."""
        return self._of_rows(host, local_rank=index) or self._of_rows(host, gpu=index)

    def by_gpu(self, host: str | None, index: int, gpus: int | None) -> int | None:
        """Rank on GPU `index` of `host`; gpus: GPUs of that host where known."""
        if host is None:
            return None
        rank = only(self._of_seat(host, index))
        if rank is not None:
            return rank
        shift = self._shift_of_seats(host)
        if shift is not None:
            return index + shift
        first = self._first_of(host, gpus)
        if first is not None:
            return first + index if index < (gpus or self.per_node or 0) else None
        if not gpus and self.world and self.world % max(1, len(self.ranks_on)) == 0:
            gpus = self.world // max(1, len(self.ranks_on))
        base = self._base_of_block(host, gpus or 0)
        return base + index if base is not None and index < (gpus or 0) else None

    def _shift_of_seats(self, host: str) -> int | None:
        """What its rank is above its GPU, alike in all rows of a host that give both."""
        seats = [r for r in self.rows if r.gpu is not None and r.host and same_host(r.host, host)]
        return only((r.rank or 0) - (r.gpu or 0) for r in seats) if len(seats) > 1 else None

    def _base_of_block(self, host: str, gpus: int) -> int | None:
        """The first of the block of ranks in which all ranks of a host are, and no other host's."""
        own = self._ranks_of_host(host)
        if not own or not 0 < gpus <= MOST_LOCAL:  # else hosts are missing here
            return None
        base = min(own) // gpus * gpus
        block = set(range(base, base + gpus))
        others = {r for h, ranks in self.ranks_on.items() if not same_host(h, host) for r in ranks}
        return base if own <= block and not others & block else None

    def seat_of(self, rank: int) -> int | None:
        """Local number of a rank: its GPU or local rank, as a row gives them."""
        rows = [r for r in self.rows if r.rank == rank]
        local = only(r.local_rank for r in rows if r.local_rank is not None)
        return only(r.gpu for r in rows if r.gpu is not None) if local is None else local

    def _first_of(self, host: str, gpus: int | None = None) -> int | None:
        """Rank of the first process of a host, as its other processes, a list or a person tells it.

        gpus: GPUs of each host, all in the job: then the number of the node tells it, too.
        """
        first = only(self.shifts.get(shorten_host(host), ()))
        if first is None and (each := gpus or self.per_node):
            node = self.node_told(host)
            first = node * each if node is not None and node * each < (self.world or 0) else None
        if first is None:
            first = self._first_left(host)
        return first if first is not None and first >= 0 else None

    def _first_left(self, host: str) -> int | None:
        """First rank of the one host that is left, where every other host of the job tells its own."""
        each, nodes = self.per_node, self.nodes
        if not each or not nodes or nodes < 2 or shorten_host(host) in self.shifts:
            return None
        starts = [only(s) for node, s in self.shifts.items() if not node.startswith("/")]
        left = {node * each for node in range(nodes)} - set(starts)
        return left.pop() if len(starts) == nodes - 1 and len(left) == 1 else None

    def _fills(self, host: str | None, count: int) -> bool:
        """The host has one rank for each of so many GPUs: they are all in the job.

        Where nothing counts its ranks, the first of them and the size of the job are multiples of the GPUs.
        """
        if not 1 < count <= MOST_LOCAL:
            return False
        own = self._ranks_of_host(host) if host else set()
        if self.per_node or (own and count == len(own)):
            return count == (self.per_node or len(own))
        first = self._first_of(host, count) if host else None
        whole = self.world is not None and self.world > count and self.world % count == 0
        return whole and first is not None and first % count == 0

    def by_host(self, host: str) -> int | None:
        """The one rank of a host, where every rank of the job is placed, or each seen has a host of its own."""
        own = self._ranks_of_host(host)
        placed = {r for ranks in self.ranks_on.values() for r in ranks}
        alone = all(len(ranks) == 1 for ranks in self.ranks_on.values())
        whole = alone if self.world is None else len(placed) >= self.world
        return only(own) if whole and len(self.ranks_on) > 1 else None

    def by_exclusion(self, host: str) -> int | None:
        """The one rank without a place, where every other rank has a host of its own and none is this one."""
        placed = [r for ranks in self.ranks_on.values() for r in ranks]
        alone = all(len(ranks) == 1 for ranks in self.ranks_on.values())
        if self.world is None or not alone or self._ranks_of_host(host) or len(placed) < 2:
            return None
        return only(set(range(self.world)) - set(placed))

    def by_pod(self, pod: str) -> int | None:
        """Rank of a pod: what it wrote, else its number where all its siblings follow one rule."""
        match = _POD.fullmatch(pod)
        if match is None:
            return None
        base, index = match["base"], int(match["index"])
        known = {i: r for (b, i), r in self.pods.items() if b == base}
        if index in known:
            return only(known[index])
        if len(known) < 2 or any(len(r) != 1 for r in known.values()):
            return None
        shift = only(next(iter(ranks)) - i for i, ranks in known.items())
        return index + shift if shift is not None else None

    def place_of(self, rank: int) -> Place:
        """All that is known of a rank; facts on which rows differ are left out."""
        rows = [r for r in self.rows if r.rank == rank] or self._infer(rank)
        hosts = {shorten_host(r.host): r.host for r in rows if r.host}
        hosts = hosts or {
            shorten_host(h): h
            for h, ranks in self.ranks_on.items()
            if rank in ranks and any(c.isdecimal() for c in h)  # a level before a label is no host
        }
        host = next(iter(hosts.values())) if len(hosts) == 1 else None
        local = only(r.local_rank for r in rows if r.local_rank is not None)
        return Place(
            rank=rank,
            local_rank=self._in_block(rank, host) if local is None and host else local,
            host=host,
            pid=only(r.pid for r in rows if r.pid is not None),
            pci=next((r.pci for r in rows if r.pci), None),
        )

    def _in_block(self, rank: int, host: str) -> int | None:
        """Place of a rank among those of its host, where the hosts share out all ranks in whole blocks."""
        blocks = [ranks for ranks in self.ranks_on.values() if ranks]
        own = self._ranks_of_host(host)
        size = len(own)
        if len(blocks) < 2 or self.world != size * len(blocks) or not 1 < size <= MOST_LOCAL:
            return None
        whole = all(len(b) == size and max(b) - min(b) == size - 1 for b in blocks)
        return rank - min(own) if whole else None

    def _infer(self, rank: int) -> list[Place]:
        """Place of a rank that no row has: on the host whose ranks begin before it and end behind it."""
        seats = (r.gpu if r.local_rank is None else r.local_rank for r in self.rows)
        width = self.per_node or max((seat or 0 for seat in seats), default=0) + 1
        starts = {host: self._shift_of_seats(host) for host in self.ranks_on}
        starts |= {node: only(s) for node, s in self.shifts.items() if not node.startswith("/")}
        return [
            Place(rank, rank - start, host=node)
            for node, start in starts.items()
            if start is not None and start <= rank < start + width
        ]

    def host_of(self, rank: int) -> str | None:
        """Host of a rank, as first told."""
        return next((r.host for r in self.rows if r.rank == rank and r.host), None)

    def _ranks_of_host(self, host: str) -> set[int]:
        return {r for h, ranks in self.ranks_on.items() if same_host(h, host) for r in ranks}


MOST_NODES = 1_024


def as_one(rank: int | None, reason: str) -> Ranks:
    """One candidate, or none."""
    return Ranks(frozenset({rank}), reason) if rank is not None else Ranks()


def only(numbers: Iterable[T]) -> T | None:
    """The number or name, where all are the same one."""
    found = set(numbers)
    return found.pop() if len(found) == 1 else None
