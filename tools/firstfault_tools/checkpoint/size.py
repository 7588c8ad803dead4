"""How big is a checkpoint, how long does it take to write, how much do the kept ones hold?"""

from __future__ import annotations

from enum import StrEnum

from firstfault_tools.dataclass import dataclass
from firstfault_tools.errors import InvalidParameter

GB = 10**9


class Content(StrEnum):
    """What a checkpoint holds, as bytes per parameter."""

    WEIGHTS = "weights"
    MIXED_ADAM = "mixed_adam"
    FP32_ADAM = "fp32_adam"
    FP32_WEIGHTS = "fp32_weights"


BYTES_PER_PARAMETER: dict[Content, float] = {
    Content.WEIGHTS: 2.0,
    Content.MIXED_ADAM: 14.0,
    Content.FP32_ADAM: 12.0,
    Content.FP32_WEIGHTS: 4.0,
}
"""Half-precision weights 2; with an fp32 master (4) and two fp32 moments (8) 14; fp32 weights with two
moments 12. Sharded optimizer states are written once, so data parallelism does not multiply them."""


@dataclass(frozen=True, slots=True)
class CheckpointSize:
    """Bytes and seconds. per_rank: what one writer writes, total / writers."""

    total_bytes: float
    per_rank_bytes: float
    write_seconds: float | None
    retained_bytes: float
    bytes_per_parameter: float


def size_checkpoint(
    parameters: int,
    *,
    content: Content = Content.MIXED_ADAM,
    bytes_per_parameter: float | None = None,
    writers: int = 1,
    bandwidth_gbs: float | None = None,
    per_writer_gbs: float | None = None,
    keep: int = 1,
) -> CheckpointSize:
    """Size of one checkpoint and of all kept. Raises InvalidParameter.

    bandwidth_gbs: of the whole storage, in 10^9 B/s. per_writer_gbs: what one writer can push; the
    slower of the two decides.
    """
    for name, value, least in (
        ("parameters", parameters, 1), ("writers", writers, 1), ("keep", keep, 1),
    ):  # fmt: skip
        if value < least:
            raise InvalidParameter(name, f"must be at least {least}, got {value}")
    for name, rate in (("bandwidth_gbs", bandwidth_gbs), ("per_writer_gbs", per_writer_gbs)):
        if rate is not None and not 0 < rate < 1e9:
            raise InvalidParameter(name, f"must be positive, got {rate}")
    width = BYTES_PER_PARAMETER[content] if bytes_per_parameter is None else bytes_per_parameter
    if not 0 < width <= 64:
        raise InvalidParameter("bytes_per_parameter", f"must lie in (0, 64], got {width}")
    total = parameters * width
    speeds = []
    if bandwidth_gbs is not None:
        speeds.append(bandwidth_gbs * GB)
    if per_writer_gbs is not None:
        speeds.append(per_writer_gbs * writers * GB)
    return CheckpointSize(
        total_bytes=total,
        per_rank_bytes=total / writers,
        write_seconds=total / min(speeds) if speeds else None,
        retained_bytes=total * keep,
        bytes_per_parameter=width,
    )
