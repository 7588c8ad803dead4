"""Where does the investigation stand? The five phases with what each found and what is open."""

from __future__ import annotations

from firstfault.investigation.diagnosis import (
    Fix,
    Hypothesis,
    NextArtefact,
    Phase,
    PhaseName,
    PhaseStatus,
    RunState,
)
from firstfault.investigation.examination import Examination
from firstfault.investigation.place import FaultPlace
from firstfault.investigation.run_stage import say_when
from firstfault.investigation.verdict import Judgement
from firstfault_tools.causality.odd_ranks.silence import read_silence
from firstfault_tools.findings import Confidence, Level, Verdict
from firstfault_tools.hardware.bus import call_gpu
from firstfault_tools.log.place import name_ranks

MOST_CANDIDATES = 8
MOST_NAMED = 65_536
"""Ranks of a job up to which those that wrote nothing are named."""

STATES = {
    RunState.ENDED: "The run has ended.",
    RunState.STOPPED: "The run takes no step any more; whether it has ended is not shown.",
    RunState.NOT_BEGUN: "The run has not taken a step; whether it has ended is not shown.",
    RunState.GOES_ON: "Something is wrong, and the run goes on.",
    RunState.STARTED_AGAIN: "The run was started again and trains.",
    RunState.UNSHOWN: "What became of the run is not shown.",
}
_OVER = (RunState.ENDED, RunState.STOPPED, RunState.NOT_BEGUN)


def describe_phases(
    examination: Examination,
    judgement: Judgement,
    run_state: RunState,
    place: FaultPlace | None,
    fixes: tuple[Fix, ...],
    hypotheses: tuple[Hypothesis, ...],
    next_artefacts: tuple[NextArtefact, ...],
) -> tuple[Phase, ...]:
    """The five phases in order. A phase is done only when its own question is answered."""
    if judgement.verdict is Verdict.HEALTHY:
        triage = Phase(
            PhaseName.TRIAGE,
            PhaseStatus.DONE,
            "The run is alive or ended well.",
            _noise(examination),
        )
        skipped = "Nothing failed, so there is nothing to do here."
        return (
            triage,
            *(Phase(name, PhaseStatus.SKIPPED, skipped) for name in list(PhaseName)[1:]),
        )
    return (
        _triage(examination, judgement, run_state),
        _localize(examination, judgement, place),
        _isolate(judgement, hypotheses, next_artefacts),
        _root_cause(judgement),
        _resolve(judgement, fixes),
    )


def _noise(examination: Examination) -> tuple[str, ...]:
    return tuple(f.title for f in (*examination.chain.benign, *examination.chain.survived))[:8]


def _triage(examination: Examination, judgement: Judgement, run_state: RunState) -> Phase:
    chain = examination.chain
    logs = examination.logs
    last = [p.counter for r in logs.progress.values() if (p := r.last_training()) is not None]
    reached = f" Last step seen: {max(c for c in last if c is not None)}." if last else ""
    symptoms = [f.title for f in (*chain.cascade, *chain.teardown)][:6]
    seen = len(logs.ranks_seen)
    world = logs.world_size
    ranks = f" {_count(seen, 'rank')} seen" + (f" of {world}." if world else ".") if seen else ""
    when = (
        say_when(examination, judgement.finding) if run_state in _OVER and judgement.finding else ""
    )
    stage = f" {when}." if when else ""
    return Phase(
        PhaseName.TRIAGE,
        PhaseStatus.DONE,
        f"{STATES[run_state]}{reached}{stage}{ranks}",
        tuple(symptoms),
    )


