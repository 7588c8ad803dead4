"""How long does each stage take? Forward, input-gradient and weight-gradient times per stage.

All times share one unit, whatever the caller uses. `backward` is the *full* backward of a stage for
one micro-batch; `weight` is the part of it that computes weight gradients, so the input-gradient
part is `backward - weight`. The zero-bubble paper calls that remainder "B", the DualPipe README
calls the whole "B": here B is always the whole.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import StrEnum

from firstfault_tools.dataclass import dataclass
from firstfault_tools.errors import InvalidParameter

MAX_STAGES = 4096
MAX_MICROBATCHES = 1_000_000
MAX_OPERATIONS = 8_000_000


class Schedule(StrEnum):
    """A pipeline schedule whose operation order is published."""

    GPIPE = "gpipe"
    ONE_F_ONE_B = "1f1b"
    INTERLEAVED = "interleaved"
    ZB_H1 = "zb-h1"
    ZB_V = "zb-v"
    DUALPIPE = "dualpipe"


@dataclass(frozen=True, slots=True)
class StageTimes:
    """Times of one micro-batch on each pipeline rank, all its model chunks together.

    forward, input_grad, weight: one value a rank. `backward` of rank r is input_grad[r] +
    weight[r].
    """

    forward: tuple[float, ...]
    input_grad: tuple[float, ...]
    weight: tuple[float, ...]

    def backward(self, rank: int) -> float:
        """Full backward time of one micro-batch on `rank`."""
        return self.input_grad[rank] + self.weight[rank]

    def work(self, rank: int) -> float:
        """Forward and full backward of one micro-batch on `rank`."""
        return self.forward[rank] + self.input_grad[rank] + self.weight[rank]

    @property
    def equal(self) -> bool:
        """Whether all ranks take the same time, which is when the closed forms hold."""
        return all(len(set(v)) == 1 for v in (self.forward, self.input_grad, self.weight))


def _spread(field: str, value: float | Sequence[float], stages: int) -> tuple[float, ...]:
    values = (value,) * stages if isinstance(value, int | float) else tuple(value)
    if len(values) != stages:
        raise InvalidParameter(
            field, f"needs one value or {stages} (one a stage), got {len(values)}"
        )
    for item in values:
        if isinstance(item, bool) or not isinstance(item, int | float):
            raise InvalidParameter(field, f"must be a number, got {item!r}")
        if not math.isfinite(item) or item < 0:
            raise InvalidParameter(field, f"must be finite and not negative, got {item}")
    return tuple(float(item) for item in values)


def count_of(field: str, value: int, most: int) -> int:
    """`value` when it is an integer from 1 to `most`; otherwise InvalidParameter names the field."""
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        raise InvalidParameter(field, f"must be a whole number from 1 to {most}, got {value!r}")
    return value


def stage_times(
    stages: int,
    forward: float | Sequence[float] = 1.0,
    backward: float | Sequence[float] = 2.0,
    weight: float | Sequence[float] | None = None,
    scale: Sequence[float] | None = None,
    recompute: bool = False,
) -> StageTimes:
    """Times of every rank from one value or one value a rank.

    weight: default half of the backward, the usual split of a linear layer. scale: a factor a rank
    on everything that rank does. recompute: full activation recomputation, which runs the forward
    once more at the start of the input-gradient part.
    """
    count_of("stages", stages, MAX_STAGES)
    f = _spread("forward", forward, stages)
    b = _spread("backward", backward, stages)
    w = tuple(x / 2 for x in b) if weight is None else _spread("weight", weight, stages)
    k = _spread("stage_scale", 1.0 if scale is None else scale, stages)
    for rank in range(stages):
        if w[rank] > b[rank]:
            raise InvalidParameter(
                "weight",
                f"is part of the full backward, so at most backward = {b[rank]:g}; got {w[rank]:g}",
            )
        if f[rank] + b[rank] <= 0 or k[rank] <= 0:
            raise InvalidParameter("forward", f"stage {rank} would do no work at all")
    again = f if recompute else (0.0,) * stages
    return StageTimes(
        forward=tuple(x * s for x, s in zip(f, k, strict=True)),
        input_grad=tuple((x - y + z) * s for x, y, z, s in zip(b, w, again, k, strict=True)),
        weight=tuple(x * s for x, s in zip(w, k, strict=True)),
    )
