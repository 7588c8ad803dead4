"""When does each operation start and end? Exact event simulation of a pipeline schedule.

A rank runs its operations in the given order, one at a time. An operation starts when the rank is
free and its input has arrived: a forward needs the stage before, a backward the stage after, plus
`latency` where they live on different ranks. Transfers overlap with compute. Nothing is rounded or
sampled; the result is the longest path through the dependency graph.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from firstfault_tools.dataclass import dataclass
from firstfault_tools.errors import InvalidParameter, ToolError
from firstfault_tools.pipeline.orders import (
    Kind,
    Op,
    Orders,
    chunk_order,
    operation_orders,
    warmup_chunks,
)
from firstfault_tools.pipeline.times import MAX_OPERATIONS, Schedule, StageTimes


@dataclass(frozen=True, slots=True)
class Task:
    """One bar of the Gantt chart.

    stage: pipeline rank; chunk: model chunk or DualPipe direction.
    """

    stage: int
    microbatch: int
    kind: str
    start: float
    end: float
    chunk: int = 0


@dataclass(frozen=True, slots=True)
class Timeline:
    """What a simulated step looks like.

    makespan: first start to last end over all ranks. busy: compute time of each rank. span: each
    rank's own first start to last end, which is what counts when no barrier ends the step. tasks:
    only when they were asked for.
    """

    makespan: float
    busy: tuple[float, ...]
    span: tuple[float, ...]
    tasks: tuple[Task, ...] = ()


LETTER = {
    Kind.FORWARD: "F",
    Kind.BACKWARD: "B",
    Kind.INPUT_GRAD: "I",
    Kind.WEIGHT_GRAD: "W",
}


class _Stream:
    """The forwards or the backwards of one rank: their end times so far, and what each waits for."""

    __slots__ = ("cost", "delay", "ends", "lag", "source", "waits")

    def __init__(self, cost: float, delay: float, lag: int, waits: Sequence[bool]) -> None:
        self.cost, self.delay, self.lag, self.waits = cost, delay, lag, waits
        self.ends: list[float] = []
        self.source: list[float] = []
        """End times of the operations that this stream's own wait for, `lag` places ahead."""


def _run_rank(forward: _Stream, backward: _Stream, warm: int) -> Iterator[None]:
    """Run the operations of a rank; gives way where an input is missing.

    What the loop reads has names of its own, which it keeps from one turn to the next.
    """
    f_cost, f_delay, f_lag, f_waits = forward.cost, forward.delay, forward.lag, forward.waits
    b_cost, b_delay, b_lag, b_waits = backward.cost, backward.delay, backward.lag, backward.waits
    f_source, b_source = forward.source, backward.source
    f_ends, b_ends = forward.ends, backward.ends
    total, ahead, done, now = len(f_waits), 0, 0, 0.0
    while done < total:
        if ahead < total and ahead - done <= warm:
            cost, waits, ends = f_cost, f_waits[ahead], f_ends
            source, at, delay = f_source, ahead - f_lag, f_delay
            ahead += 1
        else:
            cost, waits, ends = b_cost, b_waits[done], b_ends
            source, at, delay = b_source, done - b_lag, b_delay
            done += 1
        if waits:
            while at >= len(source):
                yield
            ready = source[at] + delay
            if ready > now:
                now = ready
        now += cost
        ends.append(now)


