"""Did the learning rate do what it should: is it zero, does it follow its schedule, does its warm-up end?"""

from __future__ import annotations

import math
from itertools import islice

from firstfault_tools.facts import Fact
from firstfault_tools.findings import Category, Confidence, Finding, Json, Level
from firstfault_tools.metrics.learning.standstill import FEW
from firstfault_tools.metrics.series import MISSING, NO_STEP
from firstfault_tools.metrics.view import Curve, View, make_finding, noise_of, number

MOST_JUMPS = 3
"""Jumps of a rate that are told."""


def _printed_digits(text: str) -> bool:
    """Whether a learning rate of zero in `text` may be a small one rounded away (0.000000)."""
    import re

    return re.search(r"(?i)(?:lr|learning.?rate)\W{1,4}0\.0{3,7}(?![\d.eE])", text) is not None


def _find_zero_start(view: View, curve: Curve) -> int | None:
    """Index of the curve from which the rate is 0 until the log ends; None where that is no fault."""
    import numpy as np

    if len(curve) < FEW - 1:
        return None
    zero = curve.values == 0.0
    if not zero[-1] or zero.sum() < FEW - 1:
        return None
    series = view.lead
    if zero.sum() < FEW and series.step[int(curve.rows[-1])] < 20:
        return None  # the first steps of a warm-up, or skipped ones
    start = int(np.flatnonzero(np.append(True, ~zero))[-1])
    if len(zero) - start < FEW - 1:
        return None
    row, total = int(curve.rows[start]), series.total_steps
    if start and total and series.step[row] != NO_STEP and series.step[row] >= 0.97 * total:
        return None  # a schedule that ends at zero with the run
    if _printed_digits(view.text(series, row)):
        # Six decimals hide a rate below 5e-7. Only believe it when the loss stands still as well.
        loss = view.curve("loss")
        tail = loss.values[loss.rows >= row]
        if len(tail) < 12 or abs(tail[-5:].mean() - tail[:5].mean()) > 3 * noise_of(tail):
            return None
    return start


OFTEN_STEPPED = "Stepped several times"
"""How the fix of a schedule begins that is stepped once for each process or micro-batch."""


def _count_times(total: int, before: int, first: int) -> int:
    """By which whole number the schedule is shorter than the run; 0 where none, or more than one, lies between the last
    step with a rate and the first without."""
    if not 0 < before < first:
        return 0
    low, high = math.ceil(total / first), math.floor(total / before)
    return low if low == high >= 2 else 0


def judge_zero_rate(view: View) -> list[Finding]:
    """A learning rate that is stuck at zero, from the start or from some step on."""
    series, curve = view.lead, view.curve("lr")
    start = _find_zero_start(view, curve)
    if start is None:
        return []
    row, last, total = int(curve.rows[start]), int(curve.rows[-1]), series.total_steps
    facts: dict[str, Json] = {
        "first_zero": series.label(row),
        "last_zero": series.label(last),
        "zero_rows": len(curve) - start,
    }
    if start:
        before = int(curve.rows[start - 1])
        times = _count_times(total or 0, series.step[before], series.step[row])
        early = (
            f"{times} times too early, as one does that is stepped {times} times a step (once for each process or micro-batch)"
            if times
            else "before the run did"
        )
        title = (
            f"The learning rate is 0 from {series.label(row)} to {series.label(last)}, after "
            f"{number(float(curve.values[start - 1]))}: the schedule ended {early}, so nothing is learned any more"
        )
        if times:
            facts |= {"times": times, Fact.FIX.value: OFTEN_STEPPED}
        if total:
            title += f" (run: {total} steps)"
            facts["total_steps"] = total
    else:
        title = (
            f"The learning rate is 0 in all {len(curve)} logged rows, {series.label(row)} to "
            f"{series.label(last)}: nothing is learned"
        )
    skipped = series.values("skipped")
    counted = skipped[(skipped != MISSING) & (skipped > 0)]
    if len(counted) or view.events("scale_reduced"):
        title += "; steps are being skipped for overflow, which holds back the scheduler too"
    loss = view.curve("loss")
    if len(loss) >= 4:
        title += (
            f"; loss {number(float(loss.values[0]))} at {series.label(int(loss.rows[0]))}, "
            f"{number(float(loss.values[-1]))} at {series.label(int(loss.rows[-1]))}"
        )
    return [
        make_finding(
            "lr_zero",
            title,
            Level.CAUSE,
            Category.NUMERICAL,
            view.evidence([row - 1, row, last], usual=[row - 1]),
            confidence=Confidence.CONFIRMED,
            facts=facts,
        )
    ]


def judge_rate_schedule(view: View) -> list[Finding]:
    """A sudden change of the learning rate that no schedule makes, worth knowing beside a fault."""
    curve = view.curve("lr")
    judged = (_judge_jump(view, curve, i) for i in _find_jumps(curve))
    return list(islice((f for f in judged if f is not None), MOST_JUMPS))


