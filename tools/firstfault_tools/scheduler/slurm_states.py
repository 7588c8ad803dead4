"""What do Slurm's job states, reasons, exit codes and node states mean for the job?"""

from __future__ import annotations

from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Category, Level

_EXIT = expression(r"^(?P<code>\d{1,5}):(?P<signal>\d{1,3})$")


@dataclass(frozen=True, slots=True)
class JobMeaning:
    """kind: stable end of the finding's kind. category: None where it says that something ended, and not why.
    reading: what happened, in words."""

    kind: str
    level: Level
    category: Category | None
    reading: str


_C, _F, _S = Level.CAUSE, Level.FAILURE, Level.SYMPTOM
_STATES = {
    "OUT_OF_MEMORY": JobMeaning("oom", _C, Category.OOM, "killed for exceeding its memory"),
    "OUT_OF_ME+": JobMeaning("oom", _C, Category.OOM, "killed for exceeding its memory"),
    "TIMEOUT": JobMeaning("time_limit", _C, Category.SCHEDULER, "ran into its time limit"),
    "DEADLINE": JobMeaning("deadline", _C, Category.SCHEDULER, "ran into its deadline"),
    "PREEMPTED": JobMeaning("preempted", _C, Category.SCHEDULER, "preempted by another job"),
    "NODE_FAIL": JobMeaning("node_fail", _F, None, "a node of it was lost, not said why"),
    "BOOT_FAIL": JobMeaning("node_fail", _F, None, "a node of it did not boot, not said why"),
    "CANCELLED": JobMeaning("cancelled", _F, Category.SCHEDULER, "cancelled"),
    "REVOKED": JobMeaning("cancelled", _F, Category.SCHEDULER, "revoked"),
    "FAILED": JobMeaning("failed", _F, None, "ended with an error, see its log"),
    "LAUNCH_FAILED": JobMeaning("failed", _C, Category.ENVIRONMENT, "could not be launched"),
}
_REASONS = {
    "TimeLimit": _STATES["TIMEOUT"],
    "OutOfMemory": _STATES["OUT_OF_MEMORY"],
    "NodeDown": _STATES["NODE_FAIL"],
    "JobLaunchFailure": _STATES["LAUNCH_FAILED"],
    "launch_failed_requeued_held": _STATES["LAUNCH_FAILED"],
    "BadConstraints": JobMeaning(
        "unschedulable", _C, Category.SCHEDULER, "no node fits what it asks for"
    ),
    "ReqNodeNotAvail": JobMeaning(
        "unschedulable", _F, Category.SCHEDULER, "waits for a node that is not available"
    ),
    "QOSMaxGRESPerUser": JobMeaning(
        "unschedulable", _F, Category.SCHEDULER, "waits: the user's GPU quota is used up"
    ),
}
# Slurm's flags after a state: * not responding, ~ powered off, # booting, ! going off, $ maintenance.
_NODE_BAD = ("down", "fail", "error", "unknown", "boot", "not_responding", "no_respond")
_NODE_DRAIN = ("drain", "drng")


def read_exit_code(text: str) -> tuple[int | None, int | None]:
    """Exit code and signal of `0:9`, None where it is not in that form."""
    found = _EXIT.match(text.strip())
    return (int(found["code"]), int(found["signal"])) if found else (None, None)


def explain_job(state: str, reason: str, code: int | None, signal: int | None) -> JobMeaning | None:
    """Meaning of a job's end, None where it runs, waits normally or completed."""
    word = state.split()[0].rstrip("+") if state.split() else ""
    meaning = _STATES.get(state.strip()) or _STATES.get(word)
    # sacct cuts long states: `OUT_OF_ME+`, `CANCELLED+`.
    if meaning is None and word:
        meaning = next(
            (m for s, m in _STATES.items() if len(word) >= 6 and s.startswith(word)), None
        )
    if meaning is not None and meaning.kind in ("failed", "cancelled"):
        by_reason = _REASONS.get(reason)
        if by_reason is not None:
            return by_reason
        if meaning.kind == "failed" and signal == 9:
            return JobMeaning("sigkill", _F, None, "ended by SIGKILL, not said by whom")
        if meaning.kind == "failed" and signal in (6, 11):
            return JobMeaning("crashed", _F, Category.CODE_BUG, "crashed, see its log")
        if meaning.kind == "failed" and code == 137:
            return JobMeaning("sigkill", _F, None, "ended by SIGKILL, not said by whom")
        return meaning
    if meaning is None and word == "PENDING":
        return _REASONS.get(reason.split(",")[0])
    return meaning


def explain_node(state: str) -> Level | None:
    """How bad a node's state is: failure for one that is gone, context for a drained one."""
    word = state.lower()
    if any(bad in word for bad in _NODE_BAD) or word.rstrip("~#!%$@^+-").endswith("*"):
        return Level.FAILURE
    if any(bad in word for bad in _NODE_DRAIN):
        return Level.CONTEXT
    return None
