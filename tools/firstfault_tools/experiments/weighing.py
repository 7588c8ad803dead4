"""What do experiments make of the explanations? Supported ones gain, refuted ones stand back.

An experiment is stronger than what a person says, since its error rates are stated, and weaker than a line that
names the cause itself: that one stays, and is no longer confirmed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from firstfault_tools.correlation.decisions import Relation, Rule, Trail
from firstfault_tools.facts import Fact
from firstfault_tools.findings import Confidence, Finding, Level

REFUTES = Rule("refuted-by-experiment", Relation.CONTRADICTS, "trials with stated error rates refute it")  # fmt: skip
SUPPORTS = Rule("supported-by-experiment", Relation.EXPLAINS, "trials with stated error rates support it")  # fmt: skip
TAKEN_OVER = Rule("place-taken-over", Relation.REPEATS, "a cause was found in the place that the experiment singled out")  # fmt: skip
SINGLED_OUT = ("experiment.host", "experiment.hosts", "experiment.path")
_RAISED = {Level.SYMPTOM: Level.FAILURE, Level.CONTEXT: Level.FAILURE}


def weigh_experiments(findings: Sequence[Finding], trail: Trail) -> list[Finding]:
    """The findings as experiments leave them, each change noted; without experiments, as they are."""
    trials = [f for f in findings if f.kind.startswith("experiment.") and "experiment" in f.facts]
    if not trials:
        return list(findings)
    out = [_weigh(f, trials, trail) for f in findings]
    told = {f.text(Fact.BY_EXPERIMENT): f for f in out if f.flag(Fact.BY_EXPERIMENT)}
    for place, finding in enumerate(out):
        if finding.kind in SINGLED_OUT and (by := told.get(finding.text(Fact.EXPERIMENT))):
            # what an explanation took over from an experiment is said once
            out[place] = replace(finding, level=Level.CONTEXT)
            trail.note(TAKEN_OVER, finding, out[place], by)
    return out


def _weigh(finding: Finding, trials: Sequence[Finding], trail: Trail) -> Finding:
    if finding in trials or finding.level is Level.BENIGN:
        return finding
    for trial in trials:
        before = finding
        if trial.kind == "experiment.refuted" and _is_about(trial, finding):
            if finding.confidence is Confidence.CONFIRMED:
                finding = replace(finding, confidence=Confidence.LIKELY)
            else:
                finding = replace(finding, level=Level.CONTEXT)
            trail.note(REFUTES, before, finding, trial)
        elif (trial.kind == "experiment.supported" and _is_about(trial, finding)) or _is_at(trial, finding):  # fmt: skip
            finding = _support(finding, trial)
            trail.note(SUPPORTS, before, finding, trial)
    return finding


def _support(finding: Finding, trial: Finding) -> Finding:
    sure = finding.confidence
    return replace(
        finding,
        level=_RAISED.get(finding.level, finding.level),
        confidence=Confidence.LIKELY if sure is Confidence.POSSIBLE else sure,
        evidence=(*finding.evidence[:1], *trial.evidence, *finding.evidence[1:]),
        facts={**finding.facts, Fact.BY_EXPERIMENT: trial.fact(Fact.EXPERIMENT)},
    )


def _is_about(trial: Finding, finding: Finding) -> bool:
    """The experiment was made to settle this explanation."""
    if trial.text(Fact.FINDING) == finding.kind:
        return True
    cause = trial.text(Fact.ROOT_CAUSE).lower().rstrip(".")
    title = finding.title.lower().rstrip(".")
    return bool(cause) and (cause in title or title in cause)


def _is_at(trial: Finding, finding: Finding) -> bool:
    """A cause was found in the very place that the experiment singled out."""
    if trial.kind not in SINGLED_OUT or finding.level not in (Level.CAUSE, Level.FAILURE):
        return False
    names = trial.names(Fact.CULPRITS)
    if trial.kind == "experiment.path":
        return any(_names(finding.title, name) for name in names)
    return finding.host is not None and finding.host.split(".")[0] in {n.split(".")[0] for n in names}  # fmt: skip


def _names(title: str, name: str) -> bool:
    """The title names the component, and not one whose name only begins alike."""
    start = title.find(name)
    after = title[start + len(name) : start + len(name) + 1]
    return start >= 0 and not after.isalnum()
