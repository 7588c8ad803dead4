"""What did it cost? GPU-hours by what they were lost for, each with the times it is counted from; of a sound run the whole of it."""

from __future__ import annotations

from datetime import datetime
from itertools import pairwise

from firstfault.conversation.run_answers import at_line, clock, steps_lost
from firstfault.conversation.telling import Telling
from firstfault.postmortem.report import Loss, LossKind
from firstfault_tools.averages import median
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Verdict


def tell_cost(t: Telling) -> str:
    """GPU-hours by what they were lost for, each with the times it is counted from."""
    impact = t.report.impact
    if t.diagnosis.verdict is not Verdict.FAULT and not impact.losses:
        return _whole_cost(t)
    again = [x for x in impact.losses if x.kind is LossKind.REPEATED]
    other = [x for x in impact.losses if x.kind is not LossKind.REPEATED]
    gpus, hours = impact.gpus, impact.gpu_hours
    if not impact.losses:
        missing = ", ".join(impact.missing)
        return f"It cannot be counted from what was read; missing: {missing}. Say, for example: 256 GPUs idle for 80 minutes at $4."
    minutes = sum(x.end - x.start for x in impact.losses) / 60
    if hours is None:
        each = sum((x.end - x.start) * (x.share if x.share is not None else 1.0) for x in impact.losses) / 3600  # fmt: skip
        missing = "number of GPUs" if gpus is None else ", ".join(impact.missing)
        head = f"{each:.2f} GPU-hours for each GPU of the job ({minutes:.0f} minutes); the sum cannot be told, missing: {missing}."
    else:
        if _ASKS_IDLE.search(t.asked.text) and (
            still := [x for x in other if x.kind is LossKind.STOPPED]
        ):
            again, other = still, again
        money = f", {impact.currency}{impact.cost:,.0f}" if impact.cost is not None else ""
        counted = [x for x in (again, other) if sum(y.gpu_hours or 0.0 for y in x) >= 0.05]
        parts = " and ".join(map(_say_loss, counted))
        head = f"About {hours:,.1f} GPU-hours{money}{': ' if parts else ''}{parts}."
        if again and again[0].kind is LossKind.STOPPED:
            idle = again[0]
            held = f"{(idle.end - idle.start) / 60:.0f} min of standing still, from {clock(idle.start)} to {clock(idle.end)} UTC"
            rest = f", and {_say_loss(other)}" if other and other[0].gpu_hours else ""
            head = f"About {hours:,.1f} GPU-hours{money}: {held} ({idle.gpu_hours or 0.0:,.1f} GPU-hours on {gpus} GPUs){rest}."
    if impact.price is None and _ASKS_MONEY.search(t.asked.text):
        head = f"The money cannot be told: no line gives the price of a GPU-hour; it is the GPU-hours times that price. {head}"
    rows = [_loss_row(t, x, gpus) for x in impact.losses]
    rows += [f"- {t.cited(c)}" for c in impact.throughput]
    rows += [f"- Taken from the evidence: {a}." for a in impact.assumed if "GPUs" in a]
    if back := _say_setback(t):
        rows.append(back)
    away = t.record.restart
    if away is not None and away[0].time and away[1].time:
        gap = (away[1].time - away[0].time) / 60
        rows.append(
            f"- Not counted: the {gap:.0f} min from {clock(away[0].time)} to the restart at {clock(away[1].time)} "
            f"({at_line(t, away[1].file, away[1].line, away[1].text)}); whether its GPUs stood idle then is not in the log."
        )
    if impact.price is None:
        rows.append("- Say the price of a GPU-hour for the money.")
    return head + "\n\n" + "\n".join(rows)


def _whole_cost(t: Telling) -> str:
    """GPU-hours of a run in which nothing was lost, with what went into saves and evaluation."""
    window, impact = t.diagnosis.input.time_range, t.report.impact
    if window is None:
        return "It cannot be counted: no line that was read has a time. Say how long it ran and on how many GPUs."
    begin, end = (datetime.fromisoformat(x).timestamp() for x in window)
    hours = (end - begin) / 3600
    span = f"{(end - begin) / 60:.0f} min, from {clock(begin)} to {clock(end)} UTC"
    if impact.gpus is None:
        lost = (
            "Nothing was lost to a fault"
            if t.diagnosis.verdict is Verdict.HEALTHY
            else "What was lost is not told by what was read"
        )
        return f"{lost}; the log spans {span}, which is {hours:.2f} GPU-hours for each GPU: no line gives the number of GPUs."
    money = f", {impact.currency}{hours * impact.gpus * impact.price:,.0f}" if impact.price is not None else ""  # fmt: skip
    price = "" if impact.price is not None else " No line gives a price: GPU-hours times the price of one is the money."  # fmt: skip
    if t.diagnosis.verdict is not Verdict.HEALTHY:
        return (
            f"About {hours * impact.gpus:,.1f} GPU-hours{money} for the whole log: {impact.gpus} GPUs for {span}; how much of it was lost is not "
            f"told by what was read.{_since_first_line(t, impact.gpus, end)} {t.cause} {t.main}.{price}"
        )
    return (
        f"About {hours * impact.gpus:,.1f} GPU-hours{money} for the whole log: {impact.gpus} GPUs for {span}. Nothing of it was lost to a fault: "
        f"{t.cause} {t.main}.{price}"
    )


