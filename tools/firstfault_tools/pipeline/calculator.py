"""The bubble calculator as a tool: parameters in, a JSON-able result out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from firstfault_tools.errors import InvalidParameter
from firstfault_tools.findings import Json
from firstfault_tools.pipeline.bubble import Bubble, check_claim, plan_of, price_plan
from firstfault_tools.pipeline.closed_form import name_formula
from firstfault_tools.pipeline.gantt import gantt_rows
from firstfault_tools.pipeline.questions import (
    compare_virtual,
    cost_of_slow_stage,
    explain_step,
    fewest_microbatches,
    in_flight_chunks,
)
from firstfault_tools.pipeline.times import Schedule
from firstfault_tools.registry import Calculator

SCHEMA = "firstfault.bubble/1"


def describe_bubble(bubble: Bubble) -> dict[str, Json]:
    """The result of one priced plan. Times are in the unit of the inputs."""
    plan = bubble.plan
    stages = range(plan.stages)
    return {
        "schema": SCHEMA,
        "schedule": plan.schedule.value,
        "stages": plan.stages,
        "microbatches": plan.microbatches,
        "virtual": plan.virtual,
        "ratio_to_ideal": bubble.ratio_to_ideal,
        "fraction_of_total": bubble.fraction_of_total,
        "makespan": bubble.makespan,
        "ideal": bubble.ideal,
        "ideal_slowest_stage": bubble.ideal_slowest,
        "without_barrier": {
            "makespan": bubble.without_barrier,
            "ratio_to_ideal": bubble.without_barrier / bubble.ideal - 1,
            "fraction_of_total": 1 - bubble.ideal / bubble.without_barrier,
        },
        "idle_by_stage": list(bubble.idle),
        "busy_by_stage": list(bubble.timeline.busy),
        "in_flight_microbatches_by_stage": [
            in_flight_chunks(plan, r) / plan.virtual for r in stages
        ],
        "closed_form": None
        if bubble.formula is None
        else {
            "idle": bubble.formula.idle,
            "formula": bubble.formula.formula,
            "exact": bubble.formula.exact,
        },
        "assumptions": [
            "W is part of B: B is the full backward, B - W its input-gradient part",
            "transfers overlap with compute; optimizer and data-parallel time are left out",
            "ideal is the mean compute time of a stage",
            "all chunks of a stage take the same time",
        ],
    }


def calculate_bubble(
    schedule: str = "1f1b",
    stages: int = 1,
    microbatches: int = 1,
    virtual: int | None = None,
    forward: float | Sequence[float] = 1.0,
    backward: float | Sequence[float] = 2.0,
    weight: float | Sequence[float] | None = None,
    stage_scale: Sequence[float] | None = None,
    latency: float = 0.0,
    recompute: bool = False,
    pair: float = 1.0,
    at_most: float | None = None,
    observed: float | None = None,
    claimed: float | None = None,
    formula: str | None = None,
    compare: bool = False,
    gantt: bool = False,
    **unknown: object,
) -> Mapping[str, Json]:
    """Price a pipeline step and answer the inverse questions that were asked.

    at_most: fewest micro-batches for this fraction of the total. observed: a measured step time in
    the same unit. claimed, formula: a number or formula found somewhere, to be named or refused.
    compare: table of virtual-stage counts. Raises InvalidParameter.
    """
    for name in unknown:
        raise InvalidParameter(name, "is not a parameter of this calculator")
    meaning = None if formula is None else name_formula(formula)
    plan = plan_of(
        schedule,
        stages,
        microbatches,
        virtual,
        forward,
        backward,
        weight,
        stage_scale,
        latency,
        recompute,
        pair,
    )
    bubble = price_plan(plan, trace=gantt)
    result = describe_bubble(bubble)
    if meaning is not None:
        result["formula_computes"] = meaning
    if claimed is not None:
        result["claimed_is"] = check_claim(bubble, claimed)
    if at_most is not None:
        result["microbatches_needed"] = asdict(fewest_microbatches(plan, at_most))
    if observed is not None:
        result["observed"] = asdict(explain_step(bubble, observed))
    if not plan.times.equal or plan.chunk_scale is not None:
        result["slow_stage"] = asdict(cost_of_slow_stage(plan))
    if compare and plan.schedule in (Schedule.ONE_F_ONE_B, Schedule.INTERLEAVED):
        result["virtual_choices"] = [asdict(choice) for choice in compare_virtual(plan)]
    if gantt:
        result["gantt"] = gantt_rows(bubble.timeline.tasks)
    result["sentence"] = write_sentence(result)
    return result


def write_sentence(result: Mapping[str, Any]) -> str:
    """The answer in words."""
    said = (
        f"{result['schedule']} with {result['stages']} stages and {result['microbatches']} micro-batches "
        f"idles {100 * result['fraction_of_total']:.1f} % of the step "
        f"({100 * result['ratio_to_ideal']:.1f} % of the ideal time)."
    )
    need = result.get("microbatches_needed")
    if need and need["microbatches"]:
        said += f" At most {100 * need['target']:.0f} % needs {need['microbatches']} micro-batches."
    seen = result.get("observed")
    if seen:
        said += f" Of the observed step {100 * seen['bubble_share']:.1f} % is bubble."
    return said


_TIME: dict[str, Any] = {
    "anyOf": [
        {"type": "number", "minimum": 0},
        {"type": "array", "items": {"type": "number", "minimum": 0}},
    ]
}

CALCULATOR = Calculator(
    name="bubble",
    summary="Pipeline bubble of a schedule by exact simulation: ratio to ideal, fraction of total, "
    "micro-batches needed, virtual stages, cost of a slow stage, share of an observed step.",
    parameters={
        "type": "object",
        "required": ["schedule", "stages", "microbatches"],
        "additionalProperties": False,
        "properties": {
            "schedule": {"enum": [s.value for s in Schedule]},
            "stages": {"type": "integer", "minimum": 1, "description": "pipeline ranks"},
            "microbatches": {"type": "integer", "minimum": 1, "description": "per step"},
            "virtual": {"type": "integer", "minimum": 1, "description": "model chunks a rank"},
            "forward": {
                **_TIME,
                "description": "time of one micro-batch; one value or one a stage",
            },
            "backward": {**_TIME, "description": "full backward, weight gradients included"},
            "weight": {**_TIME, "description": "weight-gradient part of backward"},
            "stage_scale": {"type": "array", "items": {"type": "number", "exclusiveMinimum": 0}},
            "latency": {"type": "number", "minimum": 0, "description": "one transfer"},
            "recompute": {"type": "boolean", "description": "full activation recomputation"},
            "pair": {"type": "number", "exclusiveMinimum": 0, "maximum": 1},
            "at_most": {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1},
            "observed": {"type": "number", "exclusiveMinimum": 0},
            "claimed": {"type": "number"},
            "formula": {"type": "string"},
            "compare": {"type": "boolean"},
            "gantt": {"type": "boolean"},
        },
    },
    run=calculate_bubble,
)
