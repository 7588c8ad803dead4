"""How is it said since when a fault lasts and what it has cost? On the card of page, terminal and `watch` alike."""

from __future__ import annotations

from datetime import UTC, datetime

from firstfault.investigation.diagnosis import STEPS_GO_ON, Diagnosis, LostTime, RunState
from firstfault.plain_text import say_hours
from firstfault_tools.findings import Category, Verdict
from firstfault_tools.log.clock import NO_YEAR

LEAST_IDLE_S = 60.0
"""Idle time below which the log ended with the fault and says nothing of what it cost."""

LONGEST_S = 30 * 86_400
"""Time above which the stamps are those of different runs."""

LEAST_HOURS = 0.05
"""GPU-hours that are printed as more than 0.0."""

_STATES = {
    RunState.ENDED: "ended",
    RunState.STOPPED: "takes no step any more",
    RunState.NOT_BEGUN: "takes no step yet",
    RunState.GOES_ON: "goes on",
    RunState.STARTED_AGAIN: "was started again",
}
_STOP = dict.fromkeys((RunState.STOPPED, RunState.NOT_BEGUN), "stop it if it still holds its GPUs")
_SPOILED = "stop it: what it trains from here on may be worthless"
_SLOW = "it may run until it is mended: it is slow, not wrong"
_WHILE_IT_RUNS = {
    Category.NUMERICAL: _SPOILED,
    Category.DATA: _SPOILED,
    Category.CODE_BUG: _SPOILED,
    Category.PERFORMANCE: _SLOW,
    Category.HARDWARE: "let it save before it is stopped",
    Category.COMMUNICATION: "let it save before it is stopped",
    Category.SCHEDULER: "let it save before it is stopped",
}
"""What is done with a run that still takes steps, by what a fault of the kind does to them."""

LOST, IDLE, COSTS = "Lost so far", "Idle so far", "Idle costs"
WORDS = {"slow": "slower steps", "stopped": "standing still", "repeated": "work to be repeated"}


def say_since(at: float | None, about: bool) -> str:
    """`about 10 Mar 2026, 02:46:12 UTC`; without a year where no line prints one; '' where it is not known."""
    if at is None:
        return ""
    moment = datetime.fromtimestamp(at, UTC)
    year = "" if moment.year == NO_YEAR else " %Y"
    return f"{'about ' if about else ''}{moment:%d %b{year}, %H:%M:%S} UTC"


def say_duration(seconds: float) -> str:
    """`30 min`, `45 s`."""
    return f"{seconds / 60:.0f} min" if seconds >= 120 else f"{seconds:.0f} s"


def say_run(diagnosis: Diagnosis, leaves_out: str) -> tuple[str, str]:
    """What became of the run, and what is done with it now: `ended`, `start it again from step 8000, without gpu-a17`;
    '' for what is not shown. leaves_out: the host that the next action takes out of the job."""
    state, told = diagnosis.run_state, ""
    if state is RunState.UNSHOWN or diagnosis.verdict is Verdict.HEALTHY:
        return "", ""
    if state is RunState.GOES_ON:
        kind = diagnosis.category if diagnosis.verdict is Verdict.FAULT else None
        told = _WHILE_IT_RUNS.get(kind, "") if kind is not None else ""
        if leaves_out and told:
            told = f"let it save, then stop it and start it again without {leaves_out}"
    elif state is RunState.STARTED_AGAIN:
        told = "it can happen again until it is mended"
    else:
        told = "; ".join(x for x in (_STOP.get(state, ""), _say_again(diagnosis, leaves_out)) if x)
    return _STATES[state], told


def _say_again(diagnosis: Diagnosis, leaves_out: str) -> str:
    """`start it again from step 8000, without gpu-a17`; '' where neither is known."""
    saved = diagnosis.measured.resume if diagnosis.measured is not None else ""
    parts = [f"from {saved}"] if saved else []
    parts += [f"without {leaves_out}"] if leaves_out else []
    if not parts:
        return ""
    first = "" if leaves_out or diagnosis.verdict is Verdict.UNKNOWN else "once mended, "
    return f"{first}start it again {', '.join(parts)}"


def say_lost(diagnosis: Diagnosis, since: float | None) -> tuple[str, str]:
    """Name and value: GPU-hours lost as the report counts them, else what an hour costs, with what was assumed; no
    value where nothing tells."""
    extent, gpus = diagnosis.measured, count_gpus(diagnosis)
    if extent is None:
        return _say_idle(diagnosis, since)
    counted = [x for x in extent.losses if x.gpu_hours is not None]
    if counted:
        return _say_counted(counted, gpus)
    return _say_hourly(diagnosis, gpus) if gpus and since is not None else (IDLE, "")


def _say_counted(counted: list[LostTime], gpus: int | None) -> tuple[str, str]:
    hours = sum(x.gpu_hours or 0.0 for x in counted)
    # a part of nothing is no part
    shown = [x for x in counted if (x.gpu_hours or 0.0) >= LEAST_HOURS] or counted[:1]
    parts = [WORDS[shown[0].kind]]
    if len(shown) > 1:
        parts = [f"{say_hours(x.gpu_hours or 0.0)} {WORDS[x.kind]}" for x in shown]
    return (
        LOST,
        f"{say_hours(hours)} GPU-hours ({', '.join(parts)}; {gpus} GPU{'s' if gpus != 1 else ''})",
    )


def _say_hourly(diagnosis: Diagnosis, gpus: int) -> tuple[str, str]:
    failed = diagnosis.verdict in (Verdict.FAULT, Verdict.UNKNOWN)
    if not failed or diagnosis.category in STEPS_GO_ON:
        return IDLE, ""
    several = "s" if gpus > 1 else ""
    measured = diagnosis.measured.gpus if diagnosis.measured is not None else None
    least, assumed = _say_assumed(gpus, (measured or diagnosis.input.world_size) is not None)
    return COSTS, f"{least}{gpus} GPU-hour{several} an hour (while it stays down; {assumed})"


def _say_idle(diagnosis: Diagnosis, since: float | None) -> tuple[str, str]:
    """From the fault to the last line, where nothing more was measured."""
    span, gpus = diagnosis.input.time_range, count_gpus(diagnosis)
    failed = diagnosis.verdict in (Verdict.FAULT, Verdict.UNKNOWN)
    if since is None or span is None or not gpus or not failed or diagnosis.category in STEPS_GO_ON:
        return IDLE, ""
    seconds = datetime.fromisoformat(span[1].replace("Z", "+00:00")).timestamp() - since
    if not LEAST_IDLE_S <= seconds < LONGEST_S:
        return _say_hourly(diagnosis, gpus)
    least, assumed = _say_assumed(gpus, diagnosis.input.world_size is not None)
    return IDLE, f"{least}{gpus * seconds / 3600:.1f} GPU-hours to the last line ({assumed})"


def _say_assumed(gpus: int, known: bool) -> tuple[str, str]:
    """`at least ` where only those were counted that were seen, and how they were counted."""
    counted = f"{gpus} GPU{'s' if gpus > 1 else ''}, one a rank"
    return ("", counted) if known else ("at least ", f"{counted} seen")


def count_gpus(diagnosis: Diagnosis) -> int | None:
    """GPUs of the job as the report counts them; else its size where a line prints it, else the ranks seen."""
    measured = diagnosis.measured.gpus if diagnosis.measured is not None else None
    return measured or diagnosis.input.world_size or len(diagnosis.input.ranks_seen) or None
