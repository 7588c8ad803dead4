"""What does a finished experiment change? Its record joins the incident's evidence, and all is weighed again."""

from __future__ import annotations

import time

from firstfault.errors import CannotAnalyse, UsageError
from firstfault.incidents.acceptance import Upload
from firstfault.incidents.experiments import StoredExperiment
from firstfault.investigation.diagnosis import Diagnosis
from firstfault.service import Service
from firstfault.worker import Worker
from firstfault_tools.experiments.experiment import About, judge_figures
from firstfault_tools.experiments.record import say_result, write_record

SETTLE_S = 600.0


def choose_about(diagnosis: Diagnosis | None, number: int) -> About:
    """The explanation of an incident's board that an experiment is made for, counted from 1."""
    if diagnosis is None:
        raise CannotAnalyse("the incident has no diagnosis yet; wait for its verdict")
    if not 1 <= number <= len(diagnosis.hypotheses):
        said = f"it has {len(diagnosis.hypotheses)}" if diagnosis.hypotheses else "it has none"
        raise UsageError(f"--explanation {number}: the incident has no such one; {said}")
    chosen = diagnosis.hypotheses[number - 1]
    kind = diagnosis.signature if number == 1 and diagnosis.signature else ""
    kind = kind if "." in kind or not kind else f"signature.{kind}"
    return About(chosen.root_cause, kind, chosen.category)


def write_evidence(stored: StoredExperiment) -> str:
    """The record of an experiment as a file."""
    if stored.result is None:
        raise UsageError(
            f"experiment {stored.id} has no result yet; `firstfault experiment resume {stored.id}` goes on"
        )
    trials = judge_figures(stored.design, stored.trials)
    return write_record(stored.id, stored.design, trials, stored.result)


def say_stored(stored: StoredExperiment) -> str:
    """Its result in a sentence, or how far it is."""
    if stored.result is None:
        return f"experiment {stored.id} ({stored.design.kind.value}), '{stored.design.hypothesis}': open after {len(stored.trials)} trials"
    return say_result(stored.id, stored.design, stored.result)


def tell_incident(service: Service, stored: StoredExperiment) -> Diagnosis | None:
    """Put the record among the evidence of its incident, diagnose again, and give the new diagnosis.

    Said once, however often it is called. None where the experiment belongs to no incident.
    """
    if stored.incident is None:
        return None
    record = Upload(f"experiment-{stored.id}.json", write_evidence(stored).encode())
    service.add_evidence(stored.incident, [record], key=f"experiment-{stored.id}")
    settle(service, stored.incident)
    return service.diagnosis(stored.incident)


def settle(service: Service, incident: str) -> None:
    """Do what waits until the incident is settled, beside whoever else works on it."""
    worker = Worker(service.record, service.workspace, service.answerer)
    until = time.monotonic() + SETTLE_S
    while not service.incident(incident).state.is_final:
        if time.monotonic() > until:
            raise CannotAnalyse(
                f"incident {incident} was not diagnosed within {SETTLE_S:g} s; it goes on"
            )
        if not worker.run_once():
            time.sleep(0.1)