def _localize(examination: Examination, judgement: Judgement, place: FaultPlace | None) -> Phase:
    finding = judgement.finding
    if finding is None or place is None:
        return Phase(
            PhaseName.LOCALIZE, PhaseStatus.OPEN, "No rank, host or component stands out yet."
        )
    parts = []
    if words := place.process.describe():
        alone = place.rank is None and place.process.local_rank is None
        parts.append(f"host {words}" if alone else words)
        if place.rank is None and not alone and 1 < len(place.ranks.candidates) <= MOST_CANDIDATES:
            which = " or ".join(map(str, sorted(place.ranks.candidates)))
            parts.append(f"which is rank {which} ({place.ranks.reason})")
    if place.mesh:
        parts.append(place.mesh)
    if place.gpu:
        parts.append(call_gpu(place.gpu))
    seen, world = len(examination.logs.ranks_seen), examination.logs.world_size
    missing = ""
    if world and 0 < seen < world:
        missing = f"; only {seen} of {world} ranks wrote to these logs"
        if world <= MOST_NAMED:
            absent = set(range(world)) - examination.logs.ranks_seen
            missing += f" ({name_ranks(sorted(absent))} did not)"
    silence = read_silence(examination.logs)
    if silence is not None:
        missing += f"; {silence.describe()}"
    if not parts:
        shared = finding.level is Level.CAUSE
        return Phase(
            PhaseName.LOCALIZE,
            PhaseStatus.DONE if shared else PhaseStatus.OPEN,
            ("No single rank: the fault lies in what the ranks share" if shared else "The evidence singles out no rank")
            + missing + ".",
        )  # fmt: skip
    return Phase(PhaseName.LOCALIZE, PhaseStatus.DONE, ", ".join(parts) + missing + ".")


def _isolate(
    judgement: Judgement,
    hypotheses: tuple[Hypothesis, ...],
    next_artefacts: tuple[NextArtefact, ...],
) -> Phase:
    rivals = [h for h in hypotheses[1:] if h.for_ or not h.against]
    tests = tuple(f"{a.what}: {a.why}" for a in next_artefacts)
    finding = judgement.finding
    if finding is not None and not {"experiment", "by_experiment"}.isdisjoint(finding.facts):
        return Phase(PhaseName.ISOLATE, PhaseStatus.DONE, "An experiment singled it out.", tests)
    if judgement.confidence is Confidence.CONFIRMED and not rivals:
        return Phase(
            PhaseName.ISOLATE, PhaseStatus.DONE, "No other cause fits the evidence.", tests
        )
    if rivals:
        text = f"{_count(len(rivals), 'other cause')} fit{'s' if len(rivals) == 1 else ''} in part; what follows would separate them."
    elif judgement.finding is None:
        text = "No cause stands out yet; what follows would show one."
    else:
        text = "One cause stands out; what follows would confirm it."
    return Phase(PhaseName.ISOLATE, PhaseStatus.OPEN, text, tests)


def _root_cause(judgement: Judgement) -> Phase:
    if judgement.finding is None:
        return Phase(
            PhaseName.ROOT_CAUSE,
            PhaseStatus.OPEN,
            "Not established: the evidence does not reach that far.",
        )
    done = judgement.confidence in (Confidence.CONFIRMED, Confidence.LIKELY)
    return Phase(
        PhaseName.ROOT_CAUSE,
        PhaseStatus.DONE if done else PhaseStatus.OPEN,
        f"{judgement.confidence.value.capitalize()}: {judgement.finding.title}",
    )


def _resolve(judgement: Judgement, fixes: tuple[Fix, ...]) -> Phase:
    if not fixes:
        return Phase(
            PhaseName.RESOLVE,
            PhaseStatus.OPEN,
            "No fix is shown without a cause and a page to cite.",
        )
    now = sum(1 for f in fixes if f.kind == "immediate")
    return Phase(
        PhaseName.RESOLVE,
        PhaseStatus.DONE if judgement.confidence is Confidence.CONFIRMED else PhaseStatus.OPEN,
        f"{_count(now, 'thing')} to do now and {len(fixes) - now} for good, each with its sources. Verify: the run must pass the step where it failed.",
        tuple(f.text for f in fixes[:3]),
    )


def _count(number: int, noun: str) -> str:
    """`1 rank`, `2 ranks`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"