def _find_jumps(curve: Curve) -> list[int]:
    """Where the rate is more than three times the one before."""
    import numpy as np

    if len(curve) < 4:
        return []
    earlier, old, new = curve.values[1:-2], curve.values[2:-1], curve.values[3:]
    jumps: list[int] = (np.flatnonzero((old > 0) & (new > 3 * old) & (earlier > 0)) + 3).tolist()
    if curve.values[0] > 0 and 0 < 3 * curve.values[1] < curve.values[2]:
        jumps.insert(0, 2)
    return jumps


def _judge_jump(view: View, curve: Curve, i: int) -> Finding | None:
    """What a jump to this place of the curve means; None where a warm-up explains it."""
    series, last, row = view.lead, int(curve.rows[i - 1]), int(curve.rows[i])
    before, value = float(curve.values[i - 1]), float(curve.values[i])
    warming = before > 3 * float(curve.values[i - 2]) or 0 <= series.step[row] < 20
    if warming and value < 30 * before:
        return None
    kinds = ("checkpoint_loaded", "resume_requested", "weights_loaded")
    resumed = view.between((e for kind in kinds for e in view.events(kind)), last, row)
    if i == 2 and not resumed:
        return None  # two rows are no schedule
    again = _is_other_run(view, last, row)
    harm = None if again else _rise_after(view, row, clear=bool(resumed))
    title = (
        f"The learning rate jumped from {number(before)} to {number(value)} at {series.label(row)}"
    )
    if harm is not None:
        title += f" and the loss has risen from {number(harm[0])} to {number(harm[1])} since: " + (
            "the run resumed there with the weights, but the learning rate schedule (and with it "
            "usually the optimizer state) was not restored and started again"
            if resumed
            else "the learning rate schedule was restarted or changed (scheduler state not "
            "restored at a resume, or another schedule)"
        )
    return make_finding(
        "lr_jump",
        title,
        Level.CONTEXT if harm is None else Level.CAUSE,
        Category.CHECKPOINT if resumed else Category.NUMERICAL,
        view.evidence([last, row, len(series) - 1], usual=[last])
        + view.event_evidence(resumed[:1]),
        page="resume-state" if resumed else "learning-rate-schedules",
        facts={
            "from": before,
            "to": value,
            "at": series.label(row),
            "explains": {"setback": 0.4} if resumed else {},
        },
    )


def _is_other_run(view: View, before: int, row: int) -> bool:
    """The counter fell and the epoch did not rise: what follows is another run in the log."""
    series = view.lead
    if series.step[row] >= series.step[before]:
        return False
    epochs = series.values("epoch")
    return not (epochs[before] != MISSING and epochs[row] > epochs[before])


def _rise_after(view: View, row: int, clear: bool = False) -> tuple[float, float] | None:
    """(loss before, loss at the end) where it rose after `row` and stayed up; None otherwise.

    clear: something else marks the place, so that a few rows which all lie higher are enough.
    """
    import numpy as np

    loss = view.curve("loss")
    past, later = loss.values[loss.rows < row], loss.values[loss.rows >= row]
    if clear and len(past) >= 2 and 2 <= len(later) < 4:
        apart = float(np.min(later)) - float(np.max(past[-4:]))
        higher = apart > max(0.03 * float(np.max(past[-4:])), 2 * float(np.ptp(past[-4:])))
        return (float(np.median(past[-4:])), float(later[-1])) if higher else None
    if len(past) < 2 or len(later) < 4:
        return None
    before, end = float(np.median(past[-4:])), float(np.median(later[-3:]))
    noise = noise_of(past) if len(past) >= 4 else noise_of(later)
    if before <= 0 or end - before < max(0.08 * before, 4 * noise):
        return None
    return before, end


def judge_rate_as_written(view: View) -> list[Finding]:
    """The schedule in the arguments against the one in the log: a peak or a warm-up that differs."""
    curve = view.curve("lr")
    series = view.lead
    if len(curve) < 10:
        return []
    found = []
    highest = float(curve.values.max())
    first = int(curve.rows[0])
    before = [e for e in view.events("peak_lr") if e.row == 0 and e.values.get("lr", 0) > 0]
    steps = series.step[int(curve.rows[-1])]
    warm = next((e for e in view.events("warmup") if e.row == 0), None)
    length = warm.values.get("steps", 0) if warm else 0
    past_warm_up = steps != NO_STEP and steps > max(50, 1.2 * length)
    if before and past_warm_up and not 0.5 <= highest / before[0].values["lr"] <= 1.5:
        written = before[0].values["lr"]
        found.append(
            make_finding(
                "lr_overridden",
                f"The arguments say learning rate {number(written)}; the highest logged is "
                f"{number(highest)} up to {series.label(int(curve.rows[-1]))}",
                Level.CONTEXT,
                Category.NUMERICAL,
                view.event_evidence(before[:1])
                + view.evidence([int(curve.rows[int(curve.values.argmax())])]),
                facts={"written": written, "highest": highest},
            )
        )
    if (
        warm
        and length >= 10
        and 0 <= series.step[first] <= 2
        and float(curve.values[0]) >= 0.9 * highest > 0
    ):
        found.append(
            make_finding(
                "warmup_missing",
                f"The arguments ask for {length:.0f} warm-up steps, yet the learning rate is "
                f"{number(float(curve.values[0]))}, its full value, at {series.label(first)}",
                Level.CONTEXT,
                Category.NUMERICAL,
                view.event_evidence([warm]) + view.evidence([first]),
                facts={"warmup_steps": length, "first_lr": float(curve.values[0])},
            )
        )
    return found