def _since_first_line(t: Telling, gpus: int, end: float) -> str:
    """GPU-hours from the line that the verdict stands on to the end; '' where it has no time."""
    wanted = t.diagnosis.hypotheses[0].for_ if t.diagnosis.hypotheses else ()
    lines = [c for c in t.diagnosis.citations if c.n in wanted and c.file and c.line]
    times = [t.record.artefacts.time_at(c.file, c.line, c.quote)[0] for c in lines if c.file and c.line]  # fmt: skip
    at = max((x for x in times if x is not None), default=None)
    if at is None or at >= end:
        return ""
    return f" From {clock(at)} UTC, where the verdict begins, to the end are {(end - at) / 60:.0f} min, {(end - at) / 3600 * gpus:,.1f} GPU-hours."


_ASKS_IDLE = expression(
    r"(?i)\bidle\b|\bsit\b|\bsat\b|\bstood\b|\bstand(?:ing)? still\b|\bdoing nothing\b|\bwait(?:ed|ing)?\b|\bhow long\b"
)


_ASKS_MONEY = expression(r"(?i)\bdollars?\b|\bmoney\b|\beuros?\b|\busd\b|[$€]|\bprice")


def _say_setback(t: Telling) -> str:
    """How far the run is set back in all, where the log goes on with steps after a restart; '' where it does not."""
    stopped, lost = t.record.stopped_at, t.record.repeated
    away = t.record.restart
    if stopped is None or lost is None or away is None or not away[1].time:
        return ""
    later = [s for s in t.record.steps if s.time is not None and s.time >= away[1].time]
    gaps = [
        b.time - a.time
        for a, b in pairwise(t.record.steps)
        if a.time and b.time and b.time > a.time and b.step > a.step
    ]
    if not later or later[0].time is None or not gaps:
        return ""
    begins = later[0].time - median(gaps)
    pause = max(0.0, begins - stopped)
    return (
        f"- In all the run is set back by about {(lost.seconds + pause) / 60:.0f} min: {lost.seconds / 60:.0f} min of work to repeat and "
        f"{pause / 60:.0f} min without training, from {clock(stopped)} to about {clock(begins)} UTC, when it stepped again."
    )


def _say_loss(losses: list[Loss]) -> str:
    hours = sum(x.gpu_hours or 0.0 for x in losses)
    words = {LossKind.REPEATED: "of work to be done again", LossKind.STOPPED: "of standing still", LossKind.SLOW: "lost by running slowly"}  # fmt: skip
    return f"{hours:,.1f} {words[losses[0].kind]}"


def _loss_row(t: Telling, loss: Loss, gpus: int | None) -> str:
    minutes = (loss.end - loss.start) / 60
    share = f" x {100 * loss.share:.0f} %" if loss.share is not None and loss.share < 1 else ""
    product = f" x {gpus} GPUs = {loss.gpu_hours:,.1f} GPU-hours" if gpus and loss.gpu_hours is not None else ""  # fmt: skip
    quotes = {c.n: c for c in t.report.citations}
    marks = "".join(t.sources.add(quotes[n]) for n in loss.citations if n in quotes)
    if loss.kind is LossKind.REPEATED:
        saved = t.record.resume_from
        since = f"since the checkpoint of {saved.name}" if saved is not None else "since the start; no line tells of a saved checkpoint"  # fmt: skip
        steps = steps_lost(t)
        what = f"To be done again, {since}{steps}"
    else:
        what = "Standing still" if loss.kind is LossKind.STOPPED else "Slow"
    return f"- {what}: {clock(loss.start)} to {clock(loss.end)} (UTC), {minutes:.0f} min{share}{product} {marks}".rstrip()  # fmt: skip
