"""Did the numbers themselves break? NaN, infinity, a loss that is no longer printed, loss scaling."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Category, Confidence, Finding, Json, Level
from firstfault_tools.metrics.series import MISSING, NO_RANK, NO_STEP
from firstfault_tools.metrics.view import View, make_finding, number

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

LOOK_BACK = 50
SPIKE = 8.0
LR_JUMP = 3.0

_SCALING = expression(r"skip|overflow|scale|scaler")


def lost_rows(view: View, metric: str = "loss") -> NDArray[np.int64]:
    """Rows from which `metric` is gone although all that used to be printed beside it goes on.

    Beside it: columns that were there in at least 95 % of the rows with the metric and hardly ever
    without it. At least three rows with and three without, and it never comes back.
    """
    import numpy as np

    series = view.lead
    there = series.values(metric) != MISSING
    if there.all() or not there.any():
        return np.empty(0, dtype=np.int64)
    last = int(np.flatnonzero(there)[-1])
    before, after = there[: last + 1], np.arange(last + 1, len(there))
    if before.sum() < 3 or len(after) < 3:
        return np.empty(0, dtype=np.int64)
    companions = []
    for name in series.columns:
        if name in (metric, "epoch", "eval_loss"):
            continue
        with_it = series.values(name)[: last + 1] != MISSING
        if with_it[before].mean() >= 0.95 and (with_it & ~before).sum() <= 0.05 * before.sum():
            companions.append(name)
    if not companions:
        return np.empty(0, dtype=np.int64)
    goes_on = np.all([series.values(name)[after] != MISSING for name in companions], axis=0)
    gone = after[goes_on]
    return gone if len(gone) >= 3 else np.empty(0, dtype=np.int64)


def _not_finite(view: View, metric: str) -> NDArray[np.int64]:
    import numpy as np

    values = view.lead.values(metric)
    return np.flatnonzero((values != MISSING) & ~np.isfinite(values))


def _spike_before(view: View, row: int) -> tuple[int, float, float] | None:
    """(row, value, usual) of the first extreme gradient norm shortly before `row`."""
    import numpy as np

    curve = view.curve("grad_norm")
    before = curve.rows < row
    rows, values = curve.rows[before], curve.values[before]
    if len(values) < 3:
        return None
    near = rows >= row - LOOK_BACK
    usual = float(np.median(values[~near])) if (~near).sum() >= 5 else float(np.median(values))
    high = np.flatnonzero(near & (values > SPIKE * max(usual, 1e-12)))
    if not len(high):
        return None
    at = int(high[0])
    # A spike that came back down long before is another story.
    while at + 1 < len(values) and len(high) > 1 and rows[-1] - rows[at] > 20:
        later = high[high > at]
        if not len(later):
            break
        at = int(later[0])
    return int(rows[at]), float(values[at]), usual


def _rate_jump_before(view: View, row: int) -> tuple[int, float, float] | None:
    """(row, new, old) of the last sudden rise of the learning rate shortly before `row`."""
    curve = view.curve("lr")
    found = None
    for i in range(1, len(curve)):
        if curve.rows[i] > row:
            break
        old, new = float(curve.values[i - 1]), float(curve.values[i])
        near = curve.rows[i] >= row - LOOK_BACK and old > 0 and new > LR_JUMP * old
        # Warm-up rises by large factors in its first steps, from next to nothing.
        if (
            near
            and (i >= 3 or new > 100 * old)
            and not _is_warm_up(view, int(curve.rows[i - 1]), int(curve.rows[i]), new / old)
        ):
            found = (int(curve.rows[i]), new, old)
    return found


def _is_warm_up(view: View, before: int, after: int, ratio: float) -> bool:
    """The rate rose as the steps did, over rows that are not in the log: linear warm-up."""
    steps = view.lead.step
    one, two = float(steps[before]), float(steps[after])
    return one > 0 and two > one and ratio <= 1.1 * two / one


def _jump_before(view: View, row: int) -> tuple[int, float, float] | None:
    """(row, value, usual) of the first loss far above all before it, within the look-back."""
    import numpy as np

    curve = view.curve("loss")
    before = curve.rows < row
    rows, values = curve.rows[before], curve.values[before]
    if len(values) < 4:
        return None
    usual = float(np.median(values[: max(3, len(values) - 5)]))
    high = np.flatnonzero((rows >= row - LOOK_BACK) & (values > 2 * abs(usual) + 0.5))
    return (int(rows[high[0]]), float(values[high[0]]), usual) if len(high) else None


def _first_by_rank(view: View) -> dict[int, tuple[int, int]]:
    """rank -> (step, row of `all`) of its first loss or gradient norm that is not finite."""
    import numpy as np

    series = view.all
    bad = np.zeros(len(series), dtype=bool)
    for metric in ("loss", "grad_norm"):
        values = series.values(metric)
        bad |= (values != MISSING) & ~np.isfinite(values)
    first: dict[int, tuple[int, int]] = {}
    for row in np.flatnonzero(bad).tolist():
        first.setdefault(series.rank[row], (series.step[row], row))
    return first


def judge_not_finite(view: View) -> list[Finding]:
    """NaN or infinite loss or gradients, a loss that vanished, and counters that deny it.

    Where ranks print their own values, the rank on which it came first is named: its data or its GPU
    is the place to look, and the others only averaged it in.
    """
    import numpy as np

    first = _first_by_rank(view)
    ranks = np.unique(view.all.ranks())
    if len(ranks) < 2 or not first or NO_RANK in ranks or NO_STEP in [s for s, _ in first.values()]:
        return _not_finite_on(view, None, "")
    earliest = min(step for step, _ in first.values())
    guilty = sorted(rank for rank, (step, _) in first.items() if step == earliest)
    if len(guilty) == len(ranks):
        return _not_finite_on(view, None, "")
    rows = np.flatnonzero(view.all.ranks() == guilty[0])
    alone = View(view.all, view.all.select(rows), view.file, view.quote)
    later = len(first) - len(guilty)
    others = f"{later} other rank(s) later" if later else "all other ranks stay finite"
    names = ", ".join(map(str, guilty[:8]))
    return _not_finite_on(
        alone,
        guilty[0] if len(guilty) == 1 else None,
        f"first on rank{'s' if len(guilty) > 1 else ''} {names}; {others}",
    )


def _name_gradient_first(view: View, gradient: int, loss: int) -> str:
    """The gradient broke before the loss: the step was taken with it."""
    import numpy as np

    series = view.lead
    word = "infinite" if np.isinf(series.values("grad_norm")[gradient]) else "NaN"
    return (
        f"The gradient norm is {word} at {series.label(gradient)}, before the loss, which is NaN since {series.label(loss)}: an update "
        "with a gradient that is not finite was applied and broke the weights; such a step has to be skipped (in bf16, too)"
    )


def _find_lasting(
    view: View, loss: NDArray[np.int64], grad: NDArray[np.int64], gone: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows of a loss and of a gradient norm that never became finite again."""
    losses, norms = view.curve("loss").rows, view.curve("grad_norm").rows
    last_loss = int(losses[-1]) if len(losses) else -1
    last_norm = int(norms[-1]) if len(norms) else -1
    lasting = loss[loss > last_loss]
    if len(gone) or len(lasting):
        # a gradient that is not finite breaks the weights, and with them the loss of the next step
        last_norm = min(last_norm, last_loss)
    return lasting, grad[grad > last_norm]


