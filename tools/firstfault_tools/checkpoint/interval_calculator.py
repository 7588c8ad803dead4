"""How often should this job save, and what does one failure cost it? The calculator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from firstfault_tools.averages import median
from firstfault_tools.findings import Json
from firstfault_tools.registry import Calculator

_POSITIVE = {"type": "number", "exclusiveMinimum": 0}
PARAMETERS: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "save_seconds": {**_POSITIVE, "description": "how long training stands still for a save"},
        "log": {
            "type": "string",
            "description": "text of a log, from which the save time is read instead",
        },
        "mtbf_hours": {**_POSITIVE, "description": "mean time between failures of the whole job"},
        "failures_per_gpu_hour": {
            **_POSITIVE,
            "description": "instead of mtbf_hours; 419 interruptions in 54 days on 16384 H100s are "
            "2.0e-5 (arXiv 2407.21783)",
        },
        "restart_seconds": {"type": "number", "minimum": 0},
        "interval_seconds": {**_POSITIVE, "description": "what is set now, to be compared"},
        "gpus": {"type": "integer", "minimum": 1},
        "price_per_gpu_hour": {"type": "number", "minimum": 0},
        "step_seconds": {**_POSITIVE, "description": "to say the interval in steps"},
    },
}


EVERYDAY_FAILURES = 419 / (54 * 24 * 16_384)
"""Failures a GPU-hour: 419 unexpected interruptions in 54 days on 16,384 H100 (The Llama 3 Herd of Models,
arXiv 2407.21783, section 3.3.4)."""


def run_interval(
    save_seconds: float | None = None,
    mtbf_hours: float | None = None,
    failures_per_gpu_hour: float | None = None,
    restart_seconds: float = 600.0,
    interval_seconds: float | None = None,
    gpus: int = 1,
    price_per_gpu_hour: float | None = None,
    step_seconds: float | None = None,
    log: str | None = None,
) -> Mapping[str, Json]:
    """Optimal interval, waste, lost work, cost of an incident. Raises InvalidParameter."""
    from firstfault_tools.checkpoint.interval import HOUR, derive_mtbf, plan_interval
    from firstfault_tools.checkpoint.save_time import read_save_seconds
    from firstfault_tools.errors import InvalidParameter

    assumed: list[str] = []
    measured = read_save_seconds(log) if log and save_seconds is None else ()
    if measured:
        save_seconds = median(measured)
    if save_seconds is None:
        raise InvalidParameter(
            "save_seconds", "give it, or a log that says how long saving took (Megatron's save-checkpoint "
            "timer, torchtitan's `Finished saving the checkpoint in`)"
        )  # fmt: skip
    if mtbf_hours is not None:
        mtbf = mtbf_hours * HOUR
    elif failures_per_gpu_hour is not None:
        mtbf = derive_mtbf(gpus, failures_per_gpu_hour)
    elif gpus > 1:
        mtbf = derive_mtbf(gpus, EVERYDAY_FAILURES)
        assumed.append(
            f"one failure in {1 / EVERYDAY_FAILURES:,.0f} GPU-hours, as Llama 3's training met: state "
            "--mtbf-hours or --failures-per-gpu-hour"
        )
    else:
        raise InvalidParameter("mtbf_hours", "give it, or failures_per_gpu_hour and gpus")
    if step_seconds is not None and step_seconds <= 0:
        raise InvalidParameter("step_seconds", f"must be positive, got {step_seconds}")
    plan = plan_interval(
        save_seconds, mtbf, restart_seconds=restart_seconds, interval_seconds=interval_seconds,
        gpus=gpus, price_per_gpu_hour=price_per_gpu_hour,
    )  # fmt: skip
    steps = None if step_seconds is None else max(1, round(plan.daly_seconds / step_seconds))
    said = (
        f"Save every {plan.daly_seconds / 60:.0f} minutes"
        + (f" ({steps} steps)" if steps else "")
        + f": {100 * plan.waste_at_best:.1f} % of the time is then lost to saving and repeated work"
    )
    if measured:
        said += (
            f"; saving took {save_seconds:.1f} s, the median of {len(measured)} saves in the log"
        )
    if interval_seconds is not None:
        said += f", against {100 * plan.waste:.1f} % every {interval_seconds / 60:.0f} minutes"
    return {
        "schema": "firstfault.checkpoint-interval/1",
        "sentence": said + ".",
        "assumptions": [
            *assumed,
            "failures come at random and independently",
            f"a restart takes {restart_seconds:.0f} s: state it with --restart-seconds",
        ],
        "save_s": round(save_seconds, 3),
        "saves_measured": len(measured),
        "mtbf_h": round(plan.mtbf_seconds / HOUR, 4),
        "young_s": round(plan.young_seconds, 2),
        "daly_s": round(plan.daly_seconds, 2),
        "best_interval_steps": steps,
        "interval_s": round(plan.interval_seconds, 2),
        "waste_share": round(plan.waste, 6),
        "waste_share_at_best": round(plan.waste_at_best, 6),
        "lost_work_s": round(plan.lost_work_seconds, 2),
        "incident_gpu_h": round(plan.incident_gpu_hours, 3),
        "incidents_per_day": round(plan.incidents_per_day, 4),
        "incident_cost": None if plan.incident_cost is None else round(plan.incident_cost, 2),
        "gpu_h_per_day_lost": round(plan.waste * gpus * 24, 3),
    }


CALCULATOR = Calculator(
    name="checkpoint_interval",
    summary="Optimal checkpoint interval from the failure rate (Young, Daly), waste against the "
    "interval in use, lost work and cost of one incident in GPU-hours",
    parameters=PARAMETERS,
    run=run_interval,
)
