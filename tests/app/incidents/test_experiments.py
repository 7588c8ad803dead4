"""Experiments on record: durable trials, one writer, gone with their incident."""

from __future__ import annotations

import pytest

from firstfault.errors import CannotAnalyse, UsageError
from firstfault.incidents.acceptance import PastedText, accept_inputs
from firstfault.incidents.events import Received
from firstfault.incidents.record import EXPERIMENTS, Record
from firstfault.incidents.records import RunKind, TurnKind
from firstfault_tools.experiments.experiment import About, Design, Result
from firstfault_tools.experiments.kinds import Kind, Verdict
from firstfault_tools.experiments.pairs import Routes
from firstfault_tools.experiments.sequential import StoppingRule
from firstfault_tools.experiments.trial import Criterion, Outcome, Trial
from firstfault_tools.findings import Category

DESIGN = Design(
    Kind.PAIRS, "h", "p", ("run", "{a}"), ("n1", "n2", "n3"), About("cause", "kind", Category.COMMUNICATION),
    StoppingRule(0.3), Criterion("([0-9]+)", 3.0), group_sizes=(2,), source={"ranks": "8"},
    routes=Routes({"n1": ("leaf",)}, {"n1 n2": ("switch-04 port 17",)}),
)  # fmt: skip
TRIAL = Trial(("n1", "n2"), Outcome.FAILED, 1, 2.5, "exit code 1", ("boom",), 17.1)


def open_incident(record: Record) -> str:
    accepted = accept_inputs([PastedText("a log")], record.settings)
    received = Received(TurnKind.REPORT, "")
    return record.incidents.create("t", received, accepted.files, "", RunKind.DIAGNOSE)


def test_what_is_stored_comes_back(record: Record) -> None:
    store = record.experiments
    identity = store.create(DESIGN)
    store.add_trial(identity, 1, TRIAL)
    result = Result(Verdict.SUPPORTED, "s", ("n1",), "host", 0.99, 1, 1.0)
    store.finish(identity, result)
    found = store.get(identity)
    assert (found.trials, found.result) == ((TRIAL,), result)
    assert (found.design.kind, found.design.rule, found.design.about) == (DESIGN.kind, DESIGN.rule, DESIGN.about)  # fmt: skip
    assert found.design.routes.between("n2", "n1") == DESIGN.routes.between("n1", "n2")
    assert [e.id for e in store.list()] == [identity]


def test_a_trial_has_one_writer(record: Record) -> None:
    identity = record.experiments.create(DESIGN)
    record.experiments.add_trial(identity, 1, TRIAL)
    with pytest.raises(CannotAnalyse, match="another process"):
        record.experiments.add_trial(identity, 1, TRIAL)
    assert len(record.experiments.get(identity).trials) == 1


def test_it_goes_with_its_incident(record: Record) -> None:
    incident = open_incident(record)
    identity = record.experiments.create(DESIGN, incident)
    record.experiments.add_trial(identity, 1, TRIAL)
    folder = record.settings.data / EXPERIMENTS / identity
    folder.mkdir(parents=True)
    record.delete(incident)
    assert not folder.exists()
    with pytest.raises(UsageError, match="no experiment"):
        record.experiments.get(identity)
    with pytest.raises(UsageError, match="no incident"):
        record.experiments.create(DESIGN, incident)
