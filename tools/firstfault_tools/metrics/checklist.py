"""What should be true before, at and during a run, and which of it do the numbers already answer?

The items are data in checklists.yaml; the automatic ones are answered from a run's findings.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from functools import cache
from pathlib import Path

from firstfault_tools.dataclass import dataclass
from firstfault_tools.errors import InvalidParameter
from firstfault_tools.findings import Finding, Json, Level
from firstfault_tools.metrics.series import MISSING, StepSeries
from firstfault_tools.metrics.view import View, lead_of
from firstfault_tools.registry import Calculator


class CheckState(StrEnum):
    """Answer to one item. `unknown`: the log does not say; `manual`: a person has to look."""

    PASSED = "passed"
    FAILED = "failed"
    UNKNOWN = "unknown"
    MANUAL = "manual"


@dataclass(frozen=True, slots=True)
class ChecklistItem:
    """One item of a phase."""

    id: str
    phase: str
    text: str
    check: str | None = None
    page: str | None = None


@dataclass(frozen=True, slots=True)
class CheckedItem:
    """An item with its answer and the reason for it."""

    item: ChecklistItem
    state: CheckState
    reason: str = ""


@cache
def checklist_items() -> tuple[ChecklistItem, ...]:
    """All items in the order of the file."""
    import yaml

    raw = yaml.safe_load((Path(__file__).parent / "checklists.yaml").read_text(encoding="utf-8"))
    return tuple(
        ChecklistItem(entry["id"], phase, entry["text"], entry.get("check"), entry.get("page"))
        for phase, entries in raw["phases"].items()
        for entry in entries
    )


Answer = tuple[CheckState, str]


@dataclass(frozen=True, slots=True)
class _Run:
    view: View
    findings: Sequence[Finding]

    def verdict(self, kinds: Sequence[str], *needs: str) -> Answer:
        """Failed when one of `kinds` was found; unknown when none of `needs` was logged."""
        for finding in self.findings:
            if finding.kind.removeprefix("metrics.") in kinds and finding.level not in (
                Level.BENIGN,
                Level.CONTEXT,
            ):
                return CheckState.FAILED, finding.title
        series = self.view.all
        logged = [n for n in needs if series.has(n) and len(series.rows_with(n)) >= 5]
        if needs and not logged:
            return CheckState.UNKNOWN, f"the log has too few values of {' or '.join(needs)}"
        return CheckState.PASSED, ""


def _finite(run: _Run) -> Answer:
    kinds = ("nan_loss", "nan_after_lr_jump", "loss_missing", "nan_passing", "loss_zero")
    return run.verdict(kinds, "loss", "grad_norm")


def _loss_falls(run: _Run) -> Answer:
    import numpy as np

    loss = run.view.curve("loss").values
    if len(loss) < 10:
        return CheckState.UNKNOWN, "fewer than ten values of the loss"
    head, tail = float(np.median(loss[: len(loss) // 3])), float(np.median(loss[-len(loss) // 3 :]))
    told = f"{head:.4g} to {tail:.4g}"
    return (CheckState.PASSED if tail < head else CheckState.FAILED), told


def _rate_alive(run: _Run) -> Answer:
    return run.verdict(("lr_zero", "lr_not_decayed"), "lr")


def _gradients_alive(run: _Run) -> Answer:
    import numpy as np

    answer = run.verdict(("grad_norm_zero",), "grad_norm")
    values = run.view.curve("grad_norm").values
    if answer[0] is CheckState.PASSED and float(np.median(values[-20:])) > 100:
        return CheckState.FAILED, f"gradient norm {float(np.median(values[-20:])):.4g}"
    return answer


def _pace_level(run: _Run) -> Answer:
    kinds = ("throughput_drop", "throughput_drift", "periodic_pauses")
    return run.verdict(kinds, "step_time_ms", "tokens_per_s", "samples_per_s", "iterations_per_s")


def _data_keeps_up(run: _Run) -> Answer:
    import numpy as np

    data, step = run.view.lead.values("data_time_ms"), run.view.lead.values("step_time_ms")
    both = (data != MISSING) & (step != MISSING)
    if both.sum() < 5:
        return CheckState.UNKNOWN, "the log has too few values of data_time_ms"
    share = float(np.sum(data[both][2:]) / max(float(np.sum(step[both][2:])), 1e-9))
    return (CheckState.PASSED if share < 0.1 else CheckState.FAILED), f"{share:.0%} of the time"


def _memory_level(run: _Run) -> Answer:
    kinds = ("host_memory_growth", "gpu_memory_growth", "fragmentation_growth")
    return run.verdict(
        kinds, "mem_allocated_gib", "mem_peak_gib", "mem_reserved_gib", "host_mem_gib"
    )


def _no_divergence(run: _Run) -> Answer:
    return run.verdict(("divergence", "resume_loss_jump", "loss_creeps"), "loss")


def _no_straggler(run: _Run) -> Answer:
    import numpy as np

    if len(np.unique(run.view.all.ranks())) < 2:
        return CheckState.UNKNOWN, "the log shows one rank only"
    return run.verdict(("straggler",), "step_time_ms", "samples_per_s", "tokens_per_s")


def _no_overfitting(run: _Run) -> Answer:
    if len(run.view.curve("eval_loss")) < 3:
        return CheckState.UNKNOWN, "fewer than three evaluations"
    return run.verdict(("overfitting",))


def _checkpoints_written(run: _Run) -> Answer:
    saved = run.view.events("checkpoint_saved")
    if not saved:
        return CheckState.UNKNOWN, "the log names no saved checkpoint"
    return CheckState.PASSED, f"last at step {saved[-1].values.get('step', 0):.0f}"


CHECKS: dict[str, Callable[[_Run], Answer]] = {
    "finite": _finite,
    "loss_falls": _loss_falls,
    "rate_alive": _rate_alive,
    "gradients_alive": _gradients_alive,
    "pace_level": _pace_level,
    "data_keeps_up": _data_keeps_up,
    "memory_level": _memory_level,
    "no_divergence": _no_divergence,
    "no_straggler": _no_straggler,
    "no_overfitting": _no_overfitting,
    "checkpoints_written": _checkpoints_written,
}


def run_checklist(
    phase: str, series: StepSeries | None = None, findings: Sequence[Finding] = ()
) -> list[CheckedItem]:
    """Items of a phase; the automatic ones answered where a run is given."""
    items = [item for item in checklist_items() if item.phase == phase]
    if not items:
        known = ", ".join(dict.fromkeys(item.phase for item in checklist_items()))
        raise InvalidParameter("phase", f"must be one of {known}, got {phase!r}")
    checked = []
    for item in items:
        if item.check is None:
            checked.append(CheckedItem(item, CheckState.MANUAL))
        elif series is None:
            checked.append(CheckedItem(item, CheckState.UNKNOWN, "no run was given"))
        else:
            run = _Run(View(series, lead_of(series), ""), findings)
            checked.append(CheckedItem(item, *CHECKS[item.check](run)))
    return checked


def calculate_checklist(phase: str = "before_start") -> Mapping[str, Json]:
    """Items of a phase for the command line, MCP and the model; no run is at hand there."""
    return {
        "phase": phase,
        "items": [
            {
                "id": c.item.id,
                "text": c.item.text,
                "automatic": c.item.check is not None,
                "page": c.item.page,
            }
            for c in run_checklist(phase)
        ],
    }


CALCULATOR = Calculator(
    name="prevention_checklist",
    summary="What to check before the start, in the first steps, during a run and after a fix.",
    parameters={
        "type": "object",
        "required": ["phase"],
        "additionalProperties": False,
        "properties": {
            "phase": {
                "enum": ["before_start", "first_steps", "during", "after_a_fix", "scaling_up"]
            },
        },
    },
    run=calculate_checklist,
)