DECAYED = {"cosine": 0.25, "linear": 0.15}
"""Share of the run after which a schedule of this name has visibly fallen (by 15 % of its height)."""


LEAST_FALL = 0.05
"""Share by which the schedule must fall within the steps that were seen: less hides in two printed digits."""


def _expected_fall(style: str, begin: float, end: float) -> float:
    """Share by which a schedule of this name falls between two points of its course (0 to 1)."""
    height = (lambda at: (1 + math.cos(math.pi * at)) / 2) if style == "cosine" else (lambda at: 1 - at)  # fmt: skip
    return 1 - height(min(end, 1.0)) / height(begin) if begin < 1 else 0.0


def judge_missing_decay(view: View) -> list[Finding]:
    """The arguments name a decay, yet the learning rate stays where it was after its warm-up."""
    curve, series = view.curve("lr"), view.lead
    named = [e for e in view.events("decay_style") if e.row == 0]
    total, last = series.total_steps, series.step[int(curve.rows[-1])] if len(curve) else NO_STEP
    style = next((s for e in named[-1:] for s in DECAYED if s in e.text.lower()), None)
    if style is None or not total or last == NO_STEP or len(curve) < 20:
        return []
    warm = next((e.values.get("steps", 0) for e in view.events("warmup") if e.row == 0), 0)
    late = curve.values[len(curve) // 4 :]
    level = float(late[0])
    if level <= 0 or float(late.max() - late.min()) > 1e-3 * level:
        return []
    row, end = int(curve.rows[len(curve) // 4]), int(curve.rows[-1])
    length = total - warm
    if last - warm < DECAYED[style] * length:
        return []
    if (
        _expected_fall(style, max(0, int(series.step[row]) - warm) / length, (last - warm) / length)
        < LEAST_FALL
    ):
        return []
    return [
        make_finding(
            "lr_not_decayed",
            f"The learning rate stays at {number(level)} from {series.label(row)} to {series.label(end)} of {total}, although "
            f"the arguments ask for a {style} decay: the schedule is not stepped, or its length is far beyond the run "
            "(decay iterations, override of the scheduler from a checkpoint)",
            Level.FAILURE,
            Category.NUMERICAL,
            view.event_evidence(named[-1:]) + view.evidence([row, end]),
            facts={"style": style, "lr": level, "total_steps": total},
        )
    ]


TINY = 1e-7
"""Learning rate below which a run in 16 or 32 bit weights moves nothing that a loss could show."""

WARM_ROWS, EVEN = 10, 0.2


def judge_endless_warm_up(view: View) -> list[Finding]:
    """A learning rate that climbs evenly from zero to the last row and stays so small that nothing is learned."""
    import numpy as np

    rate, loss, series = view.curve("lr"), view.curve("loss"), view.lead
    values = rate.values
    if len(values) < WARM_ROWS or len(loss) < WARM_ROWS or not 0 < float(values[-1]) <= TINY:
        return []
    rises = np.diff(values)
    if float(rises.min()) <= 0 or float(rises.std()) > EVEN * float(rises.mean()):
        return []
    if float(values[0]) > 0.3 * float(values[-1]) or float(loss.values.min()) < 0.05:
        return []
    third = len(loss) // 3
    head, tail = float(np.median(loss.values[:third])), float(np.median(loss.values[-third:]))
    if head - tail > max(3 * noise_of(loss.values) / third**0.5, 0.005 * abs(head)):
        return []
    first, last = int(rate.rows[0]), int(rate.rows[-1])
    return [
        make_finding(
            "warm_up_endless",
            f"The learning rate is still warming up at the end: it rises evenly from {number(float(values[0]))} to "
            f"{number(float(values[-1]))} over all {len(values)} rows ({series.label(first)} to {series.label(last)}), far below any "
            f"usual rate, so nothing is learned (loss {number(head)}, at the end {number(tail)}): the warm-up is much longer than the "
            "run (warmup_steps, warmup_ratio or the scheduler's step count), or the peak is set too small",
            Level.CONTEXT,
            Category.NUMERICAL,
            view.evidence([first, last]),
            confidence=Confidence.LIKELY,
            facts={"explains": {"unlearned": 0.7}, "highest": float(values[-1])},
        )
    ]
