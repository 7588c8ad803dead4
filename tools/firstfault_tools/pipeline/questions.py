"""What would have to change? Inverse questions: micro-batches, virtual stages, one slow stage.

All answers come from the simulation, so they hold for unequal stages and with transfer latency too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from firstfault_tools.dataclass import dataclass
from firstfault_tools.errors import InvalidParameter
from firstfault_tools.pipeline.bubble import Bubble, Plan, price_plan
from firstfault_tools.pipeline.times import Schedule, StageTimes


@dataclass(frozen=True, slots=True)
class MicrobatchAnswer:
    """microbatches: fewest that reach `target`, None if none does; floor: what the fraction tends
    to.
    """

    target: float
    microbatches: int | None
    fraction_of_total: float | None
    floor: float


@dataclass(frozen=True, slots=True)
class VirtualChoice:
    """One candidate v.

    activation_factor: stage-0 activations against v = 1 (1 + (p-1)/(p*v)...).
    """

    virtual: int
    makespan: float
    ratio_to_ideal: float
    fraction_of_total: float
    activation_factor: float
    transfers: int


@dataclass(frozen=True, slots=True)
class SlowStage:
    """What the slowest rank costs. balanced: makespan with the same work spread evenly."""

    stage: int
    times_the_median: float
    makespan: float
    balanced: float
    cost: float
    cost_share: float


@dataclass(frozen=True, slots=True)
class ObservedStep:
    """An observed step set against the schedule: bubble, compute and what neither explains."""

    observed: float
    compute_share: float
    bubble_share: float
    unexplained: float
    unexplained_share: float


def in_flight_chunks(plan: Plan, rank: int) -> int:
    """Most forward chunks alive on `rank` at once; each holds 1/virtual of the rank's layers."""
    p, m, v = plan.stages, plan.microbatches, plan.virtual
    if plan.schedule is Schedule.GPIPE:
        return m
    if plan.schedule is Schedule.INTERLEAVED and v > 1:
        return min(m * v, 2 * (p - rank - 1) + (v - 1) * p + 1)
    if plan.schedule is Schedule.ZB_H1:
        return min(m, p)
    if plan.schedule is Schedule.ZB_V:
        return min(2 * m, 2 * p)
    if plan.schedule is Schedule.DUALPIPE:
        return min(m, p + 1)
    return min(m, p - rank)


def busy_per_microbatch(plan: Plan) -> list[float]:
    """Compute time of one micro-batch on each rank, all its chunks together."""
    work = [plan.times.work(r) for r in range(plan.stages)]
    if plan.chunk_scale is None:
        return work
    p, v = plan.stages, plan.virtual
    vee = plan.schedule is Schedule.ZB_V
    mine = [
        [s for s in range(p * v) if (min(s, 2 * p - 1 - s) if vee else s % p) == r]
        for r in range(p)
    ]
    return [work[r] * sum(plan.chunk_scale[s] for s in mine[r]) / v for r in range(p)]


def _step_of(schedule: Schedule, p: int) -> tuple[int, int]:
    if schedule is Schedule.INTERLEAVED:
        return p, p
    if schedule is Schedule.DUALPIPE:
        return 2 * p, 2
    return 1, 1


def fewest_microbatches(plan: Plan, fraction: float, most: int = 16_384) -> MicrobatchAnswer:
    """Fewest micro-batches with at most `fraction` of the total lost. Searches by halving."""
    if not 0 < fraction < 1:
        raise InvalidParameter("at_most", f"must lie between 0 and 1, got {fraction}")
    first, step = _step_of(plan.schedule, plan.stages)
    work = busy_per_microbatch(plan)
    floor = 1 - (sum(work) / len(work)) / max(work)

    def lost(m: int) -> float:
        return price_plan(replace(plan, microbatches=m)).fraction_of_total

    if floor >= fraction:
        return MicrobatchAnswer(fraction, None, None, floor)
    # Keep each probe small enough to answer at once; the operations grow with p*v*m.
    most = min(most, max(first, 400_000 // (plan.stages * plan.virtual)))
    high = first
    while lost(high) > fraction + 1e-12:
        if high >= most:
            return MicrobatchAnswer(fraction, None, None, floor)
        high = min(most - (most - first) % step, first + max(step, (high - first) * 2))
    low = first
    while low < high:
        middle = low + (high - low) // (2 * step) * step
        if lost(middle) <= fraction + 1e-12:
            high = middle
        else:
            low = middle + step
    return MicrobatchAnswer(fraction, high, lost(high), floor)


def compare_virtual(
    plan: Plan, candidates: Sequence[int] = (1, 2, 3, 4, 6, 8)
) -> list[VirtualChoice]:
    """Every candidate v, best makespan first (the smaller v on a tie, since v costs memory)."""
    p, m = plan.stages, plan.microbatches
    if m % p:
        raise InvalidParameter(
            "microbatches", f"interleaving needs a multiple of stages = {p}, got {m}"
        )
    base = min(m, p)
    choices = []
    for v in candidates:
        if 2 * p * m * v > 1_000_000:
            continue
        trial = replace(plan, schedule=Schedule.INTERLEAVED, virtual=v, chunk_scale=None)
        priced = price_plan(trial)
        choices.append(
            VirtualChoice(
                virtual=v,
                makespan=priced.makespan,
                ratio_to_ideal=priced.ratio_to_ideal,
                fraction_of_total=priced.fraction_of_total,
                activation_factor=in_flight_chunks(trial, 0) / v / base,
                transfers=2 * m * (p * v - 1),
            )
        )
    return sorted(choices, key=lambda c: (round(c.makespan, 9), c.virtual))


def cost_of_slow_stage(plan: Plan) -> SlowStage:
    """What the busiest rank costs against the same total work spread evenly over the ranks."""
    work = busy_per_microbatch(plan)
    slow = max(range(plan.stages), key=work.__getitem__)
    middle = sorted(work)[len(work) // 2]

    def even(values: tuple[float, ...]) -> tuple[float, ...]:
        return (sum(values) / len(values),) * len(values)

    t = plan.times
    share = sum(work) / sum(t.work(r) for r in range(plan.stages))
    flat = StageTimes(
        *(tuple(x * share for x in even(v)) for v in (t.forward, t.input_grad, t.weight))
    )
    balanced = price_plan(replace(plan, times=flat, chunk_scale=None)).makespan
    now = price_plan(plan).makespan
    return SlowStage(
        stage=slow,
        times_the_median=work[slow] / middle,
        makespan=now,
        balanced=balanced,
        cost=now - balanced,
        cost_share=(now - balanced) / now,
    )


def explain_step(bubble: Bubble, observed: float) -> ObservedStep:
    """Split an observed step time into compute, bubble and the rest (optimizer, exposed transfers)."""
    if not 0 < observed < float("inf"):
        raise InvalidParameter("observed", f"must be a positive time, got {observed}")
    return ObservedStep(
        observed=observed,
        compute_share=bubble.ideal / observed,
        bubble_share=(bubble.makespan - bubble.ideal) / observed,
        unexplained=observed - bubble.makespan,
        unexplained_share=(observed - bubble.makespan) / observed,
    )
