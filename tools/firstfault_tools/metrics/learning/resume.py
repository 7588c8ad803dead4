"""Did the run go on where it had stopped? Restarts from nothing, seams, and what they cost."""

from __future__ import annotations

import re

from firstfault_tools.expressions import expression
from firstfault_tools.findings import Category, Confidence, Finding, Json, Level
from firstfault_tools.kind_pages import page_of_kind
from firstfault_tools.metrics.learning.loss_shape import usable_loss
from firstfault_tools.metrics.series import NO_STEP, Event
from firstfault_tools.metrics.view import Curve, View, make_finding, noise_of, number

FEW_ROWS, LEAST_JUMP = 2, 1.2
"""Rows on both sides of a load that show a level; how far the lowest after lies above the highest before."""

_RESTART = expression(r"(?i)restarting worker group|restart_count=[1-9]|restart count[:= ]+[1-9]")


def _seams(view: View) -> list[tuple[int, int]]:
    """(row before, row after) wherever the step counter of the lead rank goes back."""
    import numpy as np

    if view.lead.step_unit not in ("step", "iteration"):
        return []
    steps = view.lead.steps()
    named = np.flatnonzero(steps != NO_STEP)
    back = np.flatnonzero(np.diff(steps[named]) < 0)
    return [(int(named[i]), int(named[i + 1])) for i in back.tolist()]


def judge_restart_from_scratch(view: View) -> list[Finding]:
    """A run that should have gone on and began at its first iteration instead."""
    missing = view.events("checkpoint_not_loaded")
    asked = view.events("resume_requested")
    for before, after in _seams(view):
        found = _judge_new_start(view, before, after, missing, told=bool(missing or asked))
        if found is not None:
            return [found]
    return _judge_first_start(view, missing, asked) if missing and asked else []


def _judge_new_start(
    view: View, before: int, after: int, missing: list[Event], told: bool
) -> Finding | None:
    """A counter that falls to its beginning, and the loss with it. told: the log speaks of a restart."""
    series, loss = view.lead, usable_loss(view)
    ahead = loss.values[(loss.rows <= before)]
    behind = loss.values[loss.rows >= after]
    if series.step[after] > 1 or series.step[before] < 20 or len(ahead) < 3 or not len(behind):
        return None
    start, reached, again = float(ahead[0]), float(min(ahead[-3:])), float(behind[0])
    if again - reached < 0.6 * (start - reached) or start - reached < 0.1 * abs(start):
        return None
    # Without a word of a restart it may as well be the next trial of a sweep.
    return make_finding(
        "restarted_from_scratch" if told else "new_run",
        f"The run began again at {series.label(after)} with loss {number(again)} after it "
        f"had reached {series.label(before)} with loss {number(reached)}: "
        + (
            "no checkpoint was loaded, the earlier progress is not in the model"
            if told
            else "a new run, or one that found no checkpoint"
        ),
        Level.CAUSE if told else Level.CONTEXT,
        Category.CHECKPOINT,
        view.evidence([before, after], usual=[before]) + view.event_evidence(missing[:2]),
        page=page_of_kind("metrics.restarted_from_scratch"),
        confidence=Confidence.CONFIRMED,
        facts={"reached": series.label(before), "restarted_at": series.label(after)},
    )


def _judge_first_start(view: View, missing: list[Event], asked: list[Event]) -> list[Finding]:
    """A log that begins with a resume for which there was no checkpoint."""
    series, loss = view.lead, usable_loss(view)
    restarted = [e for e in asked if _RESTART.search(e.text)]
    first = next((r for r, s in enumerate(series.step) if s != NO_STEP), None)
    if first is None or series.step[first] > 10:
        return []
    title = (
        f"No checkpoint was loaded although the run was {'restarted' if restarted else 'to resume'}"
        f": it began at {series.label(first)} from random weights"
    )
    facts: dict[str, Json] = {"started_at": series.label(first)}
    if len(loss):
        title += f" (loss {number(float(loss.values[0]))})"
        facts["first_loss"] = float(loss.values[0])
    tracker = next((e for e in missing if "metadata file" in e.text), None)
    path = re.search(r"metadata file (\S+)", tracker.text) if tracker is not None else None
    if path is not None:
        title += f"; the tracker file {path.group(1)[:200]} is missing"
        facts["tracker_file"] = path.group(1)[:200]
    quoted: list[Event] = [*missing[:2], *(restarted or asked)[:1]]
    return [
        make_finding(
            "restarted_from_scratch",
            title,
            Level.CAUSE,
            Category.CHECKPOINT,
            view.event_evidence(quoted) + view.evidence([first, len(series) - 1]),
            confidence=Confidence.CONFIRMED if restarted else Confidence.LIKELY,
            facts=facts,
        )
    ]