def _title_break(view: View, first: int, loss: NDArray[np.int64], grad: NDArray[np.int64]) -> str:
    """What broke, and since when. loss, grad: rows from which it lasts."""
    import numpy as np

    series = view.lead
    if len(loss) and len(grad) and grad[0] < loss[0]:
        return _name_gradient_first(view, int(grad[0]), int(loss[0]))
    names = [n for n, rows in (("loss", loss), ("gradient norm", grad)) if len(rows)]
    if not names:
        return (
            f"The loss is no longer printed since {series.label(first)} while the other columns go "
            "on; some trainers leave a NaN loss out"
        )
    seen = series.values("loss")[loss[0]] if len(loss) else series.values("grad_norm")[grad[0]]
    word = "infinite" if np.isinf(seen) else "NaN"
    verb = "is" if len(names) == 1 else "are"
    return f"{' and '.join(names).capitalize()} {verb} {word} since {series.label(first)}"


_FORERUNNERS = {
    "rate": ("the learning rate had jumped from", ("lr_after", "lr_before", "lr_jump")),
    "spike": (
        "the gradient norm had gone from about",
        ("grad_norm_spike", "grad_norm_usual", "grad_norm_spike_at"),
    ),
    "jump": ("the loss had jumped from about", ("loss_jump", "loss_usual", "loss_jump_at")),
}
"""What went before: its words, and the facts of its value, of the usual one and of its place."""


