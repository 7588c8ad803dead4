"""Does the run converge, is its loss too slow, and what to change next time? From the curve it logged."""

from __future__ import annotations

from firstfault.conversation.quantities import read_quantities
from firstfault.conversation.run_answers import at_line
from firstfault.conversation.telling import Telling
from firstfault.investigation.diagnosis import Citation, CitationKind
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Category, Verdict
from firstfault_tools.metrics.learning.loss_trend import Pace, Trend, read_trend
from firstfault_tools.metrics.series import StepSeries

ENDING = 0.5
"""Share of its peak to which the rate must have fallen for the schedule to be part of a slow fall."""
FEW_STEPS = 1_000
PAGE = "underfitting"
_EXAMPLES = expression(r"(?i)\b(\d[\d,]{0,12}) (?:examples|samples|rows|records|sequences)\b")
_ACCUMULATION = expression(r"(?i)\baccum\w*(?: steps)?\s?[=:]?\s?(\d{1,5})\b")
_EPOCHS = expression(r"(?i)\bepochs?\s?[=:]\s?(\d{1,4})\b|\b(\d{1,4}) epochs?\b")
_HEADS = {
    Pace.ON_CURVE: "Yes, it converges, on its curve: no plateau, and not slow by itself",
    Pace.SLOW: "It still falls, but too slowly: each doubling of the steps brings less than 1 %",
    Pace.LEVELS_OFF: "It levels off: the fall has dropped below half of what its curve promised",
    Pace.FLAT: "It has stopped falling: over the second half the slope is lost in its scatter",
    Pace.RISES: "No: over the second half it rises",
}


def tell_trend(t: Telling) -> str:
    """The judgement with figures; '' where no curve of the loss is long enough."""
    if t.diagnosis.verdict is Verdict.FAULT and t.diagnosis.category is Category.NUMERICAL:
        return f"No: {t.cause} {t.main}. What the curve did before that does not count."
    for file, series in t.record.artefacts.steps.items():
        trend = read_trend(series)
        if trend is not None:
            return _say(t, file, series, trend)
    return ""


def _say(t: Telling, file: str, series: StepSeries, trend: Trend) -> str:
    def at(row: int) -> str:
        line = int(series.line[row])
        return at_line(t, file, line, t.record.artefacts.text_of(file, line))

    share = 100 * trend.per_doubling / trend.last if trend.last else 0.0
    moved = f"{'falls' if trend.per_doubling > 0 else 'rises'} by {abs(trend.per_doubling):.3g} ({abs(share):.1f} %)"
    head = (
        f"{_HEADS[trend.pace]}. The loss goes from {trend.first:.4g} at step {trend.first_step} ({at(trend.first_row)}) to {trend.last:.4g} at step "
        f"{trend.last_step} ({at(trend.last_row)}); in its second half it {moved} with every doubling of the steps, over all {trend.whole_per_doubling:.3g}."
    )
    ahead = trend.steps_for(0.05 * trend.last)
    if trend.pace in (Pace.ON_CURVE, Pace.SLOW) and ahead is not None:
        head += (
            f" A further 5 % ({0.95 * trend.last:.4g}) would take it to about step {ahead:,.0f}."
        )
    means = _means(t, trend)
    rows = _changes(t, series, trend)
    blocks = [head]
    if means:
        blocks.append("What the slow fall suggests: " + "; ".join(means) + ".")
    blocks.append(
        "For the next run:\n\n" + "\n".join(f"{n}. {row}" for n, row in enumerate(rows, 1))
    )
    return "\n\n".join(blocks)


def _means(t: Telling, trend: Trend) -> list[str]:
    means = []
    if trend.rate_left is not None and trend.rate_left < ENDING:
        means.append(
            f"the learning rate has come down to {100 * trend.rate_left:.0f} % of its peak, so part of it is the schedule's end and no limit of the model"
        )
    if trend.last_step < FEW_STEPS and trend.pace in (Pace.ON_CURVE, Pace.LEVELS_OFF):
        means.append(f"{trend.last_step} updates are few: the run ends while the curve still falls")
    if trend.pace in (Pace.SLOW, Pace.FLAT) and (trend.rate_left or 1.0) >= ENDING:
        means.append(
            "at a rate near its peak, the rate is too low or too high, or the data teaches nothing new"
        )
    return means


def _changes(t: Telling, series: StepSeries, trend: Trend) -> list[str]:
    """What to change, the likeliest first."""
    rows = []
    ends = trend.rate_left is not None and trend.rate_left < ENDING
    if ends or (trend.last_step < FEW_STEPS and trend.pace is not Pace.RISES):
        plateau = "A plateau at the end of a schedule is not underfitting."
        stretch = ", with the schedule stretched to the new length" if ends else ""
        cited = _cite(t, "What it is not", plateau) if ends else ""
        rows.append(f"Train longer: more updates{stretch}.{_say_updates(t)}{cited}")
    if trend.pace is not Pace.RISES:
        fix = "Raise the learning rate in steps of three within the usual range of the method"
        rows.append(
            f"{fix}, one run for each, and keep what falls faster without spikes.{_cite(t, 'Fix now', fix)}"
        )
    else:
        rows.append(
            "Go back to the checkpoint before it turned, with a lower rate or the warm-up that was left out."
        )
    if not series.has("eval_loss"):
        rows.append(
            "Log a loss on held-out data: the training loss alone cannot tell too little learning from learning by heart."
        )
    check = "Overfit one batch: loss must go to almost 0 in some hundred steps; if not, it is code or labels."
    rows.append(f"{check}{_cite(t, 'How to confirm', check)}")
    return rows


def _say_updates(t: Telling) -> str:
    """How many updates the data gives, where it is said how much there is."""
    text = "; ".join([t.asked.text, *(x.text for x in t.evidence.lines[:400])])
    found, q = _EXAMPLES.search(text), read_quantities(text)
    if found is None:
        return ""
    accumulation = _ACCUMULATION.search(text)
    accumulated = int(accumulation[1]) if accumulation is not None else q.micro_batches or 1
    examples, micro = int(found[1].replace(",", "")), q.micro_batch or 1
    each = examples / (micro * accumulated * (q.gpus or 1))
    epochs = _EPOCHS.search(text)
    count = int(epochs[1] or epochs[2]) if epochs is not None else 1
    return (
        f" {examples:,} examples at batch {micro} x {accumulated} are {each:.0f} updates an epoch, {each * count:.0f} in {count}; half the "
        "accumulation gives twice as many from the same data."
    )


def _cite(t: Telling, heading: str, quote: str) -> str:
    page = t.question.knowledge.pages.get(PAGE)
    if page is None:
        return ""
    return " " + t.sources.add(
        Citation(0, CitationKind.PAGE, quote, page=page.id, heading=heading, url=page.url)
    )
