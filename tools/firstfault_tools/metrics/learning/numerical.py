"""Did the numbers themselves break? NaN, infinity, a loss that is no longer printed, loss scaling."""

from __future__ import annotations

from typing import TYPE_CHECKING

from firstfault_tools.expressions import expression
from firstfault_tools.findings import Category, Confidence, Evidence, Finding, Json, Level
from firstfault_tools.kind_pages import page_of_kind
from firstfault_tools.metrics.series import MISSING, NO_RANK, NO_STEP, Event
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


def _not_finite_on(view: View, rank: int | None, where: str) -> list[Finding]:
    """The verdict on one rank. where: what to say about ranks."""
    import numpy as np

    series = view.lead
    loss, grad = _not_finite(view, "loss"), _not_finite(view, "grad_norm")
    gone = lost_rows(view)
    finite_loss = view.curve("loss").rows
    last_good = int(finite_loss[-1]) if len(finite_loss) else -1
    lasting_loss = loss[loss > last_good]
    last_good_grad = int(view.curve("grad_norm").rows[-1]) if len(view.curve("grad_norm")) else -1
    lasting_grad = grad
    if len(gone) or len(lasting_loss):
        # a gradient that is not finite breaks the weights, and with them the loss of the next step
        lasting_grad = grad[grad > min(last_good_grad, last_good)]
    if not len(lasting_loss) and not len(gone):
        lasting_grad = grad[grad > last_good_grad]
        if len(lasting_grad) < (3 if len(finite_loss) else 2):
            return _passing(view, loss, grad)
    rows = [int(part[0]) for part in (lasting_loss, lasting_grad, gone) if len(part)]
    first = min(rows)
    steps: dict[str, Json] = {
        "first_bad_step": series.step[first],
        "first_bad": series.label(first),
    }
    what = []
    if len(lasting_loss):
        what.append("loss")
    if len(lasting_grad):
        what.append("gradient norm")
    quoted = [first - 1, first, *rows]
    parts = []
    if what:
        value = series.values("loss" if len(lasting_loss) else "grad_norm")
        seen = value[int((lasting_loss if len(lasting_loss) else lasting_grad)[0])]
        word = "infinite" if np.isinf(seen) else "NaN"
        verb = "is" if len(what) == 1 else "are"
        names = " and ".join(what).capitalize()
        title = f"{names} {verb} {word} since {series.label(first)}"
        if len(what) == 2 and int(lasting_grad[0]) < int(lasting_loss[0]):
            title = _name_gradient_first(view, int(lasting_grad[0]), int(lasting_loss[0]))
        if len(gone):
            parts.append(f"the loss is no longer printed since {series.label(int(gone[0]))}")
            steps["loss_missing_since"] = series.label(int(gone[0]))
    else:
        title = (
            f"The loss is no longer printed since {series.label(first)} while the other columns go "
            "on; some trainers leave a NaN loss out"
        )
    cause_known = False
    rate = _rate_jump_before(view, first)
    if rate is not None:
        quoted += [rate[0], rate[0] - 1]
        steps |= {"lr_before": rate[2], "lr_after": rate[1], "lr_jump": series.label(rate[0])}
        parts.append(
            f"the learning rate had jumped from {number(rate[2])} to {number(rate[1])} at "
            f"{series.label(rate[0])}"
        )
        cause_known = True
    spike = _spike_before(view, first)
    if spike is not None:
        quoted.append(spike[0])
        steps |= {"grad_norm_spike": spike[1], "grad_norm_usual": spike[2]}
        steps["grad_norm_spike_at"] = series.label(spike[0])
        parts.append(
            f"the gradient norm had gone from about {number(spike[2])} to {number(spike[1])} at "
            f"{series.label(spike[0])}"
        )
    jump = _jump_before(view, first)
    if jump is not None and jump[0] != first:
        quoted.append(jump[0])
        steps |= {"loss_jump": jump[1], "loss_usual": jump[2]}
        steps["loss_jump_at"] = series.label(jump[0])
        parts.append(
            f"the loss had jumped from about {number(jump[2])} to {number(jump[1])} at "
            f"{series.label(jump[0])}"
        )
    rates = view.curve("lr")
    known_rates = rates.values[rates.rows <= first]
    if len(known_rates):
        steps |= {"lr": float(known_rates[-1]), "lr_first": float(known_rates[0])}
        if rate is None and (spike is not None or (jump is not None and jump[0] != first)):
            parts.append(f"the run diverged at learning rate {float(known_rates[-1]):.4g}")
    denied = _denied(view, first)
    if denied:
        parts.append(denied)
        steps["counters_contradict"] = True
    saved = view.last_checkpoint_before(min([first, *(s[0] for s in (spike, jump) if s)]))
    extra: tuple[Evidence, ...] = ()
    if saved is not None:
        steps["last_clean_checkpoint_step"] = saved.values.get("step")
        parts.append(f"last checkpoint before it: step {saved.values.get('step', 0):.0f}")
        extra = view.event_evidence([saved])
    certain = bool(what)
    if first == int(view.lead.rows_with("loss")[0] if len(view.lead.rows_with("loss")) else 0):
        parts.append("it is so from the first logged step on")
        steps["from_the_start"] = True
    kind = "nan_loss" if certain else "loss_missing"
    if rate is not None:
        kind = "nan_after_lr_jump"
    elif spike is None and jump is None:
        # the good row is quoted for comparison; the fault begins where the value breaks
        steps["starts_at"] = series.line[first]
    return [
        make_finding(
            kind,
            "; ".join(part for part in (title, where, *parts) if part),
            Level.CAUSE if certain else Level.FAILURE,
            Category.NUMERICAL,
            view.evidence(quoted) + extra,
            page="loss-nan",
            confidence=Confidence.CONFIRMED
            if certain and (cause_known or len(lasting_loss) or len(gone))
            else Confidence.LIKELY,
            facts=steps,
            rank=rank,
        )
    ]


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
            page="loss-nan",
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
                page="loss-scale-warmup",
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
            view.evidence([*(rows[:4] - 1), *rows[:4]]),
            page="loss-nan",
            confidence=Confidence.POSSIBLE,
            facts=facts,
        )
    ]