def _not_finite_on(view: View, rank: int | None, where: str) -> list[Finding]:
    """The verdict on one rank. where: what to say about ranks."""
    loss, grad, gone = _not_finite(view, "loss"), _not_finite(view, "grad_norm"), lost_rows(view)
    lasting_loss, lasting_grad = _find_lasting(view, loss, grad, gone)
    few = len(lasting_grad) < (3 if len(view.curve("loss")) else 2)
    if few and not len(lasting_loss) and not len(gone):
        return _passing(view, loss, grad)
    return [_tell_break(view, rank, where, _Break(lasting_loss, lasting_grad, gone))]


@dataclass(frozen=True, slots=True)
class _Break:
    """Rows in which a loss or a gradient norm is not finite and never becomes it again, or the loss is missing."""

    loss: NDArray[np.int64]
    grad: NDArray[np.int64]
    gone: NDArray[np.int64]

    @property
    def rows(self) -> list[int]:
        """The first row of each."""
        return [int(part[0]) for part in (self.loss, self.grad, self.gone) if len(part)]

    @property
    def certain(self) -> bool:
        """A value was seen that is no number."""
        return len(self.loss) > 0 or len(self.grad) > 0

    def rate_certainty(self, jumped: bool) -> Confidence:
        """A gradient alone may be skipped by the trainer, unless the learning rate jumped before it."""
        if self.certain and (jumped or len(self.loss) or len(self.gone)):
            return Confidence.CONFIRMED
        return Confidence.LIKELY


def _tell_break(view: View, rank: int | None, where: str, broken: _Break) -> Finding:
    """The finding on numbers that broke, with what went before."""
    series, first = view.lead, min(broken.rows)
    facts: dict[str, Json] = {
        "first_bad_step": series.step[first],
        "first_bad": series.label(first),
    }
    parts = [_title_break(view, first, broken.loss, broken.grad), where]
    if broken.certain and len(broken.gone):
        missing = series.label(int(broken.gone[0]))
        facts["loss_missing_since"] = missing
        parts.append(f"the loss is no longer printed since {missing}")
    before = _look_before(view, first)
    quoted = [first - 1, first, *broken.rows]
    if "rate" in before:
        quoted.append(before["rate"][0] - 1)
    for name, (row, value, usual) in before.items():
        if (name, row) == ("jump", first):
            continue  # it is the break itself
        words, keys = _FORERUNNERS[name]
        parts.append(f"{words} {number(usual)} to {number(value)} at {series.label(row)}")
        facts |= dict(zip(keys, (value, usual, series.label(row)), strict=True))
        quoted.append(row)
    told, more = _tell_surroundings(view, first, before)
    saved = view.last_checkpoint_before(
        min([first, *(before[n][0] for n in ("spike", "jump") if n in before)])
    )
    if saved is not None:
        more["last_clean_checkpoint_step"] = saved.values.get("step")
        told.append(f"last checkpoint before it: step {saved.values.get('step', 0):.0f}")
    if first == next(iter(series.rows_with("loss")[:1].tolist()), 0):
        told.append("it is so from the first logged step on")
        more["from_the_start"] = True
    if not before:
        # the good row is quoted for comparison; the fault begins where the value breaks
        more["starts_at"] = series.line[first]
    jumped = "rate" in before
    return make_finding(
        "nan_after_lr_jump" if jumped else "nan_loss" if broken.certain else "loss_missing",
        "; ".join(part for part in (*parts, *told) if part),
        Level.CAUSE if broken.certain else Level.FAILURE,
        Category.NUMERICAL,
        view.evidence(quoted, usual={first - 1} - {row for row, _, _ in before.values()})
        + view.event_evidence([saved] if saved is not None else ()),
        page="loss-nan",
        confidence=broken.rate_certainty(jumped),
        facts=facts | more,
        rank=rank,
    )


def _look_before(view: View, first: int) -> dict[str, tuple[int, float, float]]:
    """(row, value, usual) of what went before: a learning rate, a gradient norm, a loss that jumped."""
    looks = {"rate": _rate_jump_before, "spike": _spike_before, "jump": _jump_before}
    return {name: seen for name, look in looks.items() if (seen := look(view, first)) is not None}


