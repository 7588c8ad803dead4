"""Did the run go on where it had stopped? Restarts from nothing, seams, and what they cost."""

from __future__ import annotations

import re

from firstfault_tools.expressions import expression
from firstfault_tools.findings import Category, Confidence, Finding, Json, Level
from firstfault_tools.metrics.loss_shape import usable_loss
from firstfault_tools.metrics.series import NO_STEP, Event
from firstfault_tools.metrics.view import View, make_finding, noise_of, number

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
    series = view.lead
    missing = view.events("checkpoint_not_loaded")
    asked = view.events("resume_requested")
    restarted = [e for e in asked if _RESTART.search(e.text)]
    found = []
    for before, after in _seams(view):
        loss = usable_loss(view)
        ahead = loss.values[(loss.rows <= before)]
        behind = loss.values[loss.rows >= after]
        if series.step[after] > 1 or series.step[before] < 20 or len(ahead) < 3 or not len(behind):
            continue
        start, reached, again = float(ahead[0]), float(min(ahead[-3:])), float(behind[0])
        if again - reached < 0.6 * (start - reached) or start - reached < 0.1 * abs(start):
            continue
        # Without a word of a restart it may as well be the next trial of a sweep.
        told = bool(missing or asked)
        found.append(
            make_finding(
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
                view.evidence([before, after]) + view.event_evidence(missing[:2]),
                page="checkpoint-not-found",
                confidence=Confidence.CONFIRMED,
                facts={"reached": series.label(before), "restarted_at": series.label(after)},
            )
        )
    if found:
        return found[:1]
    first = next((r for r, s in enumerate(series.step) if s != NO_STEP), None)
    if not missing or not asked or first is None or series.step[first] > 10:
        return []
    rows = view.evidence([first, len(series) - 1])
    title = (
        f"No checkpoint was loaded although the run was {'restarted' if restarted else 'to resume'}"
        f": it began at {series.label(first)} from random weights"
    )
    loss = usable_loss(view)
    facts: dict[str, Json] = {"started_at": series.label(first)}
    if len(loss):
        title += f" (loss {number(float(loss.values[0]))})"
        facts["first_loss"] = float(loss.values[0])
    tracker = next((e for e in missing if "metadata file" in e.text), None)
    if tracker is not None:
        path = re.search(r"metadata file (\S+)", tracker.text)
        if path:
            title += f"; the tracker file {path.group(1)[:200]} is missing"
            facts["tracker_file"] = path.group(1)[:200]
    quoted: list[Event] = [*missing[:2], *(restarted or asked)[:1]]
    return [
        make_finding(
            "restarted_from_scratch",
            title,
            Level.CAUSE,
            Category.CHECKPOINT,
            view.event_evidence(quoted) + rows,
            page="checkpoint-not-found",
            confidence=Confidence.CONFIRMED if restarted else Confidence.LIKELY,
            facts=facts,
        )
    ]


def judge_resume_seam(view: View) -> list[Finding]:
    """A resume within the log: how many steps are repeated, and whether the loss fits."""
    series = view.lead
    loss = usable_loss(view)
    seams = [(a, b) for a, b in _seams(view) if series.step[b] > 1]
    if not seams:
        return []
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
                view.evidence([before, after]),
                page="resume-state" if jump else "checkpoint-resume",
                facts=facts,
            )
        )
    return found