def _before_scaling(view: View, reduced: list[Event]) -> tuple[str, list[Event]]:
    """Values that were no numbers before the first step: no scale of the loss mends those."""
    if not reduced:
        return "", []
    told = [e for e in view.events("value_not_finite") if e.line < reduced[0].line]
    if told:
        return (
            "; the forward pass gives NaN in fp16 (half precision) already before the first step, as quoted, so the scale is "
            "only the messenger: train in bf16 or fp32, and check the weights and the input that the NaN comes from",
            told[:1],
        )
    if reduced[0].row == 0 and not len(view.lead):
        return (
            "; not one step succeeded, so a value leaves the range of fp16 (half precision) in every forward or backward pass: "
            "train in bf16, or find the first activation that is not finite",
            [],
        )
    return "", []


def judge_loss_scale(view: View) -> list[Finding]:
    """Collapse of the dynamic loss scale against its normal search for a level."""
    import numpy as np

    series = view.lead
    reduced = view.events("scale_reduced")
    floor = view.events("scale_at_minimum")
    curve = view.curve("loss_scale")
    drops = int(np.sum(np.diff(curve.values) < 0)) if len(curve) > 1 else 0
    if not reduced and not floor and drops == 0:
        return []
    last = reduced[-1].values.get("to") if reduced else None
    if last is None:
        last = float(curve.values[-1]) if len(curve) else None
    first = reduced[0].values.get("from") if reduced else None
    if first is None and len(curve):
        first = float(curve.values[0])
    rows = len(series)
    count = max(len(reduced), drops)
    # Reductions with no finished step between them, once training was under way.
    streak, worst, at_row, start = 0, 0, -1, 0
    worst_start = 0
    for i, event in enumerate(reduced):
        if event.row != at_row:
            streak, at_row, start = 0, event.row, i
        streak += 1
        if event.row > 0 and streak > worst:
            worst, worst_start = streak, start
    at_floor = bool(floor) or (
        last is not None and last <= 1.0 and ((first or 0) > 1.0 or count > 1)
    )
    span = f"down to {number(last or 0)}"
    if first is not None:
        span = f"from {number(first)} to {number(last or 0)}"
    facts: dict[str, Json] = {
        "reductions": count,
        "first_scale": first,
        "last_scale": last,
        "longest_run_without_a_step": worst,
    }
    shown = [*reduced[:1], *reduced[-1:]] if len(reduced) > 1 else reduced
    quoted = view.event_evidence([*shown, *floor[:1]])
    if len(curve) > 1 and not reduced:
        falls = np.flatnonzero(np.diff(curve.values) < 0)
        quoted += view.evidence([*curve.rows[falls[:1]], *curve.rows[falls[-1:] + 1]])
    if at_floor or worst >= 10:
        said, unwell = _before_scaling(view, reduced)
        quoted += view.event_evidence(unwell)
        where = ""
        if worst >= 10 and reduced and rows:
            before = min(rows, reduced[worst_start].row) - 1
            where = f" after {series.label(before)}"
        return [
            make_finding(
                "loss_scale_collapse",
                f"The loss scale collapsed{where}: {count} reductions {span}"
                + (", its minimum" if at_floor else "")
                + "; every step overflows, so nothing is learned"
                + said,
                Level.CAUSE,
                Category.NUMERICAL,
                quoted,
                page=page_of_kind("metrics.loss_scale_collapse"),
                confidence=Confidence.CONFIRMED if at_floor else Confidence.LIKELY,
                facts=facts,
            )
        ]
    if reduced:
        early = sum(1 for event in reduced if event.row <= max(5, rows // 10))
    else:
        falls = np.flatnonzero(np.diff(curve.values) < 0)
        # A scale that falls row after row from the first on is still being searched for.
        run = int(np.flatnonzero(np.diff(np.append(falls, -9)) != 1)[0]) + 1
        early = int(np.sum(falls <= max(5, rows // 10)))
        if falls[0] <= 1:
            early = max(early, run)
    late = count - early
    if late > max(4, 0.05 * max(rows, 1)) and late > early:
        return []
    return [
        make_finding(
            "loss_scale_warmup",
            f"{count} loss-scale reduction(s), {span}: "
            "normal dynamic loss scaling finding its level; each skips one step",
            Level.BENIGN,
            Category.NUMERICAL,
            quoted,
            page="loss-scale-warmup",
            confidence=Confidence.CONFIRMED,
            facts=facts,
        )
    ]