def judge_loss_across_resume(view: View) -> list[Finding]:
    """A loss that is far higher right after weights were loaded than right before, whatever counts the steps."""
    loss, series = usable_loss(view), view.lead
    events = view.events("checkpoint_loaded", "weights_loaded")
    if len(loss) < 6 or not events:
        return []
    values, rows = loss.values, loss.rows
    for i in range(3, len(loss) - 2):
        last, row = int(rows[i - 1]), int(rows[i])
        told = view.between(events, last, row)
        if not told:
            continue
        before = float(sorted(values[max(0, i - 3) : i])[-1])
        after = float(sorted(values[i : i + 3])[0])
        start = float(values[: max(1, i - 3)].max())
        if after - before < max(0.1 * abs(before), 6 * noise_of(values[:i])):
            continue
        if series.step[row] in (0, 1) and series.step[last] > series.step[row] and start <= after:
            continue  # another run that begins with the weights of the first
        anew = _from_random(before, after, start)
        why = (
            ": what was loaded is not the state that was saved (optimizer and its fp32 master weights, loss scaler, or the data "
            "order), although the weights were loaded"
        )
        return [
            make_finding(
                "resume_loss_jump",
                f"The loss was {number(before)} before the restart ({series.label(last)}) and is {number(after)} right after it "
                f"({series.label(row)}){anew or why}",
                Level.CAUSE if anew else Level.FAILURE,
                Category.CHECKPOINT,
                view.evidence([last, row], usual=[last]) + view.event_evidence(told[:2]),
                facts={"loss_before": before, "loss_after": after},
            )
        ]
    return []


OVERWRITTEN, LEVEL, SMALL_RATE = 2.0, 0.05, 1e-6


def judge_overwritten_weights(view: View) -> list[Finding]:
    """A first update with next to no learning rate after which the loss is that of other weights."""
    loss, rate, series = usable_loss(view), view.curve("lr"), view.lead
    if (
        len(loss) < 5
        or not len(rate)
        or not 0 < float(rate.values[: len(loss)].max()) <= SMALL_RATE
    ):
        return []
    first, rest = float(loss.values[0]), loss.values[1:6]
    low, high = float(rest.min()), float(rest.max())
    if first <= 0 or low < OVERWRITTEN * first or high - low > LEVEL * low:
        return []
    row, last = int(loss.rows[0]), int(loss.rows[1])
    return [
        make_finding(
            "weights_overwritten",
            f"The loss is {number(first)} at {series.label(row)}, as of the loaded weights, and {number(float(loss.values[1]))} from "
            f"{series.label(last)} on: an update at learning rate {number(float(rate.values[0]))} cannot do that, so the first optimizer "
            "step replaced the loaded weights by its own copy (fp32 master weights made before the checkpoint was loaded, or not loaded "
            "with it)",
            Level.CAUSE,
            Category.CHECKPOINT,
            view.evidence([row, last, int(loss.rows[-1])], usual=[row]),
            facts={"first": first, "after": float(loss.values[1])},
        )
    ]


