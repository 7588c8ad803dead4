"""How large is the bubble of this schedule? Simulation, both ratios, where the idle time sits."""

from __future__ import annotations

from collections.abc import Sequence

from firstfault_tools.dataclass import dataclass
from firstfault_tools.errors import InvalidParameter
from firstfault_tools.pipeline.closed_form import ClosedForm, closed_form, wrong_value
from firstfault_tools.pipeline.simulation import Timeline, check_shape, simulate
from firstfault_tools.pipeline.times import (
    MAX_MICROBATCHES,
    MAX_STAGES,
    Schedule,
    StageTimes,
    count_of,
    stage_times,
)


@dataclass(frozen=True, slots=True)
class Plan:
    """One pipeline step to be priced.

    times are per rank; latency, pair and chunk_scale as in `simulate`.
    """

    schedule: Schedule
    times: StageTimes
    microbatches: int
    virtual: int = 1
    latency: float = 0.0
    pair: float = 1.0
    chunk_scale: tuple[float, ...] | None = None

    @property
    def stages(self) -> int:
        """Number of pipeline ranks."""
        return len(self.times.forward)


@dataclass(frozen=True, slots=True)
class Bubble:
    """A priced step. Times are in the unit of the inputs.

    ideal: mean compute time of a rank, the step if nobody ever waited. ratio_to_ideal: (T-I)/I.
    fraction_of_total: (T-I)/T. ideal_slowest: compute time of the busiest rank; what is above it is
    schedule, what lies between it and `ideal` is imbalance. without_barrier: the longest span of
    any one rank, the cost of the step when the next one may start before all ranks are done.
    """

    plan: Plan
    timeline: Timeline
    makespan: float
    ideal: float
    ideal_slowest: float
    ratio_to_ideal: float
    fraction_of_total: float
    without_barrier: float
    formula: ClosedForm | None

    @property
    def idle(self) -> tuple[float, ...]:
        """Idle time of each rank within the step."""
        return tuple(self.makespan - busy for busy in self.timeline.busy)


def plan_of(
    schedule: str,
    stages: int,
    microbatches: int,
    virtual: int | None = None,
    forward: float | Sequence[float] = 1.0,
    backward: float | Sequence[float] = 2.0,
    weight: float | Sequence[float] | None = None,
    stage_scale: Sequence[float] | None = None,
    latency: float = 0.0,
    recompute: bool = False,
    pair: float = 1.0,
) -> Plan:
    """Check every input and build a plan; InvalidParameter names the field and the rule."""
    try:
        kind = Schedule(schedule)
    except ValueError:
        raise InvalidParameter(
            "schedule", f"must be one of {', '.join(Schedule)}, got {schedule!r}"
        ) from None
    count_of("stages", stages, MAX_STAGES)
    count_of("microbatches", microbatches, MAX_MICROBATCHES)
    fixed = 2 if kind is Schedule.ZB_V else 1
    v = fixed if virtual is None else count_of("virtual", virtual, 1024)
    if kind is Schedule.ZB_V and v == 1:
        v = fixed
    if not 0 <= latency < float("inf"):
        raise InvalidParameter("latency", f"must be finite and not negative, got {latency}")
    if not 0 < pair <= 1:
        raise InvalidParameter("pair", f"must be above 0 and at most 1, got {pair}")
    chunks: tuple[float, ...] | None = None
    if stage_scale is not None and v > 1 and len(stage_scale) == stages * v:
        # One factor a model stage, in model order; ranks keep their plain times.
        chunks = stage_times(stages * v, scale=stage_scale).forward
        stage_scale = None
    times = stage_times(stages, forward, backward, weight, stage_scale, recompute)
    check_shape(kind, stages, microbatches, v)
    return Plan(kind, times, microbatches, v, float(latency), float(pair), chunks)


def price_plan(plan: Plan, trace: bool = False) -> Bubble:
    """Simulate `plan` and relate its makespan to the ideal."""
    timeline = simulate(
        plan.schedule,
        plan.times,
        plan.microbatches,
        plan.virtual,
        plan.latency,
        plan.pair,
        trace,
        plan.chunk_scale,
    )
    ideal = sum(timeline.busy) / len(timeline.busy)
    lost = timeline.makespan - ideal
    return Bubble(
        plan=plan,
        timeline=timeline,
        makespan=timeline.makespan,
        ideal=ideal,
        ideal_slowest=max(timeline.busy),
        ratio_to_ideal=lost / ideal,
        fraction_of_total=lost / timeline.makespan,
        without_barrier=max(timeline.span),
        formula=None
        if plan.latency or plan.chunk_scale
        else closed_form(plan.schedule, plan.times, plan.microbatches, plan.virtual, plan.pair),
    )


def check_claim(bubble: Bubble, claimed: float, tolerance: float = 5e-4) -> str:
    """Which number is `claimed`? 'ratio to ideal', 'fraction of total' or 'neither'.

    Raises InvalidParameter when it is the value of the wrong formula (p-1)/(m*p).
    """
    if abs(claimed - bubble.ratio_to_ideal) <= tolerance:
        return "ratio to ideal"
    if abs(claimed - bubble.fraction_of_total) <= tolerance:
        return "fraction of total"
    plan = bubble.plan
    if plan.stages > 1 and abs(claimed - wrong_value(plan.stages, plan.microbatches)) <= tolerance:
        raise InvalidParameter(
            "claimed",
            f"{claimed:g} is (p-1)/(m*p), a formula that circulates and is too low by a factor of "
            f"p = {plan.stages}; the step has ratio {bubble.ratio_to_ideal:.5f} and fraction "
            f"{bubble.fraction_of_total:.5f}",
        )
    return "neither"
