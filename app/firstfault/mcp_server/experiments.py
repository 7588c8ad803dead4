"""Which experiments may an assistant list, plan and take results of? It never runs one."""

from __future__ import annotations

from typing import Any

from firstfault.errors import FirstfaultError
from firstfault.experiments.by_hand import (
    Claim,
    enter_trials,
    next_by_hand,
    plan_test,
    put_on_record,
)
from firstfault.experiments.outcome import say_stored
from firstfault.experiments.planning import write_plan
from firstfault.incidents.experiments import StoredExperiment
from firstfault.incidents.plain import to_plain
from firstfault.service import Service
from firstfault_tools.experiments.trial import Outcome

MOST = 50


def list_experiments(service: Service, incident: str | None) -> dict[str, Any]:
    """Experiments, last changed first."""
    if incident is not None:
        service.incident(incident)
    found = service.record.experiments.list(incident, MOST)
    return {"experiments": [_tell(stored) for stored in found]}


def plan_experiment(
    service: Service, claim: Claim, incident: str | None, store: bool
) -> dict[str, Any]:
    """The plan in lines; with `store`, its id and first command as well."""
    if incident is not None:
        service.incident(incident)
    design = plan_test(service, claim, incident)
    plan = list(write_plan(design))
    if not store:
        return {"plan": plan, "stored": False}
    identity = put_on_record(service, design, incident)
    return {"plan": plan, "stored": True, **_tell(service.record.experiments.get(identity))}


def record_trials(service: Service, experiment: str, outcome: str, times: int) -> dict[str, Any]:
    """How far it is after these trials."""
    return _tell(enter_trials(service, experiment, Outcome(outcome), times))


def _tell(stored: StoredExperiment) -> dict[str, Any]:
    try:
        waiting = next_by_hand(stored)
        following = "" if waiting is None else waiting.command
    except FirstfaultError as error:
        following = str(error)
    return {
        "experiment": stored.id,
        "incident": stored.incident,
        "kind": stored.design.kind.value,
        "hypothesis": stored.design.hypothesis,
        "prediction": stored.design.prediction,
        "trials": len(stored.trials),
        "verdict": None if stored.result is None else to_plain(stored.result.verdict),
        "says": say_stored(stored),
        "next_command": following,
    }
