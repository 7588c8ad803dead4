"""What did NCCL's RAS service answer?

Parses the text of `ncclras` (NCCL 2.24 and later) and its JSON (`-f json`, 2.28.7 and later) into one
report per query. Formats as printed by NVIDIA/nccl src/ras/client_support.cc; NVIDIA's page on RAS
says that the text may change between releases, so unknown lines are passed over.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import Any

from firstfault_tools.dataclass import dataclass
from firstfault_tools.errors import HostileArtefact, UnreadableArtefact
from firstfault_tools.expressions import expression

LIMIT_BYTES = 64 * 1024 * 1024
_COMM = expression(r"^#(\d{1,6})-(\d{1,6}) \(([0-9a-f]{1,16})\) ([A-Z]+)")
_PLACE = expression(
    r"^\s*Rank (\d{1,7})\b(?: has launched up to operation (\d{1,18})| has status (\w+)"
    r"| (has not launched any operations)| reported ([\w ]+?))?(?: -- (?:GPU (\S+)"
    r" managed by process (\d{1,9}) on node (\S+)|\[process information not found\]))?\s*$"
)
_COUNT = expression(
    r"^\s*(\d{1,7}) ranks have (?:launched up to operation (\d{1,18})|not launched)"
)
_OPERATION = expression(r"Communicator ranks have different (\w+) operation counts")
_MISSING = expression(r"^\s*The missing ranks?: ([\d, ]+)")
_PROCESS = expression(r"^\s*Process (\d{1,9}) on node (\S+) managing GPUs? (.+?)\s*$")
_TIMEOUTS = expression(r"Encountered (\d{1,9}) communication timeouts?")
_GROUP = expression(
    r"^\s*(\d{1,6})\s+(\d+)\s+(\d+)\s+([\d-]+)\s+(\d+)\s+(\d+)\s+([A-Z]+)\s+([A-Z ]+)$"
)
_EXCERPT = expression(r"(?m)^\s*Group\s+Comms\s+Nodes\s+Ranks\b")
EXCERPT_BYTES = 4096
"""What people paste begins at the table of communicators, without the summary above it."""
_VERSION = expression(r"NCCL version (\S+)")
_MISSING_COMMA = expression(r'([}\]"\w])(\s*\n\s*")')


@dataclass(frozen=True, slots=True)
class Place:
    """Where a rank of a communicator runs."""

    gpu: str
    pid: int
    node: str


@dataclass(slots=True)
class Communicator:
    """What one query said of one communicator.

    counts: per operation the last number that each named rank has launched; ranks that keep with the
    majority are not named in the text form, `majority` holds their number. missing: ranks that did
    not answer. dead: of those, the ones RAS has given up. errors: rank to NCCL error. size: 0 unknown.
    """

    label: str
    size: int = 0
    counts: dict[str, dict[int, int]] = field(default_factory=dict)
    majority: dict[str, int] = field(default_factory=dict)
    missing: list[int] = field(default_factory=list)
    dead: list[int] = field(default_factory=list)
    errors: dict[int, str] = field(default_factory=dict)
    status: dict[int, str] = field(default_factory=dict)
    places: dict[int, Place] = field(default_factory=dict)
    lines: list[tuple[int, str]] = field(default_factory=list)


@dataclass(slots=True)
class RasReport:
    """One answer of the service. dead, missing: processes; lines keep what is quoted."""

    file: str
    first_line: int
    version: str = ""
    timestamp: str = ""
    timeouts: int = 0
    communicators: dict[str, Communicator] = field(default_factory=dict)
    dead: list[tuple[int, str, Place]] = field(default_factory=list)
    missing: list[tuple[int, str, Place]] = field(default_factory=list)
    timeout_line: tuple[int, str] | None = None


def looks_like_ras(head: bytes) -> bool:
    """Whether the first bytes are an answer of RAS, text or JSON."""
    if head.lstrip()[:1] == b"{":
        return b'"communicators"' in head and b'"nccl_version"' in head
    head = head.replace(b"\r", b"")
    if b"Job summary\n=====" in head:
        return b"Processes" in head
    return _EXCERPT.search(head[:EXCERPT_BYTES].decode("utf-8", "replace")) is not None


def parse_ras(data: bytes, name: str) -> list[RasReport]:
    """Reports in an artefact, one a query, in their order in the file.

    Raises `UnreadableArtefact` where there is none, `HostileArtefact` beyond 64 MiB.
    """
    if len(data) > LIMIT_BYTES:
        raise HostileArtefact(
            f"{name}: {len(data)} bytes of RAS output, the limit is {LIMIT_BYTES}"
        )
    text = data.decode("utf-8", errors="replace")
    if text.lstrip()[:1] == "{":
        return [_parse_json(text, name)]
    reports = list(_parse_text(text, name))
    if not reports:
        raise UnreadableArtefact(f"{name}: no RAS answer in it; save the output of `ncclras -v`")
    return reports


class _TextReader:
    """Reads one report line by line. block: the state whose ranks are listed; comm: whose they are."""

    def __init__(self, report: RasReport) -> None:
        self.report, self.block, self.operation = report, "", "collective"
        self.comm: Communicator | None = None
        self.sizes: dict[str, int] = {}

    def read(self, number: int, line: str) -> None:
        """Take one line behind the report's first."""
        report, said = self.report, line.strip()
        if found := _GROUP.match(line):
            self.sizes[found[1]] = int(found[5])
        elif found := _COMM.match(line):
            self.comm = report.communicators.setdefault(found[3], Communicator(found[3]))
            self.comm.size = self.sizes.get(found[1], 0)
            self.comm.lines.append((number, said))
            self.block, self.operation = found[4], "collective"
        elif said in ("INCOMPLETE", "DEAD", "TIMEOUT"):
            self.block, self.comm = said, None
        elif found := _TIMEOUTS.search(line):
            report.timeouts, report.timeout_line = int(found[1]), (number, said)
        elif self.comm is None and (found := _PROCESS.match(line)):
            target = report.dead if self.block == "DEAD" else report.missing
            target.append((number, said, Place(found[3], int(found[1]), found[2])))
        elif self.comm is None and _OPERATION.search(line):
            # an excerpt that leaves the communicator's own line out
            self.comm = report.communicators.setdefault("0", Communicator("0"))
            self._read_rank(number, line)
        elif self.comm is not None and said:
            self._read_rank(number, line)

    def _read_rank(self, number: int, line: str) -> None:
        assert self.comm is not None
        self.operation = _communicator_line(self.comm, self.block, self.operation, number, line)


