"""Did the learning rate do what it should, and did anything learn at all?"""

from __future__ import annotations

from firstfault_tools.findings import Category, Confidence, Finding, Json, Level
from firstfault_tools.metrics.series import MISSING, NO_STEP
from firstfault_tools.metrics.view import PLACEHOLDER_LOSS, View, make_finding, noise_of, number

FEW = 5
CONSTANT = 4
"""Rows with the very same loss from which on it is no chance."""


def _printed_digits(text: str) -> bool:
    """Whether a learning rate of zero in `text` may be a small one rounded away (0.000000)."""
    import re

    return re.search(r"(?i)(?:lr|learning.?rate)\W{1,4}0\.0{3,7}(?![\d.eE])", text) is not None


def judge_zero_rate(view: View) -> list[Finding]:
    """A learning rate that is stuck at zero, from the start or from some step on."""
    import numpy as np

    curve = view.curve("lr")
    if len(curve) < FEW - 1:
        return []
    zero = curve.values == 0.0
    if not zero[-1] or zero.sum() < FEW - 1:
        return []
    if zero.sum() < FEW and view.lead.step[int(curve.rows[-1])] < 20:
        return []  # the first steps of a warm-up, or skipped ones
    series = view.lead
    alive = np.flatnonzero(~zero)
    start = int(alive[-1]) + 1 if len(alive) else 0
    if len(zero) - start < FEW - 1:
        return []
    row, last = int(curve.rows[start]), int(curve.rows[-1])
    total, at = series.total_steps, series.step[row]
    if len(alive) and total and at != NO_STEP and at >= 0.97 * total:
        return []  # a schedule that ends at zero with the run
    if _printed_digits(view.text(series, row)):
        # Six decimals hide a rate below 5e-7. Only believe it when the loss stands still as well.
        loss = view.curve("loss")
        tail = loss.values[loss.rows >= row]
        if len(tail) < 12 or abs(tail[-5:].mean() - tail[:5].mean()) > 3 * noise_of(tail):
            return []
    facts: dict[str, Json] = {
        "first_zero": series.label(row),
        "last_zero": series.label(last),
        "zero_rows": len(zero) - start,
    }
    if len(alive):
        title = (
            f"The learning rate is 0 from {series.label(row)} to {series.label(last)}, after "
            f"{number(float(curve.values[start - 1]))}: the schedule ended before the run did, so "
            "nothing is learned any more"
        )
        if total:
            title += f" (run: {total} steps)"
            facts["total_steps"] = total
    else:
        title = (
            f"The learning rate is 0 in all {len(zero)} logged rows, {series.label(row)} to "
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
            view.evidence([row - 1, row, last]),
            page="learning-rate-schedules",
            confidence=Confidence.CONFIRMED,
            facts=facts,
        )
    ]


