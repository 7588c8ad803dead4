"""Which is cheapest: to bear a slow part, to rebalance, to swap the node, or to restart here?

A loss of GPU-hours goes on for as long as the run does; a remedy costs once. So whatever is cheaper over
the hours that are left wins, and until then the break-even says how long bearing it stays reasonable
(the ski-rental view of arXiv 2410.12588, which escalates the remedy as the loss accumulates).
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from firstfault_tools.dataclass import dataclass
from firstfault_tools.slowdown.losses import Loss, Worker, balance_step


class Remedy(StrEnum):
    """What can be done about a slow part."""

    BEAR = "bear it"
    REBALANCE = "rebalance"
    SWAP = "swap the node"
    RESTART = "restart here"


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What the arithmetic needs to know of the job.

    gpus: of the whole job. hours_left: that it still has to run at its healthy pace. restart_minutes: from
    stop to the first step. unsaved_minutes: work since the last checkpoint. swap_minutes: to get a node.
    """

    gpus: int
    hours_left: float
    restart_minutes: float = 15.0
    unsaved_minutes: float = 0.0
    swap_minutes: float = 0.0
    micro_batches: int = 0


@dataclass(frozen=True, slots=True)
class Option:
    """One remedy over the hours left, in GPU-hours. once: paid for it; going_on: still lost after it."""

    remedy: Remedy
    once: float
    going_on: float
    arithmetic: str

    @property
    def total(self) -> float:
        """GPU-hours lost altogether."""
        return self.once + self.going_on


def weigh_remedies(loss: Loss, workers: Sequence[Worker], job: Circumstances) -> tuple[Option, ...]:
    """Every remedy that applies, cheapest first."""
    slower = loss.step_ms / loss.step_without_ms if loss.step_without_ms else 1.0
    borne = job.gpus * job.hours_left * (slower - 1)
    stop = job.restart_minutes + job.unsaved_minutes
    options = [
        Option(
            Remedy.BEAR, 0.0, borne,
            f"{job.gpus} GPUs x {job.hours_left:g} h x ({loss.step_ms:.4g} / {loss.step_without_ms:.4g} - 1)",
        ),
        Option(
            Remedy.SWAP, job.gpus * (stop + job.swap_minutes) / 60, 0.0,
            f"{job.gpus} GPUs x ({_minutes(job, job.swap_minutes)}) / 60",
        ),
        Option(
            Remedy.RESTART, job.gpus * stop / 60, borne,
            f"{job.gpus} GPUs x ({_minutes(job)}) / 60, and all of the loss unless it was the processes' own",
        ),
    ]  # fmt: skip
    if job.micro_batches > 1 and len(workers) > 1:
        balanced = balance_step(workers, job.micro_batches)
        left = max(balanced / loss.step_without_ms - 1, 0.0) if loss.step_without_ms else 0.0
        options.append(
            Option(
                Remedy.REBALANCE, job.gpus * stop / 60, job.gpus * job.hours_left * left,
                f"{job.gpus} GPUs x ({_minutes(job)}) / 60 + {job.gpus} x {job.hours_left:g} h x ({balanced:.4g} / {loss.step_without_ms:.4g} - 1)",
            )
        )  # fmt: skip
    return tuple(sorted(options, key=lambda o: (o.total, o.once)))


def _minutes(job: Circumstances, swap: float = 0.0) -> str:
    parts = [f"{job.restart_minutes:g} min to restart"]
    if job.unsaved_minutes:
        parts.append(f"{job.unsaved_minutes:g} min of work lost")
    if swap:
        parts.append(f"{swap:g} min for the node")
    return " + ".join(parts)


def find_break_even(loss: Loss, job: Circumstances) -> float:
    """Hours of the run from which on swapping the node is cheaper than bearing the loss."""
    share = loss.step_ms / loss.step_without_ms - 1 if loss.step_without_ms else 0.0
    stop = (job.restart_minutes + job.unsaved_minutes + job.swap_minutes) / 60
    return stop / share if share > 0 else float("inf")
