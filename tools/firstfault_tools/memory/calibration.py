"""How does one observed peak correct the next prediction?

States are arithmetic and stay as they are; only what depends on kernels and lifetimes (activations,
logits, temporaries) is scaled, so that the predicted peak meets the observed one.
"""

from __future__ import annotations

from firstfault_tools.dataclass import dataclass
from firstfault_tools.errors import InvalidParameter
from firstfault_tools.memory.estimate import Moment, StepMemory
from firstfault_tools.memory.sizes import GIB

STATIC_TERMS = frozenset(
    {
        "weights",
        "master weights",
        "gradients",
        "optimizer",
        "gradient buckets",
        "workspace",
        "unsharded weights",
    }
)


@dataclass(frozen=True, slots=True)
class Calibration:
    """Factor for the dynamic terms. plausible: within a third of 1, beyond which the configuration
    itself is more likely to differ from the run."""

    factor: float
    plausible: bool


def _split(moment: Moment) -> tuple[int, int]:
    static = sum(size for name, size in moment.terms.items() if name in STATIC_TERMS)
    return static, moment.total - static


def calibrate(step: StepMemory, observed_gib: float) -> Calibration:
    """Factor that makes the predicted peak equal the observed one."""
    if not 0 < observed_gib < 100_000:
        raise InvalidParameter("observed_peak_gib", f"must be positive, got {observed_gib}")
    static, dynamic = _split(step.peak)
    if not dynamic:
        raise InvalidParameter("observed_peak_gib", "this setup has no dynamic memory to calibrate")
    factor = (observed_gib * GIB - static) / dynamic
    if factor <= 0:
        raise InvalidParameter(
            "observed_peak_gib",
            f"is below the model states alone ({static / GIB:.2f} GiB): the configuration differs "
            "from the run",
        )
    return Calibration(factor, 0.67 <= factor <= 1.5)


def apply_calibration(step: StepMemory, calibration: Calibration) -> StepMemory:
    """The same step with its dynamic terms scaled; the error band narrows to half."""
    moments = []
    for moment in step.moments:
        terms = {
            name: size if name in STATIC_TERMS else int(size * calibration.factor)
            for name, size in moment.terms.items()
        }
        moments.append(Moment(moment.phase, terms, moment.stage))
    return step._replace(moments=tuple(moments), relative_error=step.relative_error / 2)