def judge_dead_gradients(view: View) -> list[Finding]:
    """Gradient norm exactly zero, or a loss that is exactly zero: nothing reaches the weights."""
    import numpy as np

    series = view.lead
    found = []
    grad, loss = view.curve("grad_norm"), view.curve("loss")
    # A model that has learned its data by heart has no gradient left, and no loss.
    learned = len(loss) > 0 and float(np.max(np.abs(loss.values[-FEW:]))) < 0.01
    if len(grad) >= FEW and np.all(grad.values[-FEW:] == 0.0) and not learned:
        alive = np.flatnonzero(grad.values != 0.0)
        start = int(alive[-1]) + 1 if len(alive) else 0
        row = int(grad.rows[start])
        found.append(
            make_finding(
                "grad_norm_zero",
                f"The gradient norm is exactly 0 since {series.label(row)} ({len(grad) - start} "
                f"rows): no gradient reaches the weights{_loss_at_zero(view, row)}",
                Level.CAUSE,
                Category.NUMERICAL,
                view.evidence([row - 1, row, int(grad.rows[-1])]),
                page="no-gradients",
                facts={"since": series.label(row), "rows": len(grad) - start},
            )
        )
    diverged = _left_before_zero(view)
    if diverged is not None:
        return [*found, diverged]
    if len(loss) >= FEW and np.all(loss.values[-FEW:] == 0.0) and not found:
        # the advantages of a group sum to zero, and with them the loss that GRPO prints
        grouped = "reward" in view.text(series, int(loss.rows[-1]))
        if grouped and len(grad) >= FEW and np.any(grad.values[-FEW:] > 0.0):
            return [*found, _grouped_loss(view, int(loss.rows[-1]), float(grad.values[-1]))]
        alive = np.flatnonzero(loss.values != 0.0)
        start = int(alive[-1]) + 1 if len(alive) else 0
        row = int(loss.rows[start])
        before = float(loss.values[start - 1]) if start else None
        if before is None or before > 0.2:
            found.append(
                make_finding(
                    "loss_zero",
                    f"The loss is exactly 0 since {series.label(row)}"
                    + (f", after {number(before)}" if before is not None else "")
                    + ": a NaN that the trainer filtered out, or labels that are all masked",
                    Level.CAUSE if before is not None else Level.FAILURE,
                    Category.NUMERICAL,
                    view.evidence([row - 1, row, int(loss.rows[-1])]),
                    page="loss-zero",
                    facts={"since": series.label(row), "rows": len(loss) - start},
                )
            )
    return found


def _left_before_zero(view: View) -> Finding | None:
    """A loss of exactly 0 after one that had risen far: the run diverged, and NaN is printed as 0."""
    import numpy as np

    loss, rate = view.curve("loss"), view.curve("lr")
    alive = np.flatnonzero(loss.values != 0.0)
    if len(alive) < 3 or len(loss) - int(alive[-1]) - 1 < 3 or np.any(loss.values < 0):
        return None
    values = loss.values[: int(alive[-1]) + 1]
    best = int(np.argmin(values))
    top = best + int(np.argmax(values[best:]))
    if values[top] < 2 * values[best] + 0.5 or values[-1] < 1.5 * values[best]:
        return None
    rows = [int(loss.rows[i]) for i in (best, top, len(values))]
    title = (
        f"The run diverged: the loss rose from {number(float(values[best]))} at {view.lead.label(rows[0])} to "
        f"{number(float(values[top]))} at {view.lead.label(rows[1])} and is exactly 0 since {view.lead.label(rows[2])}, "
        "which is how the trainer prints NaN"
    )
    rates = rate.values[rate.rows <= rows[1]]
    if len(rates):
        title += f"; the learning rate was {float(rates[-1]):.4g}, too high is the usual reason"
    return make_finding(
        "loss_zero",
        title,
        Level.CAUSE,
        Category.NUMERICAL,
        view.evidence(rows),
        page="loss-divergence",
        facts={"since": view.lead.label(rows[2])},
    )


def _loss_at_zero(view: View, row: int) -> str:
    """What the loss says about a gradient of zero: a uniform output, or a run that had left its course."""
    import numpy as np

    loss = view.curve("loss")
    early, late = loss.values[loss.rows < row], loss.values[loss.rows >= row]
    if len(late) < FEW:
        return ""
    level = float(np.median(late))
    if len(early) >= FEW and level > 2 * float(early.min()) + 0.2:
        at = view.lead.label(int(loss.rows[int(np.argmin(early))]))
        return (
            f"; the loss had left {number(float(early.min()))} ({at}) and stands at {number(level)}: the run "
            "diverged first and its output is saturated, a learning rate too high is the usual reason"
        )
    if not len(early) and 9.8 <= level <= 12.6 and float(np.ptp(late)) < 0.02 * level:
        return (
            f"; the loss stays at {number(level)}, the logarithm of about {np.exp(level):,.0f}, as of equal "
            "logits for every token: the weights are empty or zero, they were not loaded or initialised"
        )
    return ""


