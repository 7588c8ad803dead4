"""Did anything learn at all: gradients that arrive, a loss that moves?"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from firstfault_tools.findings import Category, Confidence, Finding, Level
from firstfault_tools.metrics.series import NO_STEP
from firstfault_tools.metrics.view import (
    PLACEHOLDER_LOSS,
    Curve,
    View,
    make_finding,
    noise_of,
    number,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
FEW = 5

CONSTANT = 4
"""Rows with the very same loss from which on it is no chance."""


def judge_dead_gradients(view: View) -> list[Finding]:
    """Gradient norm exactly zero, or a loss that is exactly zero: nothing reaches the weights."""
    import numpy as np

    series = view.lead
    found = []
    grad, loss = view.curve("grad_norm"), view.curve("loss")
    # A model that has learned its data by heart has no gradient left, and no loss.
    learned = len(loss) > 0 and float(np.max(np.abs(loss.values[-FEW:]))) < 0.01
    alive = np.flatnonzero(grad.values != 0.0)
    start = int(alive[-1]) + 1 if len(alive) else 0
    if len(grad) >= FEW and start <= len(grad) - FEW and not learned and not _falls(view, start):
        row = int(grad.rows[start])
        found.append(
            make_finding(
                "grad_norm_zero",
                f"The gradient norm is exactly 0 since {series.label(row)} ({len(grad) - start} "
                f"rows): no gradient reaches the weights{_loss_at_zero(view, row)}",
                Level.CAUSE,
                Category.NUMERICAL,
                view.evidence([row - 1, row, int(grad.rows[-1])], usual=[row - 1]),
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
                    view.evidence([row - 1, row, int(loss.rows[-1])], usual=[row - 1]),
                    page="loss-zero",
                    facts={"since": series.label(row), "rows": len(loss) - start},
                )
            )
    return found


def _falls(view: View, start: int) -> bool:
    """The norm was never anything but 0 and yet the loss falls: the trainer prints it without computing it."""
    import numpy as np

    values = view.curve("loss").values
    if start or len(values) < 2 * FEW:
        return False
    early, late = float(np.median(values[:FEW])), float(np.median(values[-FEW:]))
    return early - late > max(0.1 * abs(early), 6 * noise_of(values))


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
        title += f"; the learning rate was {float(rates[-1]):.4g}, probably too high"
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
            "diverged first and its output is saturated; possible: a learning rate too high"
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
    if len(values) < EPOCHS or np.any(values == PLACEHOLDER_LOSS) or _stays_zero(rate):
        return []
    third = len(values) // 3
    head, tail = float(np.median(values[:third])), float(np.median(values[-third:]))
    frozen = _is_frozen(values[-2 * third :], len(values), tail)
    if not (frozen or _runs_long(view, loss)) or _begins_midst(view, loss):
        return []
    noise = max(noise_of(values), 1e-9)
    moved = abs(head - tail) > max(2 * noise / third**0.5, 0.004 * abs(head))
    what = _name_guess(tail, noise, frozen)
    if what is None or (moved and not frozen):
        return []
    series, first, last = view.lead, int(loss.rows[0]), int(loss.rows[-1])
    start = int(loss.rows[len(values) - 2 * third]) if moved else first
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
            facts={"loss": tail, "first": series.label(first), "last": series.label(last)},
        )
    ]


def _stays_zero(rate: Curve) -> bool:
    """A learning rate of 0 in every row explains a loss that does not move."""
    return len(rate) > 0 and bool((rate.values == 0).all())


def _is_frozen(late: NDArray[np.float64], rows: int, level: float) -> bool:
    """Two thirds of a curve that do not move as new samples move the loss of any model that reads them."""
    return rows >= 30 and level > 0.05 and float(late.max() - late.min()) <= FROZEN * level


def _known_steps(view: View, loss: Curve) -> NDArray[np.int64]:
    steps = view.lead.steps()[loss.rows]
    known: NDArray[np.int64] = steps[steps != NO_STEP]
    return known


def _runs_long(view: View, loss: Curve) -> bool:
    """Steps enough for any model to learn something; epochs where no step is printed."""
    known = _known_steps(view, loss)
    if len(known):
        return len(known) >= LONG and bool(known[-1] - known[0] >= LONG_STEPS)
    if not view.lead.has("epoch"):
        return False
    epochs = view.curve("epoch").values
    return len(epochs) >= EPOCHS and bool(epochs.max() - epochs.min() >= EPOCHS - 1)


def _begins_midst(view: View, loss: Curve) -> bool:
    """An excerpt from the midst of a run does not show that it began so."""
    known = _known_steps(view, loss)
    return len(known) > 0 and bool(known[0] > max(LONG_STEPS, known[-1] - known[0]))


def _name_guess(level: float, noise: float, frozen: bool) -> str | None:
    """Words for a loss that is the cross entropy of a blind guess; None for any other."""
    guess = _find_guess(level, 0.0008 if frozen else 0.003)
    if guess is not None:
        beside = f" (uniform output, ln {guess}; in contrastive training the number of candidates)"
        words = f"the cross entropy of a blind guess over {guess} classes"
        return words + beside if guess > 2000 else words
    if 9.8 <= level <= 12.6 and noise < 0.3:
        return f"the cross entropy of a blind guess over about {math.exp(level):,.0f} tokens"
    return None


def _find_guess(level: float, near: float) -> int | None:
    """How many classes a blind guess with this cross entropy has."""
    return next((c for c, v in _GUESSES.items() if abs(level - v) < near * v), None)


def judge_constant_loss(view: View) -> list[Finding]:
    """The very same loss in all rows: a note that explains the complaint that nothing is learned."""
    import numpy as np

    loss, rate = view.curve("loss"), view.curve("lr")
    values = loss.values
    if len(values) < CONSTANT or np.any(values != values[0]):
        return []
    if values[0] <= 0 or float(values[0]).is_integer():
        return []  # a placeholder, or digits cut off
    if _stays_zero(rate):
        return []
    series, first, last = view.lead, int(loss.rows[0]), int(loss.rows[-1])
    level = float(values[0])
    guess = _find_guess(level, 0.0008)
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
            facts={"explains": {"unlearned": 0.5}, "loss": level},
        )
    ]
