"""Which rank sits on the GPU at a PCI address, where the material only tells parts of it?

The kernel names a GPU by its PCI address or by the pid on it, a launcher names its processes by local
rank and pid, nvidia-smi lists index and address. On one host with one process for each GPU the chain
address, index (or pid), local rank, rank is closed; on several hosts the placement table has the last step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import TYPE_CHECKING

from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.hardware.bus import find_slot
from firstfault_tools.log.exits import Exit
from firstfault_tools.log.prefix import read_prefix
from firstfault_tools.placement.table import MOST_LOCAL, shorten_host

if TYPE_CHECKING:
    from firstfault_tools.placement.logs import PlacedLogs

_BUS = r"(?:[0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-7])?"
_FULL_BUS = r"[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]"
_ROW = expression(
    rf"^\s{{0,9}}\|?\s{{0,9}}(?P<index>\d{{1,2}})\s{{0,9}},?\s(?:[^|\n]{{0,60}}?)[|,]?\s{{0,9}}(?P<bus>{_FULL_BUS})(?![\w.])"
)
"""Row of nvidia-smi: its table, or a query that begins with the index."""

_ROCM = expression(
    rf"^(?:GPU\[|card)(?P<index>\d{{1,2}})(?:\]\s*: PCI Bus: |,)(?P<bus>{_FULL_BUS})"
)
"""`rocm-smi --showbus`, as text and with `--csv`."""

_ROW_BACK = expression(rf"^\s*(?P<bus>{_FULL_BUS}), (?P<index>\d{{1,2}})(?:,|$)")
_PAIR = expression(
    rf"(?i)(?:(?<![a-z])(?:gpu|cuda|device|local[_ ]?rank|local)[ :=_]{{0,3}}|(?<![\w.:/]))(?P<index>\d{{1,2}})\s?(?:=>|->|=|:|\()\s?(?:PCI[: ]*)?(?P<bus>{_FULL_BUS})"
)
"""`0 -> 00000000:0A:00.0`, `GPU0=0000:0a:00.0`: tables that people write down."""

_LISTED = expression(
    r"^GPU (?P<index>\d{1,2}): .{3,80}\(UUID: (?P<uuid>GPU-[0-9a-fA-F]{8}-[\w-]{4,40})\)"
)
_UUID_AT = expression(rf"GPU at PCI:(?P<bus>{_BUS}): (?P<uuid>GPU-[0-9a-fA-F]{{8}}-[\w-]{{4,40}})")
_NAMED = expression(rf"(?:Xid \(PCI:|GPU at PCI:|\bamdgpu |^\s*Bus Location:\s*)(?P<bus>{_BUS})")
"""A GPU as its driver names it, in the kernel log or in /proc/driver/nvidia/gpus."""

_SETTING = expression(
    r"\bCUDA_VISIBLE_DEVICES['\"]?\s*[=:]\s*['\"]?(?P<list>\d{1,2}(?:,\s?\d{1,2})+)\b"
)
_CLOSING = expression(
    r"Sending process (?P<pid>\d+) closing signal|Killing subprocess (?P<killed>\d+)"
)
_XID_PID = expression(rf"Xid \(PCI:(?P<bus>{_BUS})\): \d+, pid='?(?P<pid>\d+)")
_ON_GPU = expression(r"^\|\s+(?P<index>\d{1,2})\s+N/A\s+N/A\s+(?P<pid>\d+)\s+C\s")
_NODE = expression(r"--node[-_]rank[= ](?P<node>\d{1,5})\b")
_EACH = expression(r"--nproc[-_]per[-_]node[= ](?P<each>\d{1,2})\b")
_NODES = expression(r"--nnodes[= ]([2-9]|\d{2,})\b")
_WORDS = (
    "card",
    "node-rank",
    "node_rank",
    "GPU",
    "gpu",
    ":00",
    "CUDA_VISIBLE_DEVICES",
    "rocess",
    "nnodes",
    "Xid",
    "Bus Location",
    "N/A",
)


@dataclass(slots=True)
class _Told:
    """What single lines give: indices by UUID, UUIDs by address, pids by index, pids in the order of their end."""

    uuids: dict[str, set[int]] = field(default_factory=dict)
    places: dict[str, str] = field(default_factory=dict)
    pids: dict[int, set[int]] = field(default_factory=dict)
    ended: list[int] = field(default_factory=list)


class GpuTable:
    """Local ranks by PCI address, GPU index and pid of one host."""

    def __init__(self, incident: PlacedLogs) -> None:
        self.indices: dict[str, set[int]] = {}
        self.visible: set[tuple[int, ...]] = set()
        self.pids: dict[int, int] = {}
        self.bus_pids: dict[str, set[int]] = {}
        self.named: set[str] = set()
        """Addresses of GPUs that the driver named in kernel logs."""

        self.firsts: set[int] = set()
        """First rank of each node whose launch command is shown."""

        self.one_host, self.ranks = True, incident.ranks_seen
        self.size = _count_ranks(incident)
        told = _Told()
        for _, _, text in incident.lines_with(_WORDS):
            if len(text) <= 1000:
                self._read_addresses(text)
                self._read_line(text, told)
        for bus, uuid in told.places.items():
            self.indices.setdefault(bus, set()).update(told.uuids.get(uuid, ()))
        for bus, found in self.indices.items():
            if bus not in self.bus_pids and len(found) == 1:
                self.bus_pids[bus] = told.pids.get(next(iter(found)), set())
        self.pids = order_pids(told.ended, incident.exits)
        self.alone = self.one_host and len(_hosts_of(incident)) < 2
        if len(_hosts_of(incident)) > 1 or self.size > max(len(self.indices), len(self.pids)):
            self.one_host = False

    def _read_line(self, text: str, told: _Told) -> None:
        if (listed := _LISTED.search(text)) is not None:
            told.uuids.setdefault(listed["uuid"], set()).add(int(listed["index"]))
        if (place := _UUID_AT.search(text)) is not None:
            told.places[find_slot(place["bus"])] = place["uuid"]
        if ":" in text and (named := _NAMED.search(text)) is not None:
            self.named.add(find_slot(named["bus"]))
        if (setting := _SETTING.search(text)) is not None:
            self.visible.add(tuple(int(g) for g in setting["list"].split(",")))
        if (closing := _CLOSING.search(text)) is not None:
            told.ended.append(int(closing["pid"] or closing["killed"]))
        if (owner := _XID_PID.search(text)) is not None:
            self.bus_pids.setdefault(find_slot(owner["bus"]), set()).add(int(owner["pid"]))
        if (process := _ON_GPU.search(text)) is not None:
            told.pids.setdefault(int(process["index"]), set()).add(int(process["pid"]))
        if _NODES.search(text) is not None:
            self.one_host = False
        if (node := _NODE.search(text)) is not None and (each := _EACH.search(text)):
            self.firsts.add(int(node["node"]) * int(each["each"]))

    def _read_addresses(self, text: str) -> None:
        if ":" not in text:
            return
        body = text[read_prefix(text)[1] :] if ":00.0" in text else text
        rows = [
            m
            for p in (_ROW, _ROW_BACK, _ROCM)
            for t in (text, body)
            if (m := p.search(t)) is not None
        ]
        pairs = list(_PAIR.finditer(text)) if not rows else []
        for match in (*rows, *pairs):
            self.indices.setdefault(find_slot(match["bus"]), set()).add(int(match["index"]))

    def index_at(self, bus: str) -> int | None:
        """Index of the GPU at an address, where all listings agree."""
        found = self.indices.get(find_slot(bus), set())
        return next(iter(found)) if len(found) == 1 else None

    def turn_at(self, bus: str) -> int | None:
        """Place of a GPU among all that the driver named: cards count in the order of their addresses."""
        slot = find_slot(bus)
        return sorted(self.named).index(slot) if slot in self.named else None

    def local_rank_on(self, index: int) -> int | None:
        """Local rank of the process on a GPU: its index, or its place among the visible ones."""
        if len(self.visible) > 1:
            return None
        if not self.visible:
            return index
        shown = next(iter(self.visible))
        return shown.index(index) if index in shown else None

    def pid_at(self, bus: str) -> int | None:
        """The one process that the kernel or nvidia-smi saw on the GPU at an address."""
        found = self.bus_pids.get(find_slot(bus), set())
        return next(iter(found)) if len(found) == 1 else None

    def rank_at(self, bus: str) -> int | None:
        """Rank on the GPU at an address: by its process, else by its index."""
        pid, index = self.pid_at(bus), self.index_at(bus)
        rank = self.rank_of_pid(pid) if pid is not None else None
        if rank is not None or index is None:
            return rank
        local = self.local_rank_on(index)
        if local is None or self.one_host:
            return local
        if len(self.firsts) == 1:
            return min(self.firsts) + local
        gpus = len(self.indices)
        base = min(self.ranks, default=0)
        whole = self.ranks == set(range(base, base + gpus)) and base % gpus == 0
        return base + local if whole and local < gpus and gpus > 1 else None

    def rank_of_pid(self, pid: int) -> int | None:
        """Rank of a process of a job of one host, by the order in which its launcher started them."""
        return self.pids.get(pid) if self.one_host else None


def order_pids(ended: Sequence[int], exits: Sequence[Exit]) -> dict[int, int]:
    """Local ranks by pid: workers are started in order, which the ones the launcher names must confirm."""
    named = {e.pid: e.local_rank for e in exits if e.pid is not None and e.local_rank is not None}
    pids = sorted({*ended, *named})
    order = {pid: place for place, pid in enumerate(pids)}
    close = bool(pids) and pids[-1] - pids[0] < 64 * len(pids) and len(pids) <= MOST_LOCAL
    agreed = named and all(order[pid] == local for pid, local in named.items())
    return order if close and agreed else {}


def _hosts_of(incident: PlacedLogs) -> set[str]:
    hosts = {*incident.placement.ranks_on, *incident.hosts_seen}
    return {shorten_host(h) for h in hosts}


def _count_ranks(incident: PlacedLogs) -> int:
    ranks = incident.ranks_seen | {e.rank for e in incident.exits if e.rank is not None}
    return max([*ranks, (incident.world_size or 1) - 1, 0]) + 1


_SPEAKS = expression(
    r"(?:^|\s)(?P<host>[A-Za-z][\w.-]*):(?P<pid>\d+):\d+ \[\d+\] .*?(?:NCCL INFO Channel \d+(?:/\d+)? ?: (?P<from>\d+)\[\w+\] -> "
    r"(?P<to>\d+)\[\w+\] (?P<how>\[(?:send|receive)\] |via (?:P2P|SHM|direct))|\[Proxy Service (?P<proxy>\d+)\])"
)
_CHANNEL_WORDS = ("NCCL INFO Channel", "[Proxy Service")


def find_nccl_rank(incident: PlacedLogs, host: str, pid: int) -> int | None:
    """Rank of a process that NCCL's lines name by pid, told by the channels it sets up.

    Who prints `3[3] -> 4[0] [send]` is rank 3, who prints `[receive]` is the one behind the arrow. Ranks of
    a smaller communicator would place two processes on one rank: then none is told.
    """
    told: dict[tuple[str, int], set[int]] = {}
    for _, _, text in incident.lines_with(_CHANNEL_WORDS):
        match = _SPEAKS.search(text[:600])
        if match is None:
            continue
        receives = (match["how"] or "").startswith("[receive")
        rank = match["proxy"] or (match["to"] if receives else match["from"])
        told.setdefault((match["host"], int(match["pid"])), set()).add(int(rank))
    own = told.get((host, pid), set())
    others = {r for place, ranks in told.items() if place != (host, pid) for r in ranks}
    return next(iter(own)) if len(own) == 1 and not own & others else None
