"""What is the shape of the loss curve? Divergence, spikes, over-fitting, epoch stairs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from firstfault_tools.facts import known
from firstfault_tools.findings import Category, Confidence, Finding, Json, Level
from firstfault_tools.metrics.learning.first_mover import Known, Mover, find_first_mover
from firstfault_tools.metrics.series import MISSING
from firstfault_tools.metrics.view import (
    PLACEHOLDER_LOSS,
    Curve,
    View,
    make_finding,
    noise_of,
    number,
    running_median,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# A change of data may lift the loss by a quarter for good; more than a third is not that.
RISE = 0.35

EXPLOSION = 50.0
"""Times its best level that a loss must have reached where the log ends while it still grows."""


def usable_loss(view: View) -> Curve:
    """The loss without placeholder values; empty where it is one throughout or may be negative."""
    import numpy as np

    curve = view.curve("loss")
    keep = curve.values != PLACEHOLDER_LOSS
    values = curve.values[keep]
    if len(values) and np.mean(values < 0) > 0.05:
        return Curve(curve.rows[:0], curve.values[:0])
    return Curve(curve.rows[keep], values)


def _find_rise(
    values: NDArray[np.float64], tail_rows: int, share: float
) -> tuple[int, float, NDArray[np.float64]] | None:
    """(last row near the old level, best level, tail) of a rise that lasts to the end, or None.

    share: least rise relative to the best level.
    """
    import numpy as np

    count = len(values)
    # The last rows must all be high: what comes back is a spike and what ends on it is undecided.
    tail = values[-tail_rows:]
    high, low = float(np.median(tail)), float(np.min(tail))
    smooth = running_median(values, 3 if count < 60 else 7)
    before = smooth[: count - tail_rows]
    best_at = int(np.argmin(before))
    best = float(before[best_at])
    rise = high - best
    calm = values[: max(4, best_at + 1)] if best_at >= 3 else values
    noise = max(noise_of(calm), _scatter(values, smooth, best_at))
    if rise < max(share * abs(best), 3 * noise, 0.05) or low < best + 0.6 * rise:
        return None
    onset = best_at
    for i in range(count - tail_rows - 1, best_at - 1, -1):
        if smooth[i] < best + max(0.25 * rise, min(2 * noise, 0.5 * rise)):
            onset = i
            break
    # Step back over the smoothing to the last row that was still near the level before.
    near = best + max(0.15 * rise, min(2 * noise, 0.5 * rise))
    while onset + 1 < count and values[onset + 1] < near:
        onset += 1
    if count - onset - 1 < 4 or onset < 2:
        return None
    # Batches of one sample scatter so much that only a level above all of the past counts.
    past = values[max(0, onset - 60) : onset + 1]
    above = tail_rows >= 8 and len(past) >= 20 and low > float(np.max(past))
    return (onset, best, tail) if rise >= 6 * noise or above else None


def _exploded(view: View, row: int) -> bool:
    """Whether the gradient norm was ten times its usual value within a few rows of `row`."""
    import numpy as np

    grad = view.curve("grad_norm")
    past = grad.values[grad.rows < row - 3]
    near = grad.values[(grad.rows >= row - 3) & (grad.rows <= row + 5)]
    return len(past) >= 5 and len(near) > 0 and float(np.max(near)) > 10 * float(np.median(past))


def judge_divergence(view: View) -> list[Finding]:
    """A loss that rose far above its best level and stayed there to the end of the log."""
    import numpy as np

    curve = usable_loss(view)
    values = curve.values
    count = len(values)
    if count < 8:
        return _judge_explosion(view, curve) if count >= 5 else []
    sizes = sorted({max(4, min(count // 5, 200)), max(4, min(count // 20, 50))}, reverse=True)
    found = next((f for f in (_find_rise(values, size, RISE) for size in sizes) if f), None)
    if found is None:
        # A smaller rise is a divergence too where the gradients exploded just then.
        found = next((f for f in (_find_rise(values, size, 0.15) for size in sizes) if f), None)
        if found is None or not _exploded(view, int(curve.rows[found[0]])):
            return _judge_explosion(view, curve)
    onset, best, tail = found
    high = float(np.median(tail))
    rise = high - best
    series = view.lead
    good, first = int(curve.rows[onset]), int(curve.rows[onset + 1])
    usual = float(np.median(values[max(0, onset - 10) : onset + 1]))
    top = int(np.argmax(values[onset:])) + onset
    # the row that shows it to the eye: the first one half-way up
    half = usual + 0.5 * (float(values[top]) - usual)
    shows = int(curve.rows[onset + 1 + int(np.argmax(values[onset + 1 :] >= half))])
    facts: dict[str, Json] = {
        "last_good": series.label(good),
        "first_high": series.label(first),
        "loss_before": usual,
        "loss_after": high,
        "rows_after": count - onset - 1,
        "last": series.label(int(curve.rows[-1])),
    }
    course = (
        f"the loss left {number(usual)} after {series.label(good)}, reached "
        f"{number(float(values[top]))} at {series.label(int(curve.rows[top]))} and did not come "
        f"back; still {number(float(values[-1]))} at {series.label(int(curve.rows[-1]))}"
    )
    mover = find_first_mover(view, int(curve.rows[int(np.argmin(values[: onset + 1]))]), first)
    if mover is not None and mover.known is not None and mover.known.kind:
        return [_blame(mover, mover.known, course, view, (good, first, int(curve.rows[-1])), facts)]
    title = f"The run diverged: {course}"
    rates = view.curve("lr")
    at = rates.values[rates.rows <= first]
    if len(at):
        facts |= {"lr": float(at[-1]), "lr_first": float(at[0])}
        title += f"; the learning rate there was {number(float(at[-1]))}"
    if mover is not None:
        title += f"; {_say_moved(mover, view)}"
    elif view.events("lora"):
        facts["lora"] = True
        title += "; possible: a learning rate too high for LoRA"
    else:
        title += "; possible: a learning rate too high"
    saved = view.last_checkpoint_before(good)
    extra = view.event_evidence([saved]) if saved else ()
    facts |= known(last_clean_checkpoint_step=saved.values.get("step") if saved else None)
    return [
        make_finding(
            "divergence",
            title,
            Level.CAUSE,
            Category.NUMERICAL,
            view.evidence(
                [good, first, shows, int(curve.rows[top]), int(curve.rows[-1])],
                usual={good, first} - {shows},
            )
            + extra,
            confidence=Confidence.CONFIRMED
            if count - onset >= 8 and rise > best
            else Confidence.LIKELY,
            facts=facts,
        )
    ]


def _say_moved(mover: Mover, view: View) -> str:
    says = f": {mover.known.says}" if mover.known is not None and mover.known.says else ""
    return (
        f"{mover.name} left its usual {number(mover.usual)} first, at {view.lead.label(mover.row)}, "
        f"and stands at {number(mover.last)}{says}"
    )


def _blame(
    mover: Mover, known: Known, course: str, view: View, rows: Sequence[int], facts: dict[str, Json]
) -> Finding:
    """What moved first is the cause, and the loss is where it showed."""
    moved = f"{mover.name} left its usual {number(mover.usual)} at {view.lead.label(mover.row)} and stands at {number(mover.last)}"
    return make_finding(
        known.kind,
        f"{known.says[:1].upper()}{known.says[1:]}; {moved}, before the loss. The run diverged: {course}",
        Level.CAUSE,
        Category.NUMERICAL,
        view.evidence([mover.row, *rows]),
        facts=facts,
    )


def _judge_explosion(view: View, curve: Curve) -> list[Finding]:
    """A loss that grows by powers of ten up to the last line: the run ended before it could settle."""
    import numpy as np

    values = curve.values
    best_at = int(np.argmin(values))
    best, last = float(values[best_at]), float(values[-1])
    rising = bool(np.all(np.diff(values[-3:]) > 0))
    if (
        not rising
        or best <= 0
        or last < max(EXPLOSION * best, best + 10)
        or len(values) < best_at + 4
    ):
        return []
    series = view.lead
    near = np.flatnonzero(values[best_at:] < 1.5 * best)
    onset = best_at + int(near[-1])
    row, end = int(curve.rows[onset]), int(curve.rows[-1])
    facts: dict[str, Json] = {
        "last_good": series.label(row),
        "loss_before": best,
        "loss_after": last,
    }
    title = (
        f"The run diverged: the loss left {number(float(values[onset]))} after {series.label(row)} and exploded to "
        f"{number(last)} at {series.label(end)}, the last step there is"
    )
    rates = view.curve("lr")
    at = rates.values[rates.rows <= end]
    if len(at):
        facts |= {"lr": float(at[-1]), "lr_first": float(at[0])}
        title += f"; the learning rate there was {float(at[-1]):.4g}"
    shown = [row, int(curve.rows[onset + 1]), end]
    return [
        make_finding(
            "divergence",
            title,
            Level.CAUSE,
            Category.NUMERICAL,
            view.evidence(shown, usual=[row]),
            confidence=Confidence.CONFIRMED,
            facts=facts,
        )
    ]


def _scatter(values: NDArray[np.float64], smooth: NDArray[np.float64], until: int) -> float:
    """Scatter around the smoothed curve before the best point."""
    import numpy as np

    part = slice(0, max(4, until + 1))
    return float(np.median(np.abs(values[part] - smooth[part]))) * 1.4826


def judge_spikes(view: View) -> list[Finding]:
    """Short rises of the loss that came back, named by how fast they did."""
    import numpy as np

    curve = usable_loss(view)
    values = curve.values
    if len(values) < 20:
        return []
    smooth = running_median(values, 15)
    rest = values - smooth
    noise = max(float(np.median(np.abs(rest))) * 1.4826, noise_of(values), 1e-9)
    # Batches of one sample scatter widely to both sides; a spike is one-sided and far out.
    width = max(10 * noise, 0.25 * float(np.median(np.abs(smooth))), 2.5 * float(-np.min(rest)))
    high = np.flatnonzero(rest > width)
    high = high[high >= 3]
    if not len(high):
        return []
    series = view.lead
    tops = []
    for group in np.split(high, np.flatnonzero(np.diff(high) > 5) + 1):
        top = int(group[np.argmax(values[group])])
        level = float(smooth[max(0, group[0] - 8)])
        after = np.flatnonzero(values[top:] <= level + 3 * noise)
        if len(after):
            tops.append((top, level, int(after[0])))
    if not tops:
        return []
    shown = max(tops, key=lambda t: float(values[t[0]]) - t[1])
    top, level, back = shown
    row = int(curve.rows[top])
    returned = int(curve.rows[min(top + back, len(values) - 1)])
    pace = "fast" if back <= 3 else "slow"
    return [
        make_finding(
            f"loss_spike_{pace}_recovery",
            f"{len(tops)} loss spike(s) that recovered; the largest rose from {number(level)} to "
            f"{number(float(values[top]))} at {series.label(row)} and was back at "
            f"{series.label(returned)}{_occasion(view, row)}",
            Level.BENIGN if len(tops) <= 5 else Level.CONTEXT,
            Category.NUMERICAL,
            view.evidence([row - 1, row, returned], usual=[row - 1]),
            page="loss-spike-recovered",
            facts={
                "spikes": [series.label(int(curve.rows[t[0]])) for t in tops[:20]],
                "rows_to_recover": back,
            },
        )
    ]


def _occasion(view: View, row: int) -> str:
    """What else happened at a spike: a resume, the end of the warm-up; '' when nothing is known."""
    import numpy as np

    steps = view.lead.steps()
    near = steps[max(0, row - 4) : row + 1]
    epochs = view.lead.values("epoch")[max(0, row - 4) : row + 1]
    # a batch counter starts anew in every epoch
    if len(near) > 1 and np.any((np.diff(near) < 0) & (np.diff(epochs) <= 0)):
        return ", right after a resume"
    rate = view.curve("lr")
    if len(rate) > 10:
        peak = int(np.argmax(rate.values))
        warm = rate.values[0] < 0.5 * rate.values[peak] and peak < len(rate) - 5
        if warm and abs(int(rate.rows[peak]) - row) <= max(3, len(rate) // 50):
            return ", at the end of the warm-up"
    return ""


def judge_overfitting(view: View) -> list[Finding]:
    """Evaluation loss that turned upward while the training loss kept falling."""
    import numpy as np

    curve, train = view.curve("eval_loss"), usable_loss(view)
    values = curve.values
    if len(values) < 4 or len(train) < 6:
        return []
    # of a level curve the last row of that level
    low = int(np.flatnonzero(values <= float(values.min()) + 1e-3 * abs(float(values.min())))[-1])
    after = values[low + 1 :]
    if len(after) < 2 or (low == 0 and len(values) < 5):
        return []
    best, last = float(values[low]), float(values[-1])
    noise = noise_of(values)
    rise = last - best
    if rise < max(0.08 * abs(best), 4 * noise) or np.mean(np.diff(values[low:]) > 0) < 0.7:
        return []
    at_low = train.values[train.rows <= curve.rows[low]]
    if not len(at_low) or float(np.median(train.values[-3:])) >= float(np.median(at_low[-3:])):
        return []
    series, row, end = view.lead, int(curve.rows[low]), int(curve.rows[-1])
    return [
        make_finding(
            "overfitting",
            f"Over-fitting: evaluation loss was lowest, {number(best)}, at {series.label(row)} and "
            f"rose to {number(last)} at {series.label(end)} while the training loss fell to "
            f"{number(float(train.values[-1]))}",
            Level.CAUSE,
            Category.NUMERICAL,
            view.evidence([row, end, int(train.rows[-1])], usual=[row]),
            facts={"best_eval_loss": best, "best_at": series.label(row), "last_eval_loss": last},
        )
    ]


def judge_epoch_stairs(view: View) -> list[Finding]:
    """Training loss that drops at every epoch border: samples seen before, no fault."""
    import numpy as np

    curve = usable_loss(view)
    epoch = view.lead.values("epoch")
    if len(curve) < 8 or not np.any(epoch != MISSING):
        return []
    at = epoch[curve.rows]
    good = at != MISSING
    rows, values, at = curve.rows[good], curve.values[good], at[good]
    if len(values) < 8:
        return []
    # A row at epoch 1.00 closes the first epoch.
    whole = np.ceil(at - 0.005)
    borders = np.flatnonzero(np.diff(whole) == 1) + 1
    if not 1 <= len(borders) <= 50:
        return []
    drops, places = [], []
    for border in borders:
        left, right = values[max(0, border - 4) : border], values[border : border + 4]
        if len(left) < 2 or len(right) < 2:
            continue
        inside = np.abs(np.diff(left)).mean() + np.abs(np.diff(right)).mean()
        drop = float(np.median(left) - np.median(right))
        if drop > 0.08 * float(np.median(left)) and drop > 2.5 * inside:
            drops.append(drop)
            places.append(int(border))
    if not drops or len(drops) < 0.6 * len(borders):
        return []
    series = view.lead
    where = ", ".join(
        f"{series.label(int(rows[b - 1]))} to {series.label(int(rows[b]))} "
        f"({number(float(values[b - 1]))} to {number(float(values[b]))})"
        for b in places[:3]
    )
    tail = ""
    eval_curve = view.curve("eval_loss")
    if len(eval_curve) >= 2:
        tail = (
            f"; evaluation loss {number(float(eval_curve.values[0]))} to "
            f"{number(float(eval_curve.values[-1]))}, "
            + (
                "so watch it"
                if eval_curve.values[-1] > 1.05 * eval_curve.values.min()
                else "stable"
            )
        )
    return [
        make_finding(
            "epoch_stairs",
            f"The training loss steps down at the epoch border: {where}. The model has seen every "
            f"sample once and memorises; expected, no fault{tail}",
            Level.BENIGN,
            Category.NUMERICAL,
            view.evidence([r for b in places[:3] for r in (int(rows[b - 1]), int(rows[b]))]),
            confidence=Confidence.CONFIRMED if len(drops) >= 2 else Confidence.LIKELY,
            facts={"borders": len(drops)},
        )
    ]