def _tell_surroundings(
    view: View, first: int, before: Mapping[str, tuple[int, float, float]]
) -> tuple[list[str], dict[str, Json]]:
    """Words and facts of the learning rate at the break and of counters that deny it."""
    told: list[str] = []
    facts: dict[str, Json] = {}
    rates = view.curve("lr")
    known_rates = rates.values[rates.rows <= first]
    if len(known_rates):
        facts |= {"lr": float(known_rates[-1]), "lr_first": float(known_rates[0])}
        diverged = "spike" in before or ("jump" in before and before["jump"][0] != first)
        if diverged and "rate" not in before:
            told.append(f"the run diverged at learning rate {float(known_rates[-1]):.4g}")
    if denied := _denied(view, first):
        told.append(denied)
        facts["counters_contradict"] = True
    return told, facts


def judge_evaluation(view: View) -> list[Finding]:
    """An evaluation loss that is not finite although training goes on."""
    rows = _not_finite(view, "eval_loss")
    if not len(rows) or not len(view.curve("loss")):
        return []
    last = int(view.lead.rows_with("eval_loss")[-1])
    if last not in rows:
        return []
    first = int(rows[0])
    return [
        make_finding(
            "nan_evaluation",
            f"The evaluation loss is not finite since {view.lead.label(first)} while the training "
            "loss is finite: look at empty or fully masked evaluation batches first",
            Level.FAILURE,
            Category.NUMERICAL,
            view.evidence([first, last]),
            facts={"first_bad": view.lead.label(first)},
        )
    ]


def _denied(view: View, first: int) -> str:
    """Say when the trainer's own counters claim that nothing is wrong."""
    import numpy as np

    names = {"nan_iters": "nan iterations", "skipped": "skipped iterations"}
    zero = []
    for metric, name in names.items():
        values = view.lead.values(metric)[first:]
        values = values[values != MISSING]
        if len(values) >= 2 and np.all(values == 0):
            zero.append(name)
    if "nan iterations" not in zero:
        return ""
    return f"the counters for {' and '.join(zero)} still say 0 and cannot be trusted"


def _passing(view: View, loss: NDArray[np.int64], grad: NDArray[np.int64]) -> list[Finding]:
    """NaN or infinity that came and went."""
    import numpy as np

    rows = np.union1d(loss, grad)
    if not len(rows):
        return []
    series = view.lead
    scale = series.values("loss_scale")
    scaling = bool(np.any((scale != MISSING) & (scale > 1))) or bool(view.events("scale_reduced"))
    texts = [e.text.lower() for e in view.evidence(rows[:5])]
    scaling = scaling or (bool(texts) and all(_SCALING.search(text) for text in texts))
    share = len(rows) / max(1, len(series))
    # a fresh dynamic scale needs a few steps to settle; only the loss itself may not suffer
    settling = not len(loss) and int(rows.max()) < 6 and len(series) > 3 * len(rows)
    names = ", ".join(series.label(int(r)) for r in rows[:5]) + (" ..." if len(rows) > 5 else "")
    facts: dict[str, Json] = {"rows": len(rows), "steps": [series.step[int(r)] for r in rows[:20]]}
    if (scaling and share < 0.2) or settling:
        return [
            make_finding(
                "overflow_skipped",
                f"{len(rows)} step(s) with a non-finite value ({names}) were followed by finite "
                "ones: dynamic loss scaling skips such steps, which is normal",
                Level.BENIGN,
                Category.NUMERICAL,
                view.evidence(rows[:5]),
                facts=facts,
            )
        ]
    lasting = len(loss) >= 3 or share > 0.1
    return [
        make_finding(
            "nan_passing",
            f"A non-finite {'loss' if len(loss) else 'gradient norm'} was logged at {names}; "
            + (
                "no later step is logged"
                if int(rows.max()) >= len(series) - 1
                else "later steps are finite again"
            ),
            Level.FAILURE if lasting else Level.CONTEXT,
            Category.NUMERICAL,
            view.evidence([*(rows[:4] - 1), *rows[:4]], usual={*(rows[:4] - 1)} - {*rows[:4]}),
            confidence=Confidence.POSSIBLE,
            facts=facts,
        )
    ]
