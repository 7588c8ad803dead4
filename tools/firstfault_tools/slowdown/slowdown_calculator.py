"""What does each slow rank, host or stage cost a day, and what is the cheapest thing to do? The calculator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from firstfault_tools.errors import InvalidParameter
from firstfault_tools.findings import Json
from firstfault_tools.registry import Calculator
from firstfault_tools.slowdown.sources import Times, read_times

MOST_ROWS = 65_536
_POSITIVE: dict[str, Any] = {"type": "number", "exclusiveMinimum": 0}
PARAMETERS: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "times": {
            "type": "array",
            "description": "one object a rank: name, host, compute_ms, wait_ms",
            "items": {"type": "object"},
        },
        "log": {
            "type": "string",
            "description": "instead: text with such times, timers of all ranks, or Inspector records",
        },
        "stage_ms": {
            "type": "array",
            "items": _POSITIVE,
            "description": "instead: forward and backward of one micro-batch on each pipeline stage",
        },
        "schedule": {"enum": ["gpipe", "1f1b", "interleaved", "zb-h1"]},
        "micro_batches": {"type": "integer", "minimum": 1},
        "gpus": {"type": "integer", "minimum": 1, "description": "of the whole job"},
        "hours_left": _POSITIVE,
        "restart_minutes": {"type": "number", "minimum": 0},
        "unsaved_minutes": {"type": "number", "minimum": 0},
        "swap_minutes": {"type": "number", "minimum": 0},
        "price_per_gpu_hour": {"type": "number", "minimum": 0},
    },
}


def run_slowdown(
    times: Sequence[Mapping[str, Any]] | None = None,
    log: str | Sequence[tuple[str, bytes]] | None = None,
    stage_ms: Sequence[float] | None = None,
    schedule: str = "1f1b",
    micro_batches: int = 0,
    gpus: int | None = None,
    hours_left: float = 24.0,
    restart_minutes: float = 15.0,
    unsaved_minutes: float = 0.0,
    swap_minutes: float = 0.0,
    price_per_gpu_hour: float | None = None,
) -> Mapping[str, Json]:
    """Losses by suspect and remedies by cost, in GPU-hours. log: text, or files as name and content. Raises InvalidParameter."""
    from firstfault_tools.pipeline.times import Schedule, stage_times
    from firstfault_tools.slowdown.losses import find_losses, find_stage_losses
    from firstfault_tools.slowdown.remedies import Circumstances, find_break_even, weigh_remedies

    told = read_workers(times, log) if stage_ms is None else Times(())
    workers = told.workers
    if stage_ms is not None:
        if micro_batches < 1:
            raise InvalidParameter("micro_batches", "is needed with stage_ms")
        stages = stage_times(
            len(stage_ms), [t / 3 for t in stage_ms], [2 * t / 3 for t in stage_ms]
        )
        losses = find_stage_losses(Schedule(schedule), stages, micro_batches)
    else:
        losses = find_losses(workers)
    count = gpus or len(workers) or len(stage_ms or ())
    job = Circumstances(count, hours_left, restart_minutes, unsaved_minutes, swap_minutes, micro_batches)  # fmt: skip
    price = price_per_gpu_hour
    rows: list[Json] = [
        {
            "suspect": loss.suspect,
            "members": list(loss.members),
            "step_ms": round(loss.step_ms, 3),
            "step_without_ms": round(loss.step_without_ms, 3),
            "gpu_h_per_day": round(loss.share * count * 24, 2),
            "cost_per_day": None if price is None else round(loss.share * count * 24 * price, 2),
            "break_even_h": round(find_break_even(loss, job), 2),
            "remedies": [
                {"remedy": o.remedy.value, "gpu_h": round(o.total, 2), "arithmetic": o.arithmetic}
                for o in weigh_remedies(loss, workers, job)
            ],
        }
        for loss in losses
    ]
    return {
        "schema": "firstfault.slowdown/1",
        "sentence": _say(rows, hours_left, price),
        "assumptions": [
            f"{count} GPUs" + ("" if gpus else ", as many as times were given: state them with --gpus"),
            f"{hours_left:g} h left to run: state them with --hours-left",
            f"a restart takes {restart_minutes:g} min and loses {unsaved_minutes:g} min of work: --restart-minutes, --unsaved-minutes",
            "every rank waits for the slowest; communication itself stays as it is",
            *([told.note] if told.note else []),
        ],
        "losses": rows,
    }  # fmt: skip


def read_workers(
    times: Sequence[Mapping[str, Any]] | None, log: str | Sequence[tuple[str, bytes]] | None
) -> Times:
    """Workers of given rows, or of what a log or files print. Raises InvalidParameter."""
    if times is not None:
        return Times(tuple(_worker(row, number) for number, row in enumerate(times[:MOST_ROWS])))
    if not log:
        raise InvalidParameter("times", "give times by rank, a log that prints them, or stage_ms")
    if isinstance(log, str):
        return read_times([("log", log.encode())])
    return read_times(log)


def _worker(row: Mapping[str, Any], number: int) -> Any:
    from firstfault_tools.slowdown.losses import Worker

    try:
        compute, wait = float(row["compute_ms"]), float(row.get("wait_ms", 0.0))
    except (KeyError, TypeError, ValueError):
        raise InvalidParameter("times", f"row {number + 1} needs compute_ms (and wait_ms) as numbers") from None  # fmt: skip
    if not (0 < compute < 1e12 and 0 <= wait < 1e12):
        raise InvalidParameter("times", f"row {number + 1}: times must be positive")
    host = row.get("host")
    return Worker(
        str(row.get("name", f"rank {number}")), str(host) if host else None, compute, wait
    )


def _say(rows: Sequence[Any], hours: float, price: float | None) -> str:
    if not rows:
        return "No rank, host or stage makes the step longer than the others would: nothing to gain by replacing one."
    first = rows[0]
    money = "" if price is None else f" ({first['cost_per_day']:,.0f} a day)"
    best, bear = first["remedies"][0], next(r for r in first["remedies"] if r["remedy"] == "bear it")  # fmt: skip
    name = first["suspect"][:1].upper() + first["suspect"][1:]
    said = (
        f"{name} costs {first['gpu_h_per_day']:g} GPU-hours a day{money}: the step takes {first['step_ms']:.4g} ms "
        f"and would take {first['step_without_ms']:.4g} without it"
    )
    if best["remedy"] == "bear it":
        return f"{said}; over the {hours:g} h left bearing it is cheapest ({best['gpu_h']:g} GPU-hours)."
    return (
        f"{said}; over the {hours:g} h left the cheapest is to {best['remedy']} ({best['gpu_h']:g} GPU-hours against "
        f"{bear['gpu_h']:g} for bearing it, worth it from {first['break_even_h']:g} h on)."
    )


CALCULATOR = Calculator(
    name="slowdown_cost",
    summary="What a slow rank, host or pipeline stage costs in GPU-hours a day, and the cheapest of bearing it, "
    "rebalancing, swapping the node, restarting",
    parameters=PARAMETERS,
    run=run_slowdown,
)
