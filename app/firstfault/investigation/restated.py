"""Does the verdict say more than the person did? An effect that they state themselves is no answer to why.

"20 % slower since iteration 150, is it the network?" above a log of step times alone: that the steps became slower
is what they know. Where nothing that was read says why, the verdict stays open, with what would decide it. Where they
did not know of the effect, it is news, and stands as found.
"""

from __future__ import annotations

from dataclasses import replace

from firstfault.investigation.examination import Examination
from firstfault.investigation.verdict import Judgement
from firstfault.investigation.vetoes import read_statement
from firstfault_tools.expressions import expression
from firstfault_tools.facts import Fact
from firstfault_tools.findings import Complaint, Confidence, Finding, Verdict

_UNTOLD = frozenset(f"question.{complaint.value}" for complaint in Complaint)
"""Kinds that are the complaint itself."""

_EFFECTS = {
    "metrics.throughput_drop": Complaint.SLOW,
    "metrics.throughput_drift": Complaint.SLOW,
    "metrics.divergence": Complaint.DIVERGED,
    "metrics.nan_loss": Complaint.DIVERGED,
}
"""Kinds that measure what a complaint states, and not what made it so."""

_NUMBER = expression(r"\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")
BARE_CURVE = 3
"""Numbers of a row that holds a curve alone: step, value, and an epoch or a time."""


def leave_restated(examination: Examination, judgement: Judgement, question: str) -> Judgement:
    """The verdict left open where it only repeats what the question states."""
    finding = judgement.finding
    if judgement.verdict not in (Verdict.FAULT, Verdict.WARNING) or finding is None:
        return judgement
    if finding.kind not in _UNTOLD and not _is_stated_effect(examination, finding, question):
        return judgement
    return replace(judgement, verdict=Verdict.UNKNOWN, confidence=Confidence.POSSIBLE)


def _is_stated_effect(examination: Examination, finding: Finding, question: str) -> bool:
    """The measured effect is the stated one, of no rank, and nothing was found that accounts for it."""
    effect = _EFFECTS.get(finding.kind)
    first = examination.chain.first
    if effect is None or finding.rank is not None or first is None or finding.title != first.title:
        return False
    if finding.text(Fact.SETTING):
        return False  # a setting that accounts for it was found
    if effect is Complaint.DIVERGED and not _is_bare_curve(finding):
        return False
    return effect in read_statement(question).complaints


def _is_bare_curve(finding: Finding) -> bool:
    """Its rows hold no second quantity that could tell learning rate, data and hardware apart."""
    return all(len(_NUMBER.findall(e.text)) <= BARE_CURVE for e in finding.evidence)
