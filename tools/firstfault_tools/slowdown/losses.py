"""How much faster would the step be without each suspect? A synchronous step, replayed without it.

In a synchronous step every rank waits for the slowest, so a step takes the longest computation plus the
communication that nobody waits in. Without a suspect the next longest computation decides. Stages of a
pipeline do not wait for each other so simply: their step is simulated (pipeline/simulation.py).
"""

from __future__ import annotations

from collections.abc import Sequence

from firstfault_tools.averages import median
from firstfault_tools.dataclass import dataclass
from firstfault_tools.errors import InvalidParameter
from firstfault_tools.pipeline.simulation import simulate
from firstfault_tools.pipeline.times import Schedule, StageTimes

SUSPECT = 1.03
"""Computation against the median from which a rank is a suspect: ranks of healthy runs lie within 2-3 %
of each other (evals/truth, two GPUs), and a smaller gain pays for nothing."""

MOST_SUSPECTS = 16


@dataclass(frozen=True, slots=True)
class Worker:
    """Times of one rank in a step, ms. wait: communication and waiting together."""

    name: str
    host: str | None
    compute_ms: float
    wait_ms: float


@dataclass(frozen=True, slots=True)
class Loss:
    """One suspect: how long the step is without it. members: the ranks or stages it stands for."""

    suspect: str
    members: tuple[str, ...]
    step_ms: float
    step_without_ms: float

    @property
    def share(self) -> float:
        """Share of the step that is lost to the suspect."""
        return (self.step_ms - self.step_without_ms) / self.step_ms if self.step_ms else 0.0


def find_losses(workers: Sequence[Worker]) -> tuple[Loss, ...]:
    """Every rank and host without which the step would be shorter, dearest first. Raises InvalidParameter."""
    if len(workers) < 2:
        raise InvalidParameter("times", "times of at least two ranks are needed")
    step = median(w.compute_ms + w.wait_ms for w in workers)
    usual = median(w.compute_ms for w in workers)
    slowest = max(w.compute_ms for w in workers)
    found = []
    for suspect, members in _group(workers, usual):
        rest = [w.compute_ms for w in workers if w.name not in members]
        if rest and max(rest) < slowest:
            without = max(step - (slowest - max(rest)), 0.0)
            found.append(Loss(suspect, tuple(sorted(members)), step, without))
    found.sort(key=lambda loss: (loss.step_without_ms, len(loss.members)))
    return tuple(found[:MOST_SUSPECTS])


def _group(workers: Sequence[Worker], usual: float) -> list[tuple[str, frozenset[str]]]:
    """Single slow ranks, hosts with more than one, and all of them together."""
    slow = [w for w in workers if w.compute_ms > SUSPECT * usual]
    groups = [(w.name, frozenset({w.name})) for w in slow]
    hosts: dict[str, set[str]] = {}
    for w in slow:
        if w.host:
            hosts.setdefault(w.host, set()).add(w.name)
    groups += [(f"host {h}", frozenset(names)) for h, names in hosts.items() if len(names) > 1]
    if 1 < len(slow) <= len(workers) // 2 and not any(len(m) == len(slow) for _, m in groups):
        groups.append((f"all {len(slow)} slow ranks", frozenset(w.name for w in slow)))
    return groups


def find_stage_losses(
    schedule: Schedule, times: StageTimes, micro_batches: int
) -> tuple[Loss, ...]:
    """Every stage of a pipeline that is slower than the median, and the step if it were not."""
    work = [times.work(stage) for stage in range(len(times.forward))]
    usual = median(work)
    whole = simulate(schedule, times, micro_batches).makespan
    found = []
    for stage, cost in enumerate(work):
        if cost > SUSPECT * usual:
            without = simulate(schedule, _level(times, stage), micro_batches).makespan
            found.append(Loss(f"stage {stage}", (f"stage {stage}",), whole, without))
    return tuple(sorted(found, key=lambda loss: loss.step_without_ms))


def _level(times: StageTimes, stage: int) -> StageTimes:
    """The same times with one stage at the median of the others."""

    def level(values: Sequence[float]) -> tuple[float, ...]:
        others = median(v for k, v in enumerate(values) if k != stage)
        return tuple(min(v, others) if k == stage else v for k, v in enumerate(values))

    return StageTimes(level(times.forward), level(times.input_grad), level(times.weight))


def balance_step(workers: Sequence[Worker], micro_batches: int) -> float:
    """Length of the step, ms, if micro-batches move from slow ranks to fast ones as well as they can.

    micro_batches: of every rank today, each taking an equal part of the rank's computation.
    """
    speeds = [w.compute_ms / micro_batches for w in workers]
    total = micro_batches * len(workers)
    low, high = 0.0, max(speeds) * micro_batches
    for _ in range(60):  # halving finds the shortest step in which all micro-batches fit
        middle = (low + high) / 2
        if sum(int(middle / s) if s else total for s in speeds) >= total:
            high = middle
        else:
            low = middle
    return high + min(w.wait_ms for w in workers)
