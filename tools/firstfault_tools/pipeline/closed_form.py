"""What do the textbook formulas say, and which formula is wrong?

Each formula gives T - I, the time a rank idles, for equal stages and free communication. Two
numbers are made from it and documents mix them up, so they always travel together here:

    ratio to ideal      (T - I) / I
    fraction of total   (T - I) / T  =  ratio / (1 + ratio)

Sources: arXiv 2104.04473 (GPipe, 1F1B, interleaving), arXiv 2401.10241 (ZB-H1, ZB-V),
deepseek-ai/DualPipe README (DualPipe).
"""

from __future__ import annotations

import re

from firstfault_tools.dataclass import dataclass
from firstfault_tools.errors import InvalidParameter
from firstfault_tools.expressions import expression
from firstfault_tools.pipeline.times import Schedule, StageTimes


@dataclass(frozen=True, slots=True)
class ClosedForm:
    """idle: T - I in the unit of the times. formula: as written. exact: equals the simulation."""

    idle: float
    formula: str
    exact: bool


def closed_form(
    schedule: Schedule, times: StageTimes, m: int, v: int = 1, pair: float = 1.0
) -> ClosedForm | None:
    """T - I for equal stages, or None where stages differ and no formula holds.

    ZB-V: the wall clock of a step that ends in a barrier (gradient norm, overflow check), where F =
    input gradient = weight gradient; without a barrier the stagger hides in the next step.
    """
    if not times.equal:
        return None
    p = len(times.forward)
    f, b_in, w = times.forward[0], times.input_grad[0], times.weight[0]
    if schedule in (Schedule.GPIPE, Schedule.ONE_F_ONE_B):
        return ClosedForm((p - 1) * (f + b_in + w), "(p-1)(F+B)", True)
    if schedule is Schedule.INTERLEAVED:
        return ClosedForm((p - 1) * (f + b_in + w) / v, "(p-1)(F+B)/v", True)
    if schedule is Schedule.ZB_H1:
        # Holds while the held-back weight gradients are enough to fill the drain.
        fills = w <= f and w <= b_in and m >= p
        return ClosedForm((p - 1) * (f + b_in - w), "(p-1)(F+B-2W)", fills)
    if schedule is Schedule.ZB_V:
        if f == b_in == w:
            return ClosedForm((p - 1) * f / 2, "(p-1)F/2 with a barrier, 0 without", m >= 2 * p - 1)
        return None
    both = (f + b_in + w) * pair
    return ClosedForm(
        (p / 2 - 1) * (both + b_in - 2 * w), "(p/2-1)(F&B+B-3W)", w <= b_in == f and pair == 1.0
    )


_WRONG = expression(r"\(?(p|pp)-1\)?/\(?(m|mb|n|microbatches|numberofmicrobatches)\*(p|pp)\)?$")
_WRONG_SWAPPED = expression(r"\(?(p|pp)-1\)?/\(?(p|pp)\*(m|mb|n|microbatches)\)?$")
_RATIO = expression(r"\(?(p|pp)-1\)?/(m|mb|n|microbatches)$")
_FRACTION = expression(r"\(?(p|pp)-1\)?/\((m|mb|n|microbatches)\+\(?(p|pp)-1\)?\)$")


def name_formula(text: str) -> str:
    """Say what a bubble formula computes: 'ratio to ideal' or 'fraction of total'.

    Raises InvalidParameter on (p-1)/(m*p), which circulates and is too low by a factor of p against
    the ratio, and on anything unknown.
    """
    plain = re.sub(r"[\s_]|num", "", text[:200].lower()).replace("×", "*").replace("·", "*")
    plain = plain.replace("microbatch)", "microbatches)")
    if _WRONG.match(plain) or _WRONG_SWAPPED.match(plain):
        raise InvalidParameter(
            "formula",
            "(p-1)/(m*p) is wrong: it is too low by a factor of p. Use (p-1)/m for the ratio to "
            "ideal or (p-1)/(m+p-1) for the fraction of the total; divide m's side by v when "
            "interleaving",
        )
    if _RATIO.match(plain):
        return "ratio to ideal"
    if _FRACTION.match(plain):
        return "fraction of total"
    raise InvalidParameter("formula", f"not a bubble formula this tool knows: {text[:80]!r}")


def wrong_value(p: int, m: int) -> float:
    """Value of the wrong formula (p-1)/(m*p), only ever to recognise it."""
    return (p - 1) / (m * p)
