"""Which process is which rank, on which host and GPU? Pieces from many lines put together.

Launchers, NCCL and the kernel each tell a part: torchrun's table has rank, local rank, pid and host;
NCCL's communicator lines have rank, device and PCI bus id; the kernel has pid or bus id only.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from firstfault_tools.expressions import expression
from firstfault_tools.hardware.bus import find_slot
from firstfault_tools.log.exits import Exit

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


@dataclass(frozen=True, slots=True)
class Seat:
    """One process's place; unknown parts are None."""

    rank: int
    host: str | None = None
    local_rank: int | None = None
    pid: int | None = None
    bus: str | None = None


@dataclass(slots=True)
class Roster:
    """Look-up of ranks by pid, bus id and host with local rank."""

    seats: list[Seat] = field(default_factory=list)

    def by_pid(self, pid: int, host: str | None = None) -> int | None:
        return self._only(
            s.rank
            for s in self.seats
            if s.pid == pid and (not host or not s.host or same_host(s.host, host))
        )

    def by_bus(self, bus: str, host: str | None = None) -> int | None:
        wanted = find_slot(bus)
        return self._only(
            s.rank
            for s in self.seats
            if s.bus == wanted and (not host or not s.host or same_host(s.host, host))
        )

    def by_local_rank(self, local_rank: int, host: str | None) -> int | None:
        return self._only(
            s.rank
            for s in self.seats
            if s.local_rank == local_rank and (not host or not s.host or same_host(s.host, host))
        )

    def host_of(self, rank: int) -> str | None:
        return next((s.host for s in self.seats if s.rank == rank and s.host), None)

    def bus_of(self, rank: int) -> str | None:
        return next((s.bus for s in self.seats if s.rank == rank and s.bus), None)

    @staticmethod
    def _only(ranks: Iterable[int]) -> int | None:
        found = set(ranks)
        return found.pop() if len(found) == 1 else None


_ADDRESS_NAME = expression(r"(?i)^ip-(\d{1,3})-(\d{1,3})-(\d{1,3})-(\d{1,3})(?:\.|$)")
"""Host names that a cloud makes of the address."""


def same_host(one: str, other: str) -> bool:
    """Whether two names mean one host: short or full name; addresses only as a whole."""
    one, other = (
        ".".join(m.groups()) if (m := _ADDRESS_NAME.match(name)) is not None else name
        for name in (one, other)
    )
    if one[:1].isdecimal() and one.count(".") == 3:
        return one == other
    return one.split(".")[0].lower() == other.split(".")[0].lower()


def read_roster(lines: Iterable[tuple[int, str]], exits: Iterable[Exit]) -> Roster:
    """Roster from NCCL communicator lines, launch lines and torchrun's failure table."""
    roster = Roster()
    world = 0
    largest: dict[int, Seat] = {}
    for _, text in lines:
        if len(text) > 2000:
            continue
        match = _COMM.search(text)
        if match is not None:
            size = int(match["n"])
            if size > world:  # ranks of smaller communicators are group ranks
                world, largest = size, {}
            if size == world:
                rank = int(match["rank"])
                largest[rank] = Seat(rank, match["host"], int(match["cuda"]), int(match["pid"]), find_slot(match["bus"]))  # fmt: skip
            continue
        for match in _STARTED.finditer(text):
            said, pid = match["rank"] or match["rank2"], match["pid"] or match["pid2"]
            roster.seats.append(Seat(int(said), pid=int(pid)))
        if "PCI" in text and "NVRM" not in text and (at := _AT_BUS.search(text)) is not None:
            roster.seats.append(Seat(int(at["rank"]), bus=find_slot(at["bus"])))
            continue
        match = _USES.search(text)
        if match is not None:
            roster.seats.append(
                Seat(
                    int(match["rank"]),
                    local_rank=int(match["dev"]),
                    bus=find_slot(match["bus"]),
                )
            )
    roster.seats += largest.values()
    roster.seats += [Seat(e.rank, e.host, e.local_rank, e.pid) for e in exits if e.rank is not None]
    return roster