def _parse_text(text: str, name: str) -> Iterator[RasReport]:
    reader: _TextReader | None = None
    version, version_line = "", 0
    for number, line in enumerate(text.splitlines(), 1):
        if found := _VERSION.search(line):
            version, version_line = found[1], number
        if line.startswith("Job summary") or (reader is None and _EXCERPT.match(line)):
            if reader is not None:
                yield reader.report
            reader = _TextReader(RasReport(name, version_line or number, version))
        elif reader is not None:
            reader.read(number, line)
    if reader is not None:
        yield reader.report


def _communicator_line(
    comm: Communicator, block: str, operation: str, number: int, line: str
) -> str:
    """Take one line below `#g-c (hash) KIND`; returns the operation that the next lines count."""
    comm.lines.append((number, line.strip()))
    if found := _OPERATION.search(line):
        return found[1]
    if found := _MISSING.match(line):
        comm.missing.extend(int(n) for n in re.findall(r"\d{1,7}", found[1])[:100_000])
    elif found := _COUNT.match(line):
        # The commonest count is printed first, without its ranks; later ones name theirs.
        count = int(found[2] or 0)
        comm.majority.setdefault(operation, count)
        comm.counts.setdefault(operation, {})[-1] = count
    elif found := _PLACE.match(line):
        rank = int(found[1])
        if found[6]:
            comm.places[rank] = Place(found[6], int(found[7]), found[8])
        if block == "INCOMPLETE":
            comm.missing.append(rank)
        elif block == "ERROR":
            comm.errors[rank] = found[5] or "an error"
        elif found[3]:
            comm.status[rank] = found[3]
        else:
            counts = comm.counts.setdefault(operation, {})
            latest = counts.get(-1, 0)
            counts[rank] = int(found[2]) if found[2] else 0 if found[4] else latest
    return operation


def _parse_json(text: str, name: str) -> RasReport:
    raw = _load(text, name)
    if not isinstance(raw, dict) or not isinstance(raw.get("communicators"), list):
        raise UnreadableArtefact(
            f"{name}: JSON without `communicators`: no answer of ncclras -f json"
        )
    report = RasReport(
        name, 0, str(raw.get("nccl_version", ""))[:40], str(raw.get("timestamp", ""))
    )
    ras = raw.get("ras")
    report.timeouts = _int(ras.get("timeouts_count")) if isinstance(ras, dict) else 0
    for item in raw["communicators"]:
        if isinstance(item, dict):
            label = _label(item, report.communicators)
            report.communicators[label] = _json_communicator(item, label)
    return report


def _label(item: Mapping[str, Any], taken: Mapping[str, Communicator]) -> str:
    """Hash as the text form prints it, so that answers in both forms can be compared."""
    label = str(item.get("hash", "")).removeprefix("0x")[:16].zfill(16)
    return label if label not in taken else f"{label} {item.get('secondary_hash', '')}"[:80]


def _load(text: str, name: str) -> Any:
    for attempt in (text, _MISSING_COMMA.sub(r"\1,\2", text)):
        # Some releases print no comma between `ranks` and `missing_ranks`.
        try:
            return json.loads(attempt)
        except (ValueError, RecursionError) as error:
            failure = error
    raise UnreadableArtefact(f"{name}: broken JSON ({failure}); run the query again") from failure


def _objects(value: object) -> list[dict[str, Any]]:
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def _json_communicator(item: Mapping[str, Any], label: str) -> Communicator:
    comm = Communicator(label, _int(item.get("size")))
    for entry in _objects(item.get("ranks")):
        rank = _int(entry.get("rank"))
        comm.places[rank] = _json_place(entry)
        counts = entry.get("collective_counts")
        for operation, count in counts.items() if isinstance(counts, dict) else ():
            comm.counts.setdefault(str(operation)[:40], {})[rank] = _int(count)
        status = entry.get("status")
        if isinstance(status, dict):
            for key in ("init_state", "async_error"):
                code = _int(status.get(key))
                if code not in (0, 7):  # ncclSuccess, ncclInProgress
                    comm.errors[rank] = f"{key} {code}"
    for entry in _objects(item.get("missing_ranks")):
        rank = _int(entry.get("rank"))
        comm.places[rank] = _json_place(entry)
        status = entry.get("status")
        flags = status if isinstance(status, dict) else entry
        if flags.get("unresponsive") or flags.get("considered_dead"):
            comm.missing.append(rank)
        if flags.get("considered_dead"):
            comm.dead.append(rank)
    return comm


def _json_place(entry: Mapping[str, Any]) -> Place:
    return Place(
        str(_int(entry.get("cuda_dev"))), _int(entry.get("pid")), str(entry.get("host", ""))[:200]
    )


def _int(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) >= 1 << 63:
        return 0
    return value
