"""Which rank sits on a host, a GPU or a pod that a finding names, where no line says it outright?

The roster (roster.py) knows seats that one line spells out. Here seats are put together: ranks that
speak with a host in front, tables of ranks and PCI addresses, and the count of GPUs on a host.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from firstfault_tools.causality.seats.roster import Roster, Seat, same_host
from firstfault_tools.expressions import expression
from firstfault_tools.hardware.bus import find_slot
from firstfault_tools.log.digest import FileDigest
from firstfault_tools.log.speaker import read_speaker

MAX_LINES = 4_000
"""Lines looked at in the head and in the tail of each log: seats are told at the start or pasted at the end."""

MAX_PAIRS = 1_024

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
_OWN_RANK = expression(r"\W{0,2}(?:global[_ ])?rank[ =:]{1,2}(?P<rank>\d{1,6})\b")
_NODE_RANKS = expression(rf"^\s*(?:\[[^\]]*\]:?\s*)?(?:node|host) (?P<host>{_NAME})\s+(?=rank)")
_RANKS = expression(r"\brank\s+(?P<rank>\d{1,6})\b")
_BUS_PAIR = expression(
    r"(?<![\w.:])(?P<rank>\d{1,5})\s?(?:=|:|->)\s?(?:[0-9a-fA-F]{4,8}:)?(?P<bus>[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7])\b"
)
_POD = expression(
    r"^\[?(?:pod/)?(?P<base>[a-z0-9][a-z0-9.-]{0,200}?)-(?P<index>\d{1,5})(?:(?:/[\w.-]+)?\])?[ :|]"
)


@dataclass(slots=True)
class Seating:
    """Ranks by host and by pod.

    ranks_on: all ranks seen on a host. pods: (base name, index) of a pod to its rank.
    """

    roster: Roster
    ranks_on: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))
    pods: dict[tuple[str, int], set[int]] = field(default_factory=lambda: defaultdict(set))
    world: int | None = None

    def by_gpu(self, host: str | None, index: int, gpus: int | None) -> int | None:
        """Rank on GPU `index` of `host`; gpus: GPUs of that host where known."""
        if host is None:
            return None
        rank = self.roster.by_local_rank(index, host)
        if rank is not None:
            return rank
        own = self._ranks_of(host)
        if not gpus and self.world and self.world % max(1, len(self.ranks_on)) == 0:
            gpus = self.world // max(1, len(self.ranks_on))
        if not own or not gpus or index >= gpus:
            return None
        base = min(own) // gpus * gpus
        block = set(range(base, base + gpus))
        others = {r for h, ranks in self.ranks_on.items() if not same_host(h, host) for r in ranks}
        if not own <= block or others & block:
            return None
        return base + index

    def by_host(self, host: str) -> int | None:
        """The one rank of a host, where every rank of the job is seated, or each seen has a host of its own."""
        own = self._ranks_of(host)
        seated = {r for ranks in self.ranks_on.values() for r in ranks}
        alone = all(len(ranks) == 1 for ranks in self.ranks_on.values())
        whole = alone if self.world is None else len(seated) >= self.world
        return next(iter(own)) if len(own) == 1 and whole and len(self.ranks_on) > 1 else None

    def by_exclusion(self, host: str) -> int | None:
        """The one rank without a seat, where every other rank has a host of its own and none is this one."""
        seated = [r for ranks in self.ranks_on.values() for r in ranks]
        alone = all(len(ranks) == 1 for ranks in self.ranks_on.values())
        if self.world is None or not alone or self._ranks_of(host) or len(seated) < 2:
            return None
        left = set(range(self.world)) - set(seated)
        return next(iter(left)) if len(left) == 1 else None

    def by_pod(self, pod: str) -> int | None:
        """Rank of a pod: what it wrote, else its number where all its siblings follow one rule."""
        match = re.fullmatch(r"(?P<base>.+)-(?P<index>\d{1,5})", pod)
        if match is None:
            return None
        base, index = match["base"], int(match["index"])
        known = {i: r for (b, i), r in self.pods.items() if b == base}
        if index in known:
            return next(iter(known[index])) if len(known[index]) == 1 else None
        if len(known) < 2 or any(len(r) != 1 for r in known.values()):
            return None
        shifts = {next(iter(ranks)) - i for i, ranks in known.items()}
        return index + shifts.pop() if len(shifts) == 1 else None

    def _ranks_of(self, host: str) -> set[int]:
        return {r for h, ranks in self.ranks_on.items() if same_host(h, host) for r in ranks}


def read_seating(digests: Iterable[FileDigest], roster: Roster, world: int | None) -> Seating:
    """Seating of an incident; seats that lines spell out are added to the roster."""
    seating = Seating(roster, world=world)
    for seat in roster.seats:
        if seat.host:
            seating.ranks_on[seat.host].add(seat.rank)
    for digest in digests:
        for text in _choose_lines(digest):
            _read_line(text, seating)
    return seating


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
            if len(text) < 2000 and ("ank" in text or "RANK" in text or "rocess " in text):
                yield text


def _read_line(text: str, seating: Seating) -> None:
    if (ray := _RAY.search(text)) is not None:
        _seat(seating, int(ray["rank"]), ray["host"], int(ray["local"]), int(ray["pid"]))
        return
    speaker, body = read_speaker(text)
    if speaker.rank is None and speaker.host and (own := _OWN_RANK.match(text, body)) is not None:
        seating.ranks_on[speaker.host].add(int(own["rank"]))
    if speaker.rank is not None and speaker.host and len(seating.ranks_on) < MAX_PAIRS:
        seating.ranks_on[speaker.host].add(speaker.rank)
        if speaker.pid is not None and speaker.stream:
            seat = Seat(speaker.rank, speaker.host, pid=speaker.pid)
            if seat not in seating.roster.seats[-MAX_PAIRS:]:
                seating.roster.seats.append(seat)
    if (pod := _POD.match(text)) is not None and speaker_rank(text) is not None:
        seating.pods[pod["base"], int(pod["index"])].add(int(str(speaker_rank(text))))
    for match in _ON_GPU.finditer(text):
        if any(c.isdecimal() for c in match["host"]) and not match["host"].isdecimal():
            _seat(seating, int(match["rank"]), match["host"], int(match["local"]), None)
    for match in _ON_NODE.finditer(text):
        seating.ranks_on[match["host"]].add(int(match["rank"]))
    if (node := _NODE_RANKS.match(text)) is not None:
        seating.ranks_on[node["host"]] |= {int(m["rank"]) for m in _RANKS.finditer(text)}
    pairs = _BUS_PAIR.findall(text) if text.count(":") > 1 else []
    if len(pairs) > 1:
        seating.roster.seats += [Seat(int(rank), bus=find_slot(bus)) for rank, bus in pairs]


_LABEL = expression(
    r"\[rank(\d{1,6})\]|\[[Rr]ank (\d{1,6})\]|\bRank (\d{1,6})\] |[\s|Z]rank[ =](\d{1,6}): |"
    r"\b[Pp]rocess (\d{1,6})(?::| of \d)|(?<![\w$])(?:GLOBAL_)?RANK[=:] ?['\"]?(\d{1,6})\b"
)


def speaker_rank(text: str) -> int | None:
    """Rank label anywhere near the start of a line that a pod's name begins."""
    match = _LABEL.search(text[:300])
    return int(next(g for g in match.groups() if g)) if match is not None else None


def _seat(seating: Seating, rank: int, host: str, local: int | None, pid: int | None) -> None:
    seating.ranks_on[host].add(rank)
    seating.roster.seats.append(Seat(rank, host, local, pid))
