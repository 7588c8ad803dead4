"""What did one rank's flight recorder hold when it was dumped?

Reads a PyTorch flight-recorder dump (pickle from the watchdog, JSON from `_dump_nccl_trace_json` and
the debug server; formats 1.x to 2.10) into typed entries. Source of the format: pytorch
torch/csrc/distributed/c10d/FlightRecorderDetail.hpp. The rank comes from the file's name, as the
recorder appends it to TORCH_FR_DUMP_TEMP_FILE, else from the content.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from firstfault_tools.collectives.plain_pickle import load_plain_pickle
from firstfault_tools.dataclass import dataclass
from firstfault_tools.errors import HostileArtefact, UnreadableArtefact
from firstfault_tools.expressions import expression
from firstfault_tools.log.traceback import is_library, is_torch

JSON_LIMIT_BYTES = 256 * 1024 * 1024
MAX_ENTRIES = 2_000_000
MAX_RANKS = 1_000_000
_TRAILING_RANK = expression(r"(?:^|[^0-9])(\d{1,7})(?:\.(?:json|pkl|pickle|bin|pt|dump|txt))*$")
_NAMED_RANK = expression(r"rank[_\-]?(\d{1,7})(?!\d)", re.IGNORECASE)
_P2P = expression(r"^(send|recv)\s+(\d{1,7})(->|<-)(\d{1,7})$")


class State(StrEnum):
    """How far an entry had come: enqueued on the CPU, started or finished on the GPU."""

    SCHEDULED = "scheduled"
    STARTED = "started"
    COMPLETED = "completed"
    UNKNOWN = "unknown"


_STATES = {state.value: state for state in State}


@dataclass(frozen=True, slots=True)
class Frame:
    """One Python frame, innermost first in a stack."""

    function: str
    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.function} ({self.file}:{self.line})"


@dataclass(frozen=True, slots=True)
class Group:
    """A process group as one rank knew it. `ranks`: sorted global ranks, empty where not recorded."""

    name: str
    description: str
    ranks: tuple[int, ...]

    @property
    def label(self) -> str:
        """Name for people, such as `default_pg (0)`."""
        known = self.description and self.description != "undefined"
        return f"{self.description} ({self.name})" if known else f"group {self.name}"


@dataclass(frozen=True, slots=True)
class Entry:
    """One operation of one rank. Sizes are its tensors' shapes; times are ns since the epoch.

    p2p: counted by the group's point-to-point sequence. source, target: ranks within the group, for
    sends and receives only.
    """

    rank: int
    group: str
    seq: int
    op: str
    p2p: bool
    source: int | None
    target: int | None
    input_sizes: tuple[tuple[int, ...], ...]
    output_sizes: tuple[tuple[int, ...], ...]
    input_dtypes: tuple[str, ...]
    output_dtypes: tuple[str, ...]
    state: State
    record: int
    created_ns: int
    timeout_ms: int
    frames: tuple[Frame, ...]

    @property
    def user_frame(self) -> Frame | None:
        """Innermost frame outside installed libraries; the innermost of all where there is none."""
        for frame in self.frames:
            if not (is_library(frame.file) or is_torch(frame.file)):
                return frame
        return self.frames[0] if self.frames else None

    @property
    def where(self) -> str:
        """` at main (/job/train.py:84)`, or "" without a stack."""
        frame = self.user_frame
        return f" at {frame}" if frame else ""

    def __str__(self) -> str:
        sizes = f"in {_shape(self.input_sizes)} out {_shape(self.output_sizes)}"
        dtypes = "/".join(dict.fromkeys((*self.input_dtypes, *self.output_dtypes)))
        peers = f" {self.source}->{self.target}" if self.source is not None else ""
        return (
            f"rank {self.rank} group {self.group} seq {self.seq} {self.op}{peers} {sizes} {dtypes} "
            f"{self.state}{self.where}"
        )


@dataclass(frozen=True, slots=True)
class Progress:
    """Sequence numbers that a rank's process group had last enqueued and completed; -1 for none."""

    enqueued: int
    completed: int


@dataclass(frozen=True, slots=True)
class Dump:
    """All that one rank recorded. `wrapped`: the ring buffer has dropped its oldest entries."""

    file: str
    rank: int
    version: str
    library_version: str
    groups: Mapping[str, Group]
    progress: Mapping[str, Progress]
    entries: tuple[Entry, ...]
    wrapped: bool


def _shape(sizes: tuple[tuple[int, ...], ...]) -> str:
    return ",".join("[" + "x".join(map(str, s)) + "]" for s in sizes[:4]) or "[]"


def rank_of_name(name: str, named_only: bool = False) -> int | None:
    """Rank in a file name such as `fr_rank_3`, `nccl_trace_rank_12.json`, `trace7`; None without.

    named_only: a number counts only behind the word `rank`, where names may end in dates.
    """
    base = name.rsplit("/", 1)[-1]
    named = _NAMED_RANK.findall(base)
    if named:
        return int(named[-1])
    if named_only:
        return None
    trailing = _TRAILING_RANK.search(base)
    return int(trailing.group(1)) if trailing else None


