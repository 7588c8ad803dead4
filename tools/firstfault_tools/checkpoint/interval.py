"""How often should a checkpoint be written, and what does an incident cost?

Young (1974) and Daly (2006): with save time d and mean time between failures M, the waste of an
interval t is about d/t for saving and (t/2 + restart) / M for work done twice.
"""

from __future__ import annotations

import math

from firstfault_tools.dataclass import dataclass
from firstfault_tools.errors import InvalidParameter

HOUR = 3600.0


@dataclass(frozen=True, slots=True)
class Interval:
    """Seconds and shares of all time. young, daly: optimal compute time between saves.

    waste: at the chosen interval. waste_at_best: at Daly's.
    """

    mtbf_seconds: float
    young_seconds: float
    daly_seconds: float
    interval_seconds: float
    waste: float
    waste_at_best: float
    lost_work_seconds: float
    incident_gpu_hours: float
    incidents_per_day: float
    incident_cost: float | None


def derive_mtbf(gpus: int, failures_per_gpu_hour: float) -> float:
    """Mean time between failures of the job in seconds; failures of GPUs are independent."""
    if gpus < 1:
        raise InvalidParameter("gpus", f"must be at least 1, got {gpus}")
    if not 0 < failures_per_gpu_hour < 1:
        raise InvalidParameter(
            "failures_per_gpu_hour", f"must lie between 0 and 1, got {failures_per_gpu_hour}"
        )
    return HOUR / (gpus * failures_per_gpu_hour)


def find_young(save_seconds: float, mtbf_seconds: float) -> float:
    """sqrt(2 d M)."""
    return math.sqrt(2 * save_seconds * mtbf_seconds)


def find_daly(save_seconds: float, mtbf_seconds: float) -> float:
    """Daly's higher-order optimum of compute time between saves; M where d >= 2 M."""
    if save_seconds >= 2 * mtbf_seconds:
        return mtbf_seconds
    ratio = save_seconds / (2 * mtbf_seconds)
    root = math.sqrt(2 * save_seconds * mtbf_seconds)
    return root * (1 + math.sqrt(ratio) / 3 + ratio / 9) - save_seconds


def measure_waste(
    interval: float, save_seconds: float, restart_seconds: float, mtbf_seconds: float
) -> float:
    """Share of wall time lost to saving, to repeated work and to restarts (Daly's exact model).

    Failures are exponential; the expected wall time of an interval t with save d and restart r is
    M exp(r/M) (exp((t+d)/M) - 1).
    """
    try:
        wall = (
            mtbf_seconds
            * math.exp(restart_seconds / mtbf_seconds)
            * math.expm1((interval + save_seconds) / mtbf_seconds)
        )
    except OverflowError:
        return 1.0
    return max(0.0, 1 - interval / wall)


def plan_interval(
    save_seconds: float,
    mtbf_seconds: float,
    *,
    restart_seconds: float = 600.0,
    interval_seconds: float | None = None,
    gpus: int = 1,
    price_per_gpu_hour: float | None = None,
) -> Interval:
    """Optimal interval, waste and the cost of one incident. Raises InvalidParameter.

    save_seconds: how long training stands still for a save (the blocking part of an asynchronous one).
    An incident costs half an interval of lost work, the save and the restart, on every GPU.
    """
    for name, value in (("save_seconds", save_seconds), ("mtbf_seconds", mtbf_seconds)):
        if not 0 < value < 1e12 or math.isnan(value):
            raise InvalidParameter(name, f"must be positive, got {value}")
    if not 0 <= restart_seconds < 1e9:
        raise InvalidParameter("restart_seconds", f"must not be negative, got {restart_seconds}")
    if gpus < 1:
        raise InvalidParameter("gpus", f"must be at least 1, got {gpus}")
    best = find_daly(save_seconds, mtbf_seconds)
    chosen = best if interval_seconds is None else interval_seconds
    if not 0 < chosen < 1e12:
        raise InvalidParameter("interval_seconds", f"must be positive, got {chosen}")
    lost = chosen / 2
    hours = (lost + save_seconds / 2 + restart_seconds) * gpus / HOUR
    return Interval(
        mtbf_seconds=mtbf_seconds,
        young_seconds=find_young(save_seconds, mtbf_seconds),
        daly_seconds=best,
        interval_seconds=chosen,
        waste=measure_waste(chosen, save_seconds, restart_seconds, mtbf_seconds),
        waste_at_best=measure_waste(best, save_seconds, restart_seconds, mtbf_seconds),
        lost_work_seconds=lost,
        incident_gpu_hours=hours,
        incidents_per_day=86400 / mtbf_seconds,
        incident_cost=None if price_per_gpu_hour is None else hours * price_per_gpu_hour,
    )