def _grouped_loss(view: View, row: int, gradient: float) -> Finding:
    return make_finding(
        "rl_loss_zero",
        "The printed loss is 0 because the advantages of a group of answers sum to zero (GRPO); the "
        f"gradient norm is not ({number(gradient)}), so the policy learns: watch the reward instead",
        Level.BENIGN,
        Category.NUMERICAL,
        view.evidence([row]),
        confidence=Confidence.CONFIRMED,
    )


# Cross entropy of a guess over so many classes: what a model that learns nothing keeps reporting.
_GUESSES = {
    2: 0.6931, 10: 2.3026, 64: 4.1589, 100: 4.6052, 128: 4.852, 256: 5.5452, 512: 6.2383, 1000: 6.9078,
    1024: 6.9315, 2048: 7.6246, 4096: 8.3178, 8192: 9.0109, 16384: 9.7041, 32768: 10.3972, 65536: 11.0904,
}  # fmt: skip
LONG, LONG_STEPS, EPOCHS = 50, 500, 20
"""Rows and steps after which a loss that has not moved is one that never will; epochs likewise."""
FROZEN = 1e-3
"""Spread of a loss, as a share of it, that no batch of new samples gives a model that reads them."""


def judge_never_learning(view: View) -> list[Finding]:
    """A long run whose loss never left the value of a blind guess, or came to stand still at a value."""
    import numpy as np

    loss, rate = view.curve("loss"), view.curve("lr")
    values = loss.values
    if len(values) < EPOCHS or np.any(values == PLACEHOLDER_LOSS):
        return []
    if len(rate) and np.all(rate.values == 0):
        return []
    steps = view.lead.steps()[loss.rows]
    known = steps[steps != NO_STEP]
    by_epoch = not len(known) and view.lead.has("epoch")
    epochs = view.curve("epoch").values if by_epoch else values[:0]
    whole = by_epoch and len(epochs) >= EPOCHS and float(np.ptp(epochs)) >= EPOCHS - 1
    long = len(known) >= LONG and known[-1] - known[0] >= LONG_STEPS
    third = len(values) // 3
    head, tail = float(np.median(values[:third])), float(np.median(values[-third:]))
    late = values[-2 * third :]
    frozen = len(values) >= 30 and tail > 0.05 and float(np.ptp(late)) <= FROZEN * tail
    if not (long or whole or frozen):
        return []
    noise = max(noise_of(values), 1e-9)
    moved = abs(head - tail) > max(2 * noise / third**0.5, 0.004 * abs(head))
    if moved and not frozen:
        return []
    near = 0.003 if not frozen else 0.0008
    guess = next((c for c, v in _GUESSES.items() if abs(tail - v) < near * v), None)
    vocabulary = 9.8 <= tail <= 12.6 and noise < 0.3
    if guess is None and not vocabulary:
        return []
    series, first, last = view.lead, int(loss.rows[0]), int(loss.rows[-1])
    start = int(loss.rows[len(values) - 2 * third]) if moved else first
    if guess:
        what = f"the cross entropy of a blind guess over {guess} classes"
        if guess > 2000:
            what += (
                f" (uniform output, ln {guess}; in contrastive training the number of candidates)"
            )
    else:
        what = f"the cross entropy of a blind guess over about {np.exp(tail):,.0f} tokens"
    outcome = "the output collapsed and nothing is learned" if moved else "the model never learned"
    title = (
        f"The loss stayed at {number(tail)} from {series.label(start)} to "
        f"{series.label(last)}, {what}: {outcome}"
    )
    if len(rate):
        title += f" (learning rate {number(float(rate.values[-1]))})"
    return [
        make_finding(
            "never_learning",
            title,
            Level.CAUSE,
            Category.NUMERICAL,
            view.evidence([first, start, int(loss.rows[len(values) // 2]), last]),
            page="underfitting",
            facts={"loss": tail, "first": series.label(first), "last": series.label(last)},
        )
    ]


def judge_constant_loss(view: View) -> list[Finding]:
    """The very same loss in all rows: a note that explains the complaint that nothing is learned."""
    import numpy as np

    loss, rate = view.curve("loss"), view.curve("lr")
    values = loss.values
    if len(values) < CONSTANT or np.any(values != values[0]):
        return []
    if values[0] <= 0 or float(values[0]).is_integer():
        return []  # a placeholder, or digits cut off
    if len(rate) and np.all(rate.values == 0):
        return []
    series, first, last = view.lead, int(loss.rows[0]), int(loss.rows[-1])
    level = float(values[0])
    guess = next((c for c, v in _GUESSES.items() if abs(level - v) < 0.0008 * v), None)
    blind = f", the cross entropy of a blind guess over {guess} classes" if guess else ""
    return [
        make_finding(
            "loss_constant",
            f"The loss is exactly {number(level)} in all {len(values)} rows ({series.label(first)} to "
            f"{series.label(last)}){blind}: new samples alone would change it, so no update reaches the weights "
            "that compute it (frozen or detached parameters, an optimizer that holds others, the same output for every input)",
            Level.CONTEXT,
            Category.CODE_BUG,
            view.evidence([first, last]),
            page="no-gradients",
            facts={"explains": "unlearned", "weight": 0.5, "loss": level},
        )
    ]


def judge_rate_schedule(view: View) -> list[Finding]:
    """A sudden change of the learning rate that no schedule makes, worth knowing beside a fault."""
    import numpy as np

    curve = view.curve("lr")
    series = view.lead
    found: list[Finding] = []
    if len(curve) < 4:
        return found
    earlier, old, new = curve.values[1:-2], curve.values[2:-1], curve.values[3:]
    jumps = (np.flatnonzero((old > 0) & (new > 3 * old) & (earlier > 0)) + 3).tolist()
    if curve.values[0] > 0 and 0 < 3 * curve.values[1] < curve.values[2]:
        jumps.insert(0, 2)
    for i in jumps:
        row = int(curve.rows[i])
        before, value = float(curve.values[i - 1]), float(curve.values[i])
        warming = before > 3 * float(curve.values[i - 2]) or 0 <= series.step[row] < 20
        if warming and value < 30 * before:
            continue
        again = _is_other_run(view, int(curve.rows[i - 1]), row)
        seam = (series.line[int(curve.rows[i - 1])], series.line[row])
        resumed = [
            e
            for kind in ("checkpoint_loaded", "resume_requested")
            for e in view.events(kind)
            if seam[0] < e.line < seam[1]
        ]
        if i == 2 and not resumed:
            continue  # two rows are no schedule
        harm = None if again else _rise_after(view, row, clear=bool(resumed))
        title = f"The learning rate jumped from {number(before)} to {number(value)} at {series.label(row)}"
        if harm is not None:
            title += (
                f" and the loss has risen from {number(harm[0])} to {number(harm[1])} since: "
                + (
                    "the run resumed there with the weights, but the learning rate schedule (and with it "
                    "usually the optimizer state) was not restored and started again"
                    if resumed
                    else "the learning rate schedule was restarted or changed (scheduler state not "
                    "restored at a resume, or another schedule)"
                )
            )
        found.append(
            make_finding(
                "lr_jump",
                title,
                Level.CONTEXT if harm is None else Level.CAUSE,
                Category.CHECKPOINT if resumed else Category.NUMERICAL,
                view.evidence([int(curve.rows[i - 1]), row, len(series) - 1])
                + view.event_evidence(resumed[:1]),
                page="resume-state" if resumed else "learning-rate-schedules",
                facts={
                    "from": before,
                    "to": value,
                    "at": series.label(row),
                    "explains": "setback" if resumed else "",
                },
            )
        )
        if len(found) >= 3:
            break
    return found


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
                page="learning-rate-schedules",
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
                page="learning-rate-schedules",
                facts={"warmup_steps": length, "first_lr": float(curve.values[0])},
            )
        )
    return found


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
            page="learning-rate-schedules",
            confidence=Confidence.LIKELY,
            facts={"explains": "unlearned", "weight": 0.7, "highest": float(values[-1])},
        )
    ]