def _march(
    p: int, m: int, v: int, schedule: Schedule, times: StageTimes, latency: float
) -> tuple[list[list[float]], list[list[float]]]:
    """End times of all forwards and backwards, by rank and running index, for the 1F1B family.

    All ranks share one sequence of forwards and one of backwards, so that operation k of a rank
    depends on operation k of its neighbour (k-p across chunks) and no look-up by stage is needed.
    """
    total, last = m * v, p - 1
    # chunk 0 reads the data loader and the last chunk's backward starts from its own loss
    wraps = [c > 0 for c, _ in chunk_order(p, m, v)] if v > 1 else [False] * total
    edge = (0.0 if p == 1 else latency, p, wraps)
    inner = (latency, 0, [True] * total)
    forwards = [_Stream(times.forward[r] / v, *(inner if r else edge)) for r in range(p)]
    backwards = [_Stream(times.backward(r) / v, *(inner if r < last else edge)) for r in range(p)]
    for r in range(p):
        forwards[r].source = forwards[r - 1].ends
        backwards[r].source = backwards[(r + 1) % p].ends
    ranks = [
        _run_rank(forwards[r], backwards[r], warmup_chunks(schedule, p, m, v, r)) for r in range(p)
    ]
    ends = [stream.ends for stream in (*forwards, *backwards)]
    done, before = 0, -1
    while before < done < 2 * total * p:
        before = done
        # Forwards flow down the ranks and backwards up, so sweep both ways.
        for rank in (*ranks, *reversed(ranks)):
            next(rank, None)
        done = sum(map(len, ends))
    if done < 2 * total * p:
        raise ToolError("pipeline simulation: the operation order deadlocks")
    return [f.ends for f in forwards], [b.ends for b in backwards]


def _flat_timeline(
    p: int, m: int, v: int, schedule: Schedule, times: StageTimes, latency: float, trace: bool
) -> Timeline:
    ends_f, ends_b = _march(p, m, v, schedule, times, latency)
    tasks: list[Task] = []
    if trace:
        order = chunk_order(p, m, v) if v > 1 else [(0, mb) for mb in range(m)]
        for r in range(p):
            f, b = times.forward[r] / v, times.backward(r) / v
            for (chunk, mb), end in zip(order, ends_f[r], strict=True):
                tasks.append(Task(r, mb, "F", end - f, end, chunk))
            for (chunk, mb), end in zip(order, ends_b[r], strict=True):
                tasks.append(Task(r, mb, "B", end - b, end, v - 1 - chunk))
        tasks.sort(key=lambda task: (task.stage, task.start, task.end))
    first = [ends_f[r][0] - times.forward[r] / v for r in range(p)]
    return Timeline(
        makespan=max(line[-1] for line in ends_b) - min(first),
        busy=tuple(m * times.work(r) for r in range(p)),
        span=tuple(ends_b[r][-1] - first[r] for r in range(p)),
        tasks=tuple(tasks),
    )


class _Machine:
    """State of the general simulation: end times by kind, stage and micro-batch, and each rank's own."""

    def __init__(
        self, orders: Orders, durations: dict[tuple[Kind, int], float], latency: float,
        pair: float, trace: bool,
    ) -> None:  # fmt: skip
        self.orders, self.durations, self.latency, self.pair = orders, durations, latency, pair
        self.forward: dict[tuple[int, int], float] = {}
        self.backward: dict[tuple[int, int], float] = {}
        p = len(orders.ranks)
        self.at, self.free, self.busy = [0] * p, [0.0] * p, [0.0] * p
        self.first: list[float | None] = [None] * p
        self.trace, self.tasks = trace, list[Task]()

    def run_next(self, r: int) -> bool:
        """Run the next operation of rank `r`; False where none is left or its input is missing."""
        ops, at = self.orders.ranks[r], self.at[r]
        if at == len(ops):
            return False
        parts = ops[at + 1 : at + 3] if ops[at][0] is Kind.PAIR else ops[at : at + 1]
        known = [self.ready(op) for op in parts]
        arrivals = [ready for ready in known if ready is not None]
        if len(arrivals) < len(known):
            return False
        start = max(self.free[r], *arrivals)
        cost = sum(self.durations[op[0], op[1]] for op in parts)
        if len(parts) == 2:
            cost *= self.pair
        for op in parts:
            self.finish(op, start + cost)
            if self.trace:
                chunk = op[1] // len(self.at)
                self.tasks.append(Task(r, op[2], LETTER[op[0]], start, start + cost, chunk))
        if self.first[r] is None:
            self.first[r] = start
        self.busy[r] += cost
        self.free[r] = start + cost
        self.at[r] += 1 if len(parts) == 1 else 3
        return True

    def ready(self, op: Op) -> float | None:
        """When the input of `op` is there, or None while that is not known."""
        kind, stage, mb = op
        if kind is Kind.WEIGHT_GRAD:
            return self.backward.get((stage, mb))
        if kind is Kind.FORWARD:
            if stage in self.orders.starts:
                return 0.0
            source, other = self.forward.get((stage - 1, mb)), stage - 1
        else:
            own = self.forward.get((stage, mb))
            if own is None or stage in self.orders.ends:
                return own
            source, other = self.backward.get((stage + 1, mb)), stage + 1
        if source is None:
            return None
        rank_of = self.orders.rank_of
        return source + (self.latency if rank_of[other] != rank_of[stage] else 0.0)

    def finish(self, op: Op, end: float) -> None:
        """Record that `op` ended."""
        kind, stage, mb = op
        if kind is Kind.FORWARD:
            self.forward[stage, mb] = end
        elif kind in (Kind.BACKWARD, Kind.INPUT_GRAD):
            self.backward[stage, mb] = end


