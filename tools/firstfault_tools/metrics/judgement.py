"""What do the numbers of a run say? All verdicts over a `StepSeries`, in one call."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace

from firstfault_tools.findings import Finding, Level
from firstfault_tools.metrics.series import MISSING, StepSeries
from firstfault_tools.metrics.view import Quote, View, lead_of, split_runs

Judge = Callable[[View], list[Finding]]

# module, function; judges of the whole log
JUDGES = (
    ("learning.rank_values", "judge_rank_value"),
    ("learning.numerical", "judge_not_finite"),
    ("learning.numerical", "judge_evaluation"),
    ("learning.loss_scale", "judge_loss_scale"),
    ("learning.learning_rate", "judge_rate_schedule"),
    ("learning.loss_level", "judge_placeholder_loss"),
    ("learning.resume", "judge_restart_from_scratch"),
    ("learning.resume", "judge_resume_seam"),
    ("learning.resume", "judge_rate_restart"),
    ("learning.resume", "judge_loss_across_resume"),
    ("learning.resume", "judge_overwritten_weights"),
    ("learning.first_updates", "judge_first_updates"),
    ("memory_trend", "judge_memory_growth"),
    ("memory_trend", "judge_fragmentation"),
    ("memory_trend", "judge_small_creep"),
    ("planned_rises", "judge_memory_step"),
    ("planned_rises", "judge_first_peak"),
    ("planned_rises", "judge_settled_peak"),
    ("pace.rank_pace", "judge_straggler"),
    ("pace.rank_pace", "judge_rank_data"),
    ("pace.rank_pace", "judge_rank_pauses"),
    ("pace.timers", "judge_timer_spread"),
    ("pace.timers", "judge_timers"),
)
# judges of one run at a time, where a log holds several
RUN_JUDGES = (
    ("learning.learning_rate", "judge_zero_rate"),
    ("learning.standstill", "judge_dead_gradients"),
    ("learning.standstill", "judge_never_learning"),
    ("learning.standstill", "judge_constant_loss"),
    ("learning.learning_rate", "judge_endless_warm_up"),
    ("learning.learning_rate", "judge_rate_as_written"),
    ("learning.learning_rate", "judge_missing_decay"),
    ("learning.gradient_zeros", "judge_zeros"),
    ("learning.loss_shape", "judge_divergence"),
    ("learning.loss_shape", "judge_spikes"),
    ("learning.loss_shape", "judge_overfitting"),
    ("learning.trend", "judge_creeping_loss"),
    ("learning.trend", "judge_level_loss"),
    ("learning.loss_shape", "judge_epoch_stairs"),
    ("learning.loss_level", "judge_inflated_loss"),
    ("pace.throughput", "judge_data_stall"),
    ("pace.throughput", "judge_pauses"),
    ("pace.throughput", "judge_pace"),
    ("pace.utilisation", "judge_low_utilisation"),
    ("planned_rises", "judge_planned_load"),
    ("planned_rises", "judge_loss_after_evaluation"),
)


def _judge(module: str, name: str) -> Judge:
    found: Judge = getattr(importlib.import_module(f"firstfault_tools.metrics.{module}"), name)
    return found


FEW_ROWS = 2
"""So few rows show no course: of them only a value that is none, or zero, is judged."""


def says_nothing(series: StepSeries) -> bool:
    """Few rows of ordinary values: told without numpy, whose import takes longer than all the rest."""
    if len(series) > FEW_ROWS:
        return False
    values = (v for column in series.columns.values() for v in column)
    return all(v == MISSING or 0 < abs(v) < math.inf for v in values)


def judge_steps(series: StepSeries, file: str, quote: Quote | None = None) -> tuple[Finding, ...]:
    """Findings about a run's metrics, with numbers, steps and lines quoted.

    file: display name for the evidence. quote: text of a line by its number, used for rows whose
    text the series no longer holds.
    """
    if not series.events and (not len(series) or says_nothing(series)):
        return ()
    view = View(all=series, lead=lead_of(series), file=file, quote=quote)
    found: list[Finding] = []
    for module, name in JUDGES:
        found.extend(_judge(module, name)(view))
    seen: set[str] = set()
    for run in split_runs(view):
        for module, name in RUN_JUDGES:
            for finding in _judge(module, name)(run):
                if finding.kind not in seen:
                    found.append(finding)
        seen.update(finding.kind for finding in found)
    return tuple(_settle(found))


_BELOW = {
    "metrics.fragmentation_growth": ("metrics.gpu_memory_growth",),
    "metrics.resume_loss_jump": ("metrics.divergence",),
}
"""What a finding explains: memory that is reserved and not allocated; a loss of weights that were not loaded."""


def _settle(found: list[Finding]) -> list[Finding]:
    """What another finding of the same curve explains is context beside it."""
    causes = {f.kind for f in found if f.level is Level.CAUSE}
    if "metrics.lr_jump" in causes:
        found = _lower(found, ("metrics.divergence", "metrics.lr_restart"))
    found = _lower(found, {lower for f in found for lower in _explained_by(f)})
    jumps = [f for f in found if f.kind == "metrics.resume_loss_jump"]
    if len(jumps) > 1:
        found = [f for f in found if f not in jumps[1:]]
    if any(kind.startswith("metrics.nan_") for kind in causes):
        # a divergence that ended in NaN is one fault: the NaN stands, the way there is context
        found = _lower(found, _WAYS_TO_NAN)
    return found


_WAYS_TO_NAN = ("metrics.divergence", "metrics.loss_zero", "metrics.loss_scale_collapse")


def _lower(found: Iterable[Finding], kinds: Collection[str]) -> list[Finding]:
    return [replace(f, level=Level.CONTEXT) if f.kind in kinds else f for f in found]


def _explained_by(finding: Finding) -> tuple[str, ...]:
    """Kinds that a finding explains, where it is a fault; a jump at a resume must be the cause."""
    only_cause = finding.kind == "metrics.resume_loss_jump"
    levels = (Level.CAUSE,) if only_cause else (Level.CAUSE, Level.FAILURE)
    return _BELOW.get(finding.kind, ()) if finding.level in levels else ()