def judge_resume_seam(view: View) -> list[Finding]:
    """A resume within the log: how many steps are repeated, and whether the loss fits."""
    series = view.lead
    loss = usable_loss(view)
    seams = [(a, b) for a, b in _seams(view) if series.step[b] > 1]
    if not seams:
        return _jumps_at_load(view)
    found = []
    for before, after in seams[:5]:
        repeated = series.step[before] - series.step[after] + 1
        same = loss.rows[(loss.rows <= before)]
        ahead = loss.values[: len(same)]
        match = [
            float(v)
            for r, v in zip(same.tolist(), ahead.tolist(), strict=True)
            if abs(series.step[r] - series.step[after]) <= max(2, repeated // 4)
        ]
        behind = loss.values[loss.rows >= after][:5]
        facts: dict[str, Json] = {
            "reached": series.label(before),
            "resumed_at": series.label(after),
            "repeated_steps": repeated,
        }
        title = (
            f"Resumed at {series.label(after)} after {series.label(before)}: {repeated} steps are "
            "repeated"
        )
        jump = False
        if len(match) >= 2 and len(behind) >= 3 and len(ahead) >= 8:
            there = sum(match) / len(match)
            now = float(sorted(behind)[len(behind) // 2])
            jump = now - there > max(0.15 * abs(there), 6 * noise_of(ahead))
            facts |= {"loss_before": there, "loss_after": now}
            title += f"; loss {number(there)} before, {number(now)} after"
        if jump:
            title += ": the resumed state does not match (optimizer state, weights or data order)"
        found.append(
            make_finding(
                "resume_loss_jump" if jump else "resume_seam",
                title,
                Level.FAILURE if jump else Level.CONTEXT,
                Category.CHECKPOINT,
                view.evidence([before, after], usual=[before]),
                page="resume-state" if jump else "checkpoint-resume",
                facts=facts,
            )
        )
    return found


FELL, ROSE = 0.5, 1.5
"""Share of the last learning rate below or above which the first one after a resume is another place of the schedule."""
BETWEEN = 80
"""Lines of a resume that are looked through for the setting that left the schedule out."""
_SCHEDULER = expression(
    r"(?i)\b\w*(?:lr_?|param_?|rate_?)sched\w*['\"]?\s*[=:]\s*(?:False|None|0\b)|--(?:no-load-optim|finetune|override-opt\S*)\b|"
    r"\b(?:not (?:load|restor)\w*|skip\w*|without|ignor\w*)\b.{0,30}\bsched\w+|"
    r"\bsched\w+.{0,40}\b(?:not (?:found|load\w*|restor\w*|saved)|skipp\w*|missing|from scratch|re-?initiali[sz]ed)"
)


def judge_rate_restart(view: View) -> list[Finding]:
    """A learning rate that a resume put back to the beginning of its schedule although the steps go on."""
    rate, series = view.curve("lr"), view.lead
    resumed = view.events("checkpoint_loaded", "resume_requested")
    if len(rate) < 4 or not resumed:
        return []
    for i in range(2, len(rate) - 1):
        before = _rate_before(view, rate, i)
        if before is None or series.step[int(rate.rows[i])] in (0, 1):
            continue
        told = view.between(resumed, int(rate.rows[i - 1]), int(rate.rows[i]))
        if not told:
            continue
        warming = _warms_up(rate, i, before)
        if warming or _starts_high(rate, i, before):
            return [_tell_rate_restart(view, rate, i, before, told, warming)]
    return []


def _is_same_place(before: float, after: float) -> bool:
    """Two rates of about the same place of a schedule."""
    return FELL * before < after < ROSE * before


def _rate_before(view: View, rate: Curve, i: int) -> float | None:
    """What the rate at this place of the curve has to be held against; None where it goes on as it was."""
    before, after = float(rate.values[i - 1]), float(rate.values[i])
    if _is_same_place(before, after) or before <= 0:
        return None
    step, row = view.lead.step, int(rate.rows[i])
    if step[row] == NO_STEP or step[row] > step[int(rate.rows[i - 1])]:
        return before
    # steps are repeated: what the rate was at this very step is known
    same = [k for k in range(i) if step[int(rate.rows[k])] == step[row]]
    before = float(rate.values[same[-1]]) if same else before
    return None if _is_same_place(before, after) else before


def _warms_up(rate: Curve, i: int, before: float) -> bool:
    return FELL * before >= float(rate.values[i]) >= 0 and bool(rate.values[i + 1] > rate.values[i])


def _starts_high(rate: Curve, i: int, before: float) -> bool:
    """The rate is higher than before, where it had not been rising."""
    risen = float(rate.values[i]) >= ROSE * before
    return risen and bool(rate.values[i - 2] >= rate.values[i - 1])


def _tell_rate_restart(
    view: View, rate: Curve, i: int, before: float, told: list[Event], warming: bool
) -> Finding:
    series, last, row = view.lead, int(rate.rows[i - 1]), int(rate.rows[i])
    after = float(rate.values[i])
    setting = _name_setting(view, series.line[last], series.line[row])
    how = "warms up from near zero again" if warming else "starts again at the top of its schedule"
    title = (
        f"The learning rate was {number(before)} at {series.label(last)} and is {number(after)} at "
        f"{series.label(row)}, the first after the resume: it {how}, so the learning-rate scheduler was not restored "
        "from the checkpoint and restarted, although the steps go on"
        + (f" (`{setting[1]}`)" if setting else "")
    )
    quoted = [Event("setting", setting[0], setting[2], row, {})] if setting else []
    return make_finding(
        "lr_restart",
        title,
        Level.CAUSE,
        Category.CHECKPOINT,
        view.evidence([last, row, int(rate.rows[i + 1])], usual=[last])
        + view.event_evidence([*told[:1], *quoted]),
        facts={"before": before, "after": after, "severity": "warning"},
    )


def _name_setting(view: View, start: int, end: int) -> tuple[int, str, str] | None:
    """(line, words, text) of a line of the resume that says the scheduler was left out."""
    if view.quote is None:
        return None
    for line in range(max(start + 1, end - BETWEEN), end):
        text = view.quote(line) or ""
        if "ched" in text or "--" in text:
            found = _SCHEDULER.search(text[:1000])
            if found is not None:
                return line, found[0].strip()[:80], text
    return None


AS_AT_START = 0.9
"""Share of the way down from the first loss that is lost again at a resume from random weights."""


def _from_random(before: float, after: float, start: float) -> str:
    """Words where the loss after a resume is that of the very first steps; '' elsewhere."""
    if start - before < 0.1 * abs(start) or after - before < AS_AT_START * (start - before):
        return ""
    return (
        f": that is the loss of the first steps ({number(start)}), so the weights were not loaded and the run goes on from random "
        "ones, although the step counter was restored"
    )


def _jumps_at_load(view: View) -> list[Finding]:
    """A load in the middle of the log after which the counter goes on and the loss lies clearly higher."""
    loss = usable_loss(view)
    series = view.lead
    for event in view.events("checkpoint_loaded"):
        lines = [series.line[int(r)] for r in loss.rows]
        at = sum(1 for n in lines if n < event.line)
        before, after = loss.values[max(0, at - 4) : at], loss.values[at : at + 4]
        if len(before) < FEW_ROWS or len(after) < FEW_ROWS:
            continue
        top, low = float(max(before)), float(min(after))
        if top <= 0 or low < LEAST_JUMP * top or low - top < 3 * (top - float(min(before))):
            continue
        last, first = int(loss.rows[at - 1]), int(loss.rows[at])
        rate = view.curve("lr")
        rates = dict(zip(rate.rows.tolist(), rate.values.tolist(), strict=True))
        old, new = rates.get(last), rates.get(first)
        if old and new and not 0.5 < new / old < 2:
            return []  # the rate is what changed, and is told by its own judge
        anew = _from_random(float(before[-1]), float(after[0]), float(loss.values[0]))
        why = ": the resumed state does not match (optimizer state, weights, precision or data order)"  # fmt: skip
        return [
            make_finding(
                "resume_loss_jump",
                f"The loss is {number(float(before[-1]))} at {series.label(last)} and {number(float(after[0]))} at {series.label(first)}, after the "
                f"checkpoint was loaded in between{anew or why}",
                Level.CAUSE if anew else Level.FAILURE,
                Category.CHECKPOINT,
                view.evidence([last, first], usual=[last]) + view.event_evidence([event]),
                facts={"loss_before": float(before[-1]), "loss_after": float(after[0])},
            )
        ]
    return []