def _general_timeline(
    orders: Orders,
    durations: dict[tuple[Kind, int], float],
    latency: float,
    pair: float,
    trace: bool,
) -> Timeline:
    machine = _Machine(orders, durations, latency, pair, trace)
    p = len(orders.ranks)
    moved = True
    while moved:
        moved = False
        for r in (*range(p), *range(p - 1, -1, -1)):
            while machine.run_next(r):
                moved = True
    if any(at < len(ops) for at, ops in zip(machine.at, orders.ranks, strict=True)):
        raise ToolError("pipeline simulation: the operation order deadlocks")
    begin = [start or 0.0 for start in machine.first]
    return Timeline(
        makespan=max(machine.free) - min(begin),
        busy=tuple(machine.busy),
        span=tuple(end - start for start, end in zip(begin, machine.free, strict=True)),
        tasks=tuple(sorted(machine.tasks, key=lambda task: (task.stage, task.start, task.end))),
    )


def check_shape(schedule: Schedule, p: int, m: int, v: int) -> None:
    """Raise InvalidParameter where `schedule` cannot run with p stages, m micro-batches, v chunks."""
    if schedule is Schedule.INTERLEAVED:
        if m % p:
            raise InvalidParameter(
                "microbatches",
                f"interleaving works in groups of one micro-batch a stage: must be a multiple of "
                f"stages = {p}, got {m}",
            )
    elif v != (2 if schedule is Schedule.ZB_V else 1):
        only = "2 (its V)" if schedule is Schedule.ZB_V else "1"
        raise InvalidParameter("virtual", f"{schedule.value} has {only} chunk(s) a rank, got {v}")
    if 2 * p * m * v > MAX_OPERATIONS:
        raise InvalidParameter(
            "microbatches",
            f"stages x microbatches x chunks x 2 must stay below {MAX_OPERATIONS:,} operations",
        )


def simulate(
    schedule: Schedule,
    times: StageTimes,
    m: int,
    v: int = 1,
    latency: float = 0.0,
    pair: float = 1.0,
    trace: bool = False,
    chunk_scale: tuple[float, ...] | None = None,
) -> Timeline:
    """Run one step. times: per rank, for whole ranks; chunks share them evenly.

    latency: time of one transfer between ranks. pair: DualPipe only, time of an overlapped forward
    and backward as a share of their sum. trace: also return every task.
    """
    p = len(times.forward)
    check_shape(schedule, p, m, v)
    flat = (Schedule.GPIPE, Schedule.ONE_F_ONE_B, Schedule.INTERLEAVED)
    if schedule in flat and chunk_scale is None:
        return _flat_timeline(p, m, v, schedule, times, latency, trace)
    orders = operation_orders(schedule, p, m, v)
    share = 1 if schedule is Schedule.DUALPIPE else v
    durations: dict[tuple[Kind, int], float] = {}
    for stage, rank in enumerate(orders.rank_of):
        part = (1.0 if chunk_scale is None else chunk_scale[stage]) / share
        durations[Kind.FORWARD, stage] = times.forward[rank] * part
        durations[Kind.INPUT_GRAD, stage] = times.input_grad[rank] * part
        durations[Kind.WEIGHT_GRAD, stage] = times.weight[rank] * part
        durations[Kind.BACKWARD, stage] = times.backward(rank) * part
    return _general_timeline(orders, durations, latency, pair, trace)