def looks_like_dump(head: bytes) -> bool:
    """Whether the first bytes are those of a flight-recorder dump, pickle or JSON."""
    start = head[:4096]
    if start[:1] == b"\x80" and len(start) > 1 and start[1] <= 5:
        marks = sum(mark in head for mark in (b"entries", b"pg_config", b"pg_status"))
        recorder = any(
            mark in head for mark in (b"comm_lib_version", b"nccl_version", b"profiling_name")
        )
        return recorder and marks >= 1
    if start.lstrip()[:1] == b"{":
        return b'"pg_config"' in head or (
            b'"profiling_name"' in head and b'"collective_seq_id"' in head
        )
    return False


def read_dump(data: bytes, name: str, rank: int | None = None, last: int = MAX_ENTRIES) -> Dump:
    """Dump of one rank. `rank` overrides what the name and the content say; `last`: newest entries
    to keep, where a large world would not fit into memory with all of them.

    Raises `UnreadableArtefact` for bytes that are no dump or carry no rank, `HostileArtefact` for a
    pickle that asks for more than plain values.
    """
    content = _load(data, name)
    if not isinstance(content, dict) or not (
        {"entries", "pg_config", "pg_status"} & content.keys()
    ):
        raise UnreadableArtefact(f"{name}: no flight-recorder dump (no entries, no pg_config)")
    if rank is None:
        rank = rank_of_name(name)
    if rank is None:
        rank = _whole(content.get("rank", content.get("global_rank")), None)
    if rank is None:
        raise UnreadableArtefact(
            f"{name}: cannot tell which rank wrote this dump; keep the recorder's file name (…rank_N)"
        )
    groups = _groups(content.get("pg_config"))
    raw_entries = content.get("entries") or []
    if not isinstance(raw_entries, list | tuple) or len(raw_entries) > MAX_ENTRIES:
        raise UnreadableArtefact(f"{name}: `entries` is no list of at most {MAX_ENTRIES} records")
    records = [raw for raw in raw_entries if isinstance(raw, dict)]
    records.sort(key=lambda raw: _number(raw.get("record_id", raw.get("id"))))
    shared = _Shared()
    entries = tuple([_entry(raw, rank, shared) for raw in records[-last:]])
    uid_names = _uid_names(raw_entries, groups, content.get("pg_status"))
    return Dump(
        file=name,
        rank=rank,
        version=_text(content.get("version"), 40),
        library_version=_text(content.get("comm_lib_version", content.get("nccl_version")), 40),
        groups=groups,
        progress=_progress(content.get("pg_status"), uid_names),
        entries=entries,
        wrapped=bool(entries) and entries[0].record > 0,
    )


def _load(data: bytes, name: str) -> Any:
    if data[:1] == b"\x80":
        # Every container is looked at once, however often it is shared, and none below its level.
        return load_plain_pickle(data, name, measured=False)
    if len(data) > JSON_LIMIT_BYTES:
        raise HostileArtefact(f"{name}: {len(data)} bytes of JSON, the limit is {JSON_LIMIT_BYTES}")
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise UnreadableArtefact(
            f"{name}: neither a pickle nor JSON ({type(error).__name__}); copy the file again"
        ) from error


def _whole(value: object, default: int | None = 0) -> int | None:
    """Whole number in a dump: an int, or text of one (JSON writes pg_status as text)."""
    if type(value) is int:
        return value if abs(value) < 1 << 63 else default
    if isinstance(value, str) and re.fullmatch(r"-?[0-9]{1,18}", value):
        return int(value)
    return default


def _number(value: object) -> int:
    if type(value) is int and -(1 << 63) < value < 1 << 63:
        return value
    return _whole(value) or 0


def _text(value: object, limit: int = 400) -> str:
    return value[:limit] if isinstance(value, str) else ""


def _sequence(value: object) -> list[Any] | tuple[Any, ...]:
    return value if isinstance(value, list | tuple) else []


def _groups(config: object) -> dict[str, Group]:
    groups = {}
    for name, info in config.items() if isinstance(config, dict) else ():
        if not isinstance(info, dict):
            continue
        ranks = info.get("ranks")
        if isinstance(ranks, str):
            numbers = [int(n) for n in re.findall(r"\d{1,7}", ranks)[:MAX_RANKS]]
        else:
            numbers = [_number(r) for r in _sequence(ranks)[:MAX_RANKS]]
        label = _text(name) or str(_number(name))
        groups[label] = Group(label, _text(info.get("desc")), tuple(sorted(set(numbers))))
    return groups


def _uid_names(
    raw_entries: list[Any] | tuple[Any, ...], groups: Mapping[str, Group], status: object
) -> dict[str, str]:
    """pg_status is keyed by the group's id, everything else by its name: the entries carry both."""
    names: dict[str, str] = {}
    wanted = max(len(groups), len(status) if isinstance(status, dict) else 0)
    for raw in raw_entries:
        if wanted and len(names) >= wanted:
            break
        if isinstance(raw, dict):
            identity = _whole(raw.get("pg_id"), None)
            if identity is not None:
                names.setdefault(str(identity), _group_name(raw))
    return names


