"""From what do times by rank come? Step lines and tables, Megatron's timers, profiler traces, Inspector records.

Each gives what a rank computes in a step and what it waits or communicates; which form a file has is seen from it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING

from firstfault_tools.averages import median
from firstfault_tools.dataclass import dataclass
from firstfault_tools.errors import InvalidParameter
from firstfault_tools.expressions import expression
from firstfault_tools.slowdown.losses import Worker

if TYPE_CHECKING:
    from firstfault_tools.collectives.inspector import Record

NOTHING = (
    "no times of two ranks in it: give a table or lines with computation and waiting by rank, Megatron's timers of all ranks "
    "(--timing-log-option all), a torch.profiler trace of each rank, or NCCL Inspector records of all ranks"
)

_COLLECTIVE = expression(r"(?i)\bc10d::|nccl|record_param_comms")
"""What the host of a rank that waits for its peers is in."""
LEAST_PARTS = 3
"""Names from which on lines split the work of a rank and not only work from waiting."""


@dataclass(frozen=True, slots=True)
class Times:
    """Workers, and what their times mean where they are not those of a step."""

    workers: tuple[Worker, ...]
    note: str = ""


def read_times(files: Sequence[tuple[str, bytes]]) -> Times:
    """Times by rank of files, by name and content. Raises InvalidParameter, UnreadableArtefact."""
    from firstfault_tools.collectives import inspector
    from firstfault_tools.profile.trace import looks_like_trace, unpack

    whole = [(name, unpack(data, name)) for name, data in files]
    traces = [(n, d) for n, d in whole if looks_like_trace(d[:65536])]
    if traces:
        return _of_traces(traces)
    records = [(n, d) for n, d in whole if inspector.recognise(n, d[:65536])]
    if records:
        return _of_inspector(records)
    found = _of_lines("\n".join(d.decode("utf-8", errors="replace") for _, d in whole))
    if len(found) < 2:
        raise InvalidParameter("log", NOTHING)
    return Times(found)


def _of_lines(text: str) -> tuple[Worker, ...]:
    """Of named parts of a step, of computation beside waiting, or of timers by rank."""
    from firstfault_tools.metrics.pace.listed_timers import read_listed
    from firstfault_tools.metrics.pace.rank_times import OF_HOSTS, read_rank_times

    lines = list(enumerate(text.splitlines(), 1))
    parts = _of_parts(lines)
    if len(parts) >= 2:
        return parts
    read = read_rank_times(lines, frozenset(n for n, _ in lines))
    if len(read) >= 2:
        return tuple(
            Worker(f"rank {t.rank}" if t.rank < OF_HOSTS else str(t.host), t.host, median(t.compute), median(t.wait))
            for t in read
        )  # fmt: skip
    listed = [one for one in read_listed(lines) if one.compute_ms > 0]
    if len(listed) >= 2:
        return _level([(f"rank {one.rank}", None, one.compute_ms) for one in listed])
    return ()


def _of_parts(lines: Sequence[tuple[int, str]]) -> tuple[Worker, ...]:
    from firstfault_tools.metrics.pace.rank_parts import kind_of, read_own_parts, waits

    rows = []
    for one in read_own_parts(lines):
        if len(one.parts) < LEAST_PARTS:
            continue  # computation beside waiting: rank_times reads that in more forms
        work = [
            median(v)
            for name, v in one.parts.items()
            if kind_of(name) is not None or not waits(name)
        ]
        if work:
            rows.append((f"rank {one.rank}", one.host, sum(work)))
    return _level(rows)


def _level(rows: Sequence[tuple[str, str | None, float]]) -> tuple[Worker, ...]:
    """Where only the work of each rank is told, it waits for the longest."""
    longest = max((ms for _, _, ms in rows), default=0.0)
    return tuple(Worker(name, host, ms, longest - ms) for name, host, ms in rows)


def _of_traces(files: Sequence[tuple[str, bytes]]) -> Times:
    """A rank's step without the communication that no computation hides; idle time outside of collectives is its own."""
    from firstfault_tools.profile.trace import read_trace

    workers = []
    for name, data in files:
        trace = read_trace(data, name)
        steps = len(trace.steps_us) or 1
        step = median(trace.steps_us) if trace.steps_us else trace.window_us
        blocked = sum(g.duration_us for g in trace.longest_gaps if _COLLECTIVE.search(g.cpu_event))
        wait = min((trace.exposed_us + blocked) / steps, step)
        who = f"rank {trace.rank}" if trace.rank is not None else name
        workers.append(Worker(who, None, (step - wait) / 1000, wait / 1000))
    if len(workers) < 2:
        raise InvalidParameter("log", "one trace tells of one rank: give those of at least two")
    return Times(tuple(workers))


def _of_inspector(files: Sequence[tuple[str, bytes]]) -> Times:
    """What is not spent in the operations that all ranks recorded is a rank's own time."""
    shared = _keep_largest(_read_shared(files))
    times = [r.time_us for r in shared if r.time_us]
    hosts = {r.rank: r.host for r in shared}
    if len(hosts) < 2:
        raise InvalidParameter(
            "log", "no operation that all ranks recorded: give the records of every rank"
        )
    whole = (max(times) - min(times)) / 1000 if times else 0.0
    spent: dict[int, float] = defaultdict(float)
    for r in shared:
        spent[r.rank] += r.exec_us / 1000
    if whole <= max(spent.values()):
        raise InvalidParameter("log", "the records carry no dump_timestamp_us over which they spread, so the length of a step is not told: give times instead")  # fmt: skip
    workers = tuple(
        Worker(f"rank {k}", hosts[k], whole - ms, ms) for k, ms in sorted(spent.items())
    )
    return Times(workers, f"the recorded {whole / 1000:,.1f} s stand for one step")


def _read_shared(files: Sequence[tuple[str, bytes]]) -> list[Record]:
    """Records of the operations that all ranks of their communicator recorded."""
    from firstfault_tools.collectives.inspector import parse_record

    by_operation: dict[tuple[str, str, int], list[Record]] = defaultdict(list)
    for name, data in files:
        for number, line in enumerate(data.decode("utf-8", errors="replace").splitlines(), 1):
            record = parse_record(line, name, number)
            if record is not None:
                key = (record.communicator, record.operation, record.sequence)
                by_operation[key].append(record)
    whole = (rows for rows in by_operation.values() if len({x.rank for x in rows}) == rows[0].ranks)
    return [r for rows in whole for r in rows]


def _keep_largest(records: list[Record]) -> list[Record]:
    """Those of the communicator with the most ranks."""
    largest = max(records, key=lambda r: r.ranks, default=None)
    return [r for r in records if largest is not None and r.communicator == largest.communicator]
