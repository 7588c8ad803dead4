"""What do NCCL or RCCL Inspector records say: which rank came late, which communicator is slow?

One JSON object a line and operation (NVIDIA/nccl plugins/profiler/inspector; rocm.docs.amd.com "Using the
RCCL Inspector plugin"): header {id, rank, n_ranks, nnodes}, metadata {hostname, pid, ...}, coll_perf {coll,
coll_sn, coll_msg_size_bytes, coll_exec_time_us, coll_busbw_gbs}. A collective lasts from a rank's own start
until all have come, so the rank that comes last waits for nobody: its operation is the shortest, step
after step, while the others' hold its lateness.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from firstfault_tools.averages import median
from firstfault_tools.dataclass import dataclass
from firstfault_tools.errors import UnreadableArtefact
from firstfault_tools.findings import Category, Evidence, Finding, Json, Level
from firstfault_tools.registry import Artefact, Reader, Reading

MOST_RECORDS = 2_000_000
LONGEST_RECORD = 64 * 1024
LEAST_SHARED = 5
"""Operations that all ranks recorded, below which nothing is said of a rank."""

LATE_SHARE = 0.8
"""Share of the operations in which one and the same rank is the shortest."""

LATE_RATIO = 1.5
"""Median of the others' time against the late rank's: what they wait is at least half of what it takes."""

SLOW_COMMUNICATOR = 0.7
"""Bus bandwidth against the median of the other communicators of the same shape, operation and size."""

LEAST_BYTES = 1 << 20
"""Smaller messages are bound by latency: their bandwidth tells nothing of a link."""


@dataclass(frozen=True, slots=True)
class Record:
    """One operation of one rank. exec_us: from its start on this rank until it was done."""

    communicator: str
    rank: int
    ranks: int
    host: str | None
    operation: str
    sequence: int
    size: int
    exec_us: float
    bus_gbs: float
    file: str
    line: int
    time_us: float = 0.0
    """When it was written; 0 where the record does not say."""


def recognise(name: str, head: bytes) -> bool:
    """Whether a file holds Inspector records."""
    first = head.lstrip()[:4096].partition(b"\n")[0]
    return first[:1] == b"{" and b'"coll_perf"' in first and b'"rank"' in first


def read(artefacts: tuple[Artefact, ...]) -> Reading:
    """Late ranks and slow communicators over the records of all ranks. Raises UnreadableArtefact."""
    records: list[Record] = []
    broken = 0
    for artefact in artefacts:
        text = artefact.text()
        for number, line in enumerate(text.splitlines(), 1):
            record = parse_record(line, artefact.name, number)
            broken += record is None and bool(line.strip())
            if record is not None and len(records) < MOST_RECORDS:
                records.append(record)
    if not records:
        raise UnreadableArtefact(f"{artefacts[0].name}: no whole Inspector record in it")
    found = (*find_late_ranks(records), *find_slow_communicators(records))
    data: dict[str, Json] = {
        "records": len(records),
        "broken_lines": broken,
        "communicators": len({r.communicator for r in records}),
        "ranks": len({(r.communicator, r.rank) for r in records}),
    }
    return Reading(tuple(found), data)


def parse_record(line: str, file: str, number: int) -> Record | None:
    """One line; None where it is no whole record of a collective."""
    if not line.lstrip().startswith("{") or len(line) > LONGEST_RECORD:
        return None
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(row, dict):
        return None
    head, about, done = (_part(row, key) for key in ("header", "metadata", "coll_perf"))
    head, about = head or row, about or row  # older versions write these fields at the top
    try:
        return Record(
            communicator=str(head["id"])[:64],
            rank=int(head["rank"]),
            ranks=int(head["n_ranks"]),
            host=str(about["hostname"])[:255] if about.get("hostname") else None,
            operation=str(done["coll"])[:64],
            sequence=int(done["coll_sn"]),
            size=int(done["coll_msg_size_bytes"]),
            exec_us=float(done["coll_exec_time_us"]),
            bus_gbs=float(done.get("coll_busbw_gbs", 0.0)),
            file=file,
            line=number,
            time_us=float(about.get("dump_timestamp_us") or 0.0),
        )
    except (KeyError, TypeError, ValueError, OverflowError):
        return None


def _part(row: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    part = row.get(key)
    return part if isinstance(part, dict) else {}


Operation = tuple[str, int]


def _by_communicator(records: Iterable[Record]) -> dict[str, dict[Operation, dict[int, Record]]]:
    found: dict[str, dict[Operation, dict[int, Record]]] = defaultdict(lambda: defaultdict(dict))
    for r in records:
        found[r.communicator][r.operation, r.sequence].setdefault(r.rank, r)
    return found


def find_late_ranks(records: Sequence[Record]) -> Iterator[Finding]:
    """The rank of a communicator for which the others wait in nearly every operation."""
    for communicator, operations in _by_communicator(records).items():
        seen = {rank for row in operations.values() for rank in row}
        shared = [row for row in operations.values() if row.keys() == seen]
        if len(seen) < 3 or len(shared) < LEAST_SHARED:
            continue
        shortest = Counter(min(row.values(), key=lambda r: r.exec_us).rank for row in shared)
        rank, count = shortest.most_common(1)[0]
        own = median(row[rank].exec_us for row in shared)
        others = median(r.exec_us for row in shared for r in row.values() if r.rank != rank)
        if count >= LATE_SHARE * len(shared) and others >= LATE_RATIO * max(own, 1e-9):
            yield _tell_late(communicator, rank, own, others, count, shared)


def _tell_late(
    communicator: str, rank: int, own: float, others: float, count: int,
    shared: Sequence[Mapping[int, Record]],
) -> Finding:  # fmt: skip
    worst = max(shared, key=lambda row: max(r.exec_us for r in row.values()) - row[rank].exec_us)
    record, waiting = worst[rank], max(worst.values(), key=lambda r: r.exec_us)
    whole = {r.rank for row in shared for r in row.values()} == set(range(record.ranks))
    where = f" on {record.host}" if record.host else ""
    return Finding(
        kind="collective.inspector_late",
        title=(
            f"rank {rank}{where} of communicator {communicator} comes last in {count} of {len(shared)} collectives: "
            f"{record.operation} takes it {own:.0f} us, the others wait in it for {others:.0f} us"
        ),
        level=Level.FAILURE,
        category=Category.PERFORMANCE,
        evidence=(_quote(record), _quote(waiting)),
        # a rank of a smaller group is no global rank
        rank=rank if whole and record.ranks == max(r.ranks for r in worst.values()) else None,
        host=record.host,
        facts={"communicator": communicator, "own_us": own, "others_us": others, "shared": len(shared)},
    )  # fmt: skip


def find_slow_communicators(records: Sequence[Record]) -> Iterator[Finding]:
    """A communicator whose bus bandwidth is far below that of others of its shape."""
    rates: dict[tuple[str, int, int], dict[str, list[Record]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for r in records:
        if r.size >= LEAST_BYTES and r.bus_gbs > 0:
            rates[r.operation, r.size, r.ranks][r.communicator].append(r)
    for (operation, size, _), groups in sorted(rates.items(), key=lambda row: -row[0][1]):
        if len(groups) < 3:
            continue
        level = {c: median(r.bus_gbs for r in rows) for c, rows in groups.items()}
        slow = min(level, key=lambda c: level[c])
        usual = median(rate for c, rate in level.items() if c != slow)
        if level[slow] < SLOW_COMMUNICATOR * usual:
            rows = groups[slow]
            hosts = sorted({r.host for r in rows if r.host})
            yield Finding(
                kind="collective.inspector_slow_group",
                title=(
                    f"communicator {slow} ({', '.join(hosts[:4]) or 'hosts not told'}) reaches {level[slow]:.1f} GB/s in "
                    f"{operation} of {size / (1 << 20):.0f} MiB where the other {len(groups) - 1} reach {usual:.1f}"
                ),
                level=Level.FAILURE,
                category=Category.COMMUNICATION,
                evidence=(_quote(min(rows, key=lambda r: r.bus_gbs)),),
                host=hosts[0] if len(hosts) == 1 else None,
                facts={"communicator": slow, "bus_gbs": level[slow], "others_gbs": usual, "hosts": list(hosts)},
            )  # fmt: skip
            return


def _quote(r: Record) -> Evidence:
    told = (
        f"rank {r.rank} of {r.ranks}: {r.operation} {r.sequence}, {r.size} bytes, {r.exec_us:.0f} us, "
        f"{r.bus_gbs:.2f} GB/s"
    )
    return Evidence(r.file, r.line, told, host=r.host)


SIGNS = ('"coll_perf"',)

READER = Reader(
    name="nccl_inspector",
    summary="NCCL and RCCL Inspector records: the rank that comes late to its collectives, communicators that are slow",
    recognise=recognise,
    read=read,
)