def _progress(status: object, uid_names: Mapping[str, str]) -> dict[str, Progress]:
    progress = {}
    for uid, info in status.items() if isinstance(status, dict) else ():
        if isinstance(info, dict):
            key = _text(uid) or str(_number(uid))
            if key not in uid_names and key in uid_names.values():
                continue  # an id that happens to be another group's name
            progress[uid_names.get(key, key)] = Progress(
                enqueued=_number(info.get("last_enqueued_collective", -1)),
                completed=_number(info.get("last_completed_collective", -1)),
            )
    return progress


def _group_name(raw: Mapping[Any, Any]) -> str:
    group = raw.get("process_group")
    if isinstance(group, str):
        return group[:400]
    parts = _sequence(group)
    if parts:
        return _text(parts[0]) or str(_number(parts[0]))
    return _text(raw.get("pg_name")) or str(_number(raw.get("pg_id")))


class _Shared:
    """What was already read, by the identity of the dump's own object and by value.

    The recorder shares one dictionary between all stacks that pass through a frame; a hostile dump
    could share one huge list between all entries, which is why an object is read once.
    """

    def __init__(self) -> None:
        self.sizes: dict[int, tuple[tuple[int, ...], ...]] = {}
        self.shapes: dict[int, tuple[int, ...]] = {}
        self.dtypes: dict[int, tuple[str, ...]] = {}
        self.stacks: dict[int, tuple[Frame, ...]] = {}
        self.frames: dict[int, Frame] = {}
        self.equal: dict[Any, Any] = {}

    def read_sizes(self, value: object) -> tuple[tuple[int, ...], ...]:
        """Shapes of the tensors of one side."""
        found = self.sizes.get(id(value))
        if found is None:
            read = tuple(self.read_shape(shape) for shape in _sequence(value)[:4096])
            found = self.sizes[id(value)] = self.equal.setdefault(read, read)
        return found

    def read_shape(self, value: object) -> tuple[int, ...]:
        """One shape."""
        found = self.shapes.get(id(value))
        if found is None:
            found = self.shapes[id(value)] = tuple([_number(n) for n in _sequence(value)[:32]])
        return found

    def read_dtypes(self, value: object) -> tuple[str, ...]:
        """Names of data types."""
        found = self.dtypes.get(id(value))
        if found is None:
            read = tuple([_text(d, 40) for d in _sequence(value)[:4096]])
            found = self.dtypes[id(value)] = self.equal.setdefault(read, read)
        return found

    def read_stack(self, value: object) -> tuple[Frame, ...]:
        """Frames, innermost first."""
        found = self.stacks.get(id(value))
        if found is None:
            read = [self.read_frame(raw) for raw in _sequence(value)[:256] if type(raw) is dict]
            # Equal frames are one object, so that their identities tell stacks apart.
            key = ("stack", *map(id, read))
            found = self.equal.get(key)
            if found is None:
                found = self.equal[key] = tuple(read)
            self.stacks[id(value)] = found
        return found

    def read_frame(self, raw: Mapping[Any, Any]) -> Frame:
        """One frame."""
        found = self.frames.get(id(raw))
        if found is None:
            name, file, line = raw.get("name"), raw.get("filename"), raw.get("line")
            key = (_text(name), _text(file), _number(line))
            found = self.equal.get(key)
            if found is None:
                found = self.equal[key] = Frame(*key)
            self.frames[id(raw)] = found
        return found


def _entry(raw: Mapping[Any, Any], rank: int, shared: _Shared) -> Entry:
    title = _text(raw.get("profiling_name"), 200)
    op = title.split(":", 1)[-1]
    peers = _P2P.match(op)
    source = target = None
    if peers:
        first, arrow, second = int(peers[2]), peers[3], int(peers[4])
        op = peers[1]
        source, target = (first, second) if arrow == "->" else (second, first)
    p2p = peers is not None or raw.get("is_p2p") is True
    state = _text(raw.get("state"), 20)
    seq = raw.get("p2p_seq_id") if p2p else raw.get("collective_seq_id", raw.get("seq_id"))
    return Entry(
        rank=rank,
        group=_group_name(raw),
        seq=_number(seq),
        op=op,
        p2p=p2p,
        source=source,
        target=target,
        input_sizes=shared.read_sizes(raw.get("input_sizes")),
        output_sizes=shared.read_sizes(raw.get("output_sizes")),
        input_dtypes=shared.read_dtypes(raw.get("input_dtypes")),
        output_dtypes=shared.read_dtypes(raw.get("output_dtypes")),
        state=_STATES.get(state, State.UNKNOWN),
        record=_number(raw.get("record_id", raw.get("id"))),
        created_ns=_number(raw.get("time_created_ns")),
        timeout_ms=_number(raw.get("timeout_ms")),
        frames=shared.read_stack(raw.get("frames")),
    )
