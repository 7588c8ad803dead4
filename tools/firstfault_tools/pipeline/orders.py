"""In which order does each rank run its forwards and backwards? One list of operations a rank.

Sources of the orders: 1F1B and interleaving as Megatron-Core's schedules.py issues them (warm-up of
(p-r-1) or 2(p-r-1)+(v-1)p chunks, groups of p micro-batches); ZB-H1 and ZB-V from the zero-bubble
paper (arXiv 2401.10241) as PyTorch's pipelining schedules realise them; DualPipe from the eight
steps of deepseek-ai/DualPipe.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from enum import IntEnum

from firstfault_tools.dataclass import dataclass
from firstfault_tools.errors import InvalidParameter
from firstfault_tools.pipeline.times import Schedule


class Kind(IntEnum):
    """What an operation computes."""

    FORWARD = 0
    BACKWARD = 1
    INPUT_GRAD = 2
    WEIGHT_GRAD = 3
    PAIR = 4
    """One forward and one backward of different micro-batches, overlapped (DualPipe)."""


Op = tuple[Kind, int, int]
"""kind, stage, micro-batch; a PAIR is followed in the list by its two halves."""


@dataclass(frozen=True, slots=True)
class Orders:
    """Operation order of every rank and how stages are laid out.

    ranks: one list of operations a rank. rank_of: stage -> rank. starts, ends: the stages that
    begin and end a chain of stages (two chains for DualPipe's two directions).
    """

    ranks: tuple[tuple[Op, ...], ...]
    rank_of: tuple[int, ...]
    starts: frozenset[int]
    ends: frozenset[int]


def warmup_chunks(schedule: Schedule, p: int, m: int, v: int, rank: int) -> int:
    """Forward chunks that `rank` runs before its first backward, less the one just before it."""
    if schedule is Schedule.GPIPE:
        return m
    if schedule is Schedule.INTERLEAVED and v > 1:
        return min(m * v, 2 * (p - rank - 1) + (v - 1) * p)
    return min(m, p - rank - 1)


def chunk_order(p: int, m: int, v: int) -> list[tuple[int, int]]:
    """(chunk, micro-batch) of every forward in turn: groups of p micro-batches, chunk by chunk."""
    return [
        (chunk, mb)
        for start in range(0, m, p)
        for chunk in range(v)
        for mb in range(start, min(start + p, m))
    ]


def _flat(schedule: Schedule, p: int, m: int, v: int) -> Orders:
    forwards = chunk_order(p, m, v) if v > 1 else [(0, mb) for mb in range(m)]
    ranks = []
    for rank in range(p):
        warm = warmup_chunks(schedule, p, m, v, rank)
        ops: list[Op] = [(Kind.FORWARD, c * p + rank, mb) for c, mb in forwards[:warm]]
        done = 0
        for c, mb in forwards[warm:]:
            ops.append((Kind.FORWARD, c * p + rank, mb))
            bc, bmb = forwards[done]
            ops.append((Kind.BACKWARD, (v - 1 - bc) * p + rank, bmb))
            done += 1
        ops += [(Kind.BACKWARD, (v - 1 - c) * p + rank, mb) for c, mb in forwards[done:]]
        ranks.append(tuple(ops))
    return Orders(
        tuple(ranks),
        tuple(stage % p for stage in range(p * v)),
        frozenset({0}),
        frozenset({p * v - 1}),
    )


def _zb_h1(p: int, m: int) -> Orders:
    ranks = []
    for rank in range(p):
        warm = min(m, p - rank - 1)
        ops: list[Op] = [(Kind.FORWARD, rank, mb) for mb in range(warm)]
        weights = 0
        for backward in range(m):
            if warm + backward < m:
                ops.append((Kind.FORWARD, rank, warm + backward))
            ops.append((Kind.INPUT_GRAD, rank, backward))
            # Rank r holds back r weight gradients, so that every rank keeps p micro-batches alive.
            if backward >= rank:
                ops.append((Kind.WEIGHT_GRAD, rank, weights))
                weights += 1
        ops += [(Kind.WEIGHT_GRAD, rank, mb) for mb in range(weights, m)]
        ranks.append(tuple(ops))
    return Orders(tuple(ranks), tuple(range(p)), frozenset({0}), frozenset({p - 1}))


class _FoldedRank:
    """Operation list of one ZB-V rank, which holds two chunks; surplus micro-batches drop out."""

    def __init__(self, p: int, m: int, rank: int) -> None:
        self.m, self.stage = m, (rank, 2 * p - 1 - rank)
        self.ops: list[Op] = []
        self.done: Counter[tuple[Kind, int]] = Counter()

    def run(self, chunk: int, *kinds: Kind) -> None:
        for kind in kinds:
            mb = self.done[kind, chunk]
            self.done[kind, chunk] += 1
            if mb < self.m:
                self.ops.append((kind, self.stage[chunk], mb))


def _zb_v_rank(p: int, m: int, rank: int) -> tuple[Op, ...]:
    # The pattern needs 2p-1 micro-batches to fill; with fewer, the surplus operations drop out.
    full = max(2 * p - 1, m)
    line = _FoldedRank(p, m, rank)
    done, f, i, w = line.done, Kind.FORWARD, Kind.INPUT_GRAD, Kind.WEIGHT_GRAD
    for _ in range(2 * (p - rank) - 1):
        line.run(0, f)
    for _ in range(rank):
        line.run(1, f)
        line.run(0, f)
    for _ in range(p - rank):
        line.run(1, f, i, w)
    while done[f, 1] < done[f, 0] or done[f, 0] < full:
        if done[f, 0] < full:
            line.run(0, f)
        line.run(0, i, w)
        line.run(1, f, i, w)
    for _ in range(rank):
        line.run(0, i)
        line.run(1, i)
    for _ in range(p - rank):
        line.run(0, i, w)
    while done[w, 1] < done[i, 1]:
        line.run(1, w)
    while done[w, 0] < done[i, 0]:
        line.run(0, w)
    return tuple(line.ops)


def _zb_v(p: int, m: int) -> Orders:
    rank_of = tuple(min(stage, 2 * p - 1 - stage) for stage in range(2 * p))
    ranks = tuple(_zb_v_rank(p, m, rank) for rank in range(p))
    return Orders(ranks, rank_of, frozenset({0}), frozenset({2 * p - 1}))


class _DualRank:
    """Operation list of one DualPipe rank. Direction 0 runs down the ranks, 1 runs up."""

    def __init__(self, p: int, rank: int) -> None:
        self.p, self.rank = p, rank
        self.flip = 1 if rank >= p // 2 else 0
        self.ops: list[Op] = []
        self.forwards, self.backwards = [0, 0], [0, 0]
        self.pending: list[Op] = []

    def _stage(self, phase: int) -> int:
        direction = phase ^ self.flip
        return direction * self.p + (self.rank if direction == 0 else self.p - 1 - self.rank)

    def forward(self, phase: int) -> None:
        self.ops.append((Kind.FORWARD, self._stage(phase), self.forwards[phase]))
        self.forwards[phase] += 1

    def backward(self, phase: int, split: bool = False) -> None:
        kind = Kind.INPUT_GRAD if split else Kind.BACKWARD
        op = (kind, self._stage(phase), self.backwards[phase])
        self.ops.append(op)
        self.backwards[phase] += 1
        if split:
            self.pending.append((Kind.WEIGHT_GRAD, op[1], op[2]))

    def weight(self) -> None:
        self.ops.append(self.pending.pop(0))

    def pair(self, forward: int, backward: int) -> None:
        self.ops.append((Kind.PAIR, 0, 0))
        self.forward(forward)
        self.backward(backward)


def _dualpipe_rank(p: int, m: int, rank: int) -> tuple[Op, ...]:
    line = _DualRank(p, rank)
    half = min(rank, p - 1 - rank)
    outer, inner = p // 2 - half - 1, half + 1
    for _ in range(2 * outer):
        line.forward(0)
    for _ in range(inner):
        line.forward(0)
        line.forward(1)
    for _ in range(outer):
        line.backward(1, split=True)
        line.weight()
        line.forward(1)
    for turn in range(m // 2 - p + inner):
        if turn == 0 and outer == 0:
            # The middle ranks run their first two chunks one after the other: the neighbour waits.
            line.forward(0)
            line.backward(1)
        else:
            line.pair(0, 1)
        line.pair(1, 0)
    for _ in range(outer):
        line.backward(1)
        line.pair(1, 0)
    # Weight gradients are held back from the middle of these backwards on.
    for turn in range(inner):
        line.backward(1, split=turn >= (inner + 1) // 2)
        line.backward(0, split=turn >= inner // 2)
    for _ in range(outer):
        line.weight()
        line.backward(0, split=True)
    while line.pending:
        line.weight()
    return tuple(line.ops)


def _dualpipe(p: int, m: int) -> Orders:
    if p % 2:
        raise InvalidParameter("stages", f"DualPipe needs an even number of ranks, got {p}")
    if m % 2 or m < 2 * p:
        raise InvalidParameter(
            "microbatches",
            f"DualPipe needs an even number of at least 2 x stages = {2 * p}, got {m}",
        )
    return Orders(
        tuple(_dualpipe_rank(p, m, rank) for rank in range(p)),
        tuple(range(p)) + tuple(reversed(range(p))),
        frozenset({0, p}),
        frozenset({p - 1, 2 * p - 1}),
    )


def operation_orders(schedule: Schedule, p: int, m: int, v: int = 1) -> Orders:
    """Operation order of every rank.

    p: pipeline ranks. m: micro-batches a step (DualPipe: both directions together). v: model chunks
    a rank (interleaved only). Raises InvalidParameter where the schedule cannot run.
    """
    build: dict[Schedule, Callable[[], Orders]] = {
        Schedule.ZB_H1: lambda: _zb_h1(p, m),
        Schedule.ZB_V: lambda: _zb_v(p, m),
        Schedule.DUALPIPE: lambda: _dualpipe(p, m),
    }
    return build[schedule]() if schedule in build else _flat(schedule, p, m, v)
