"""Experiments that a person carries out: planned, entered trial by trial, put among the evidence. Nothing is run."""

from __future__ import annotations

from pathlib import Path

import pytest

from firstfault.errors import UsageError
from firstfault.experiments import driver
from firstfault.experiments.by_hand import (
    Claim,
    enter_trials,
    next_by_hand,
    plan_test,
    put_on_record,
)
from firstfault.experiments.outcome import settle
from firstfault.mcp_server.desk import Desk
from firstfault.service import NamedPath, NewIncident, Service
from firstfault_tools.experiments import trial
from firstfault_tools.experiments.experiment import Design
from firstfault_tools.experiments.kinds import Kind, Verdict
from firstfault_tools.experiments.sequential import StoppingRule
from firstfault_tools.experiments.trial import Outcome

CLAIM = Claim("direct copies are at fault", "env NCCL_P2P_DISABLE=1 ./run.sh --steps 20", fails_if_true=False, rate=0.5)  # fmt: skip


@pytest.fixture
def no_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever runs a trial fails the test."""

    def refuse(*_a: object, **_k: object) -> None:
        raise AssertionError("a command was started")

    monkeypatch.setattr(driver, "run_trial", refuse)
    monkeypatch.setattr(trial, "run_trial", refuse)


@pytest.fixture
def incident(idle_service: Service, tmp_path: Path) -> str:
    log = tmp_path / "train.log"
    log.write_text(
        "[rank3]:[E1129 10:12:44.6 ProcessGroupNCCL.cpp:632] [Rank 3] Watchdog caught collective operation timeout: "
        "WorkNCCL(SeqNum=4, OpType=ALLREDUCE, NumelIn=4, NumelOut=4, Timeout(ms)=600000) ran for 600021 milliseconds "
        "before timing out.\n"
    )
    made = idle_service.start(NewIncident((NamedPath(log),), "it hangs"))
    settle(idle_service, made)
    return made


@pytest.mark.usefixtures("no_command")
def test_a_test_entered_by_hand_joins_the_evidence(idle_service: Service, incident: str) -> None:
    design = plan_test(idle_service, CLAIM, incident)
    identity = put_on_record(idle_service, design, incident)
    waiting = next_by_hand(idle_service.record.experiments.get(identity))
    assert waiting is not None
    assert (waiting.number, waiting.command) == (1, CLAIM.command)
    stored = enter_trials(idle_service, identity, Outcome.PASSED, 3)
    assert (len(stored.trials), stored.result) == (3, None)
    stored = enter_trials(idle_service, identity, Outcome.PASSED, 100)
    assert stored.result is not None
    assert stored.result.verdict is Verdict.SUPPORTED
    assert len(stored.trials) < 20  # what came after the decision is left out
    assert f"experiment-{identity}.json" in {e.name for e in idle_service.evidence(incident)}
    settle(idle_service, incident)
    diagnosis = idle_service.diagnosis(incident)
    assert diagnosis is not None
    assert any(CLAIM.hypothesis in h.root_cause for h in diagnosis.hypotheses)
    with pytest.raises(UsageError, match="has its result"):
        enter_trials(idle_service, identity, Outcome.FAILED)


def test_hosts_are_asked_one_group_after_the_other(idle_service: Service) -> None:
    hosts = tuple(f"gpu-{i}" for i in range(8))
    design = Design(Kind.HOSTS, "one host is bad", "", ("srun", "-w", "{hosts}", "./x.sh"), hosts, rule=StoppingRule(1.0, 0))  # fmt: skip
    identity = put_on_record(idle_service, design)
    for _ in range(20):
        stored = idle_service.record.experiments.get(identity)
        waiting = next_by_hand(stored)
        if waiting is None:
            break
        group = waiting.command.split()[2].split(",")
        outcome = Outcome.FAILED if "gpu-5" in group else Outcome.PASSED
        # as often as you like: only the group that was asked for is entered
        enter_trials(idle_service, identity, outcome, 5)
    result = idle_service.record.experiments.get(identity).result
    assert result is not None
    assert result.culprits == ("gpu-5",)


@pytest.mark.parametrize(
    ("claim", "said"),
    [(Claim("", "./run.sh"), "hypothesis"), (Claim("x", ""), "command"), (Claim("x", "a 'b"), "quotes"),
     (Claim("x", "./run.sh", rate=2.0), "rate"), (Claim("x", "./run.sh", explanation=1), "incident")],
)  # fmt: skip
def test_what_makes_no_experiment(claim: Claim, said: str, idle_service: Service) -> None:
    with pytest.raises(UsageError, match=said):
        plan_test(idle_service, claim)


def test_kinds_that_need_files_stay_on_the_command_line(idle_service: Service) -> None:
    design = Design(Kind.SETTINGS, "a difference", "", ("x", "{config}"), ("a", "b"))
    identity = put_on_record(idle_service, design)
    with pytest.raises(UsageError, match="resume"):
        next_by_hand(idle_service.record.experiments.get(identity))


@pytest.mark.usefixtures("no_command")
def test_an_assistant_plans_and_records_and_runs_nothing(
    idle_service: Service, incident: str
) -> None:
    desk = Desk(settings=idle_service.record.settings)
    ask = {"hypothesis": "direct copies", "command": "./run.sh", "expect": "works", "rate": 0.5}
    planned = desk.plan_experiment(**ask)  # type: ignore[arg-type]
    assert planned["stored"] is False
    assert any("trials on average" in line for line in planned["plan"])
    assert desk.experiments()["experiments"] == []
    stored = desk.plan_experiment(**ask, incident=incident, explanation=1, store=True)  # type: ignore[arg-type]
    assert stored["next_command"] == "./run.sh"
    told = desk.record_trial(stored["experiment"], "failed", 50)
    assert told["verdict"] == "refuted"
    assert told["next_command"] == ""
    assert [e["experiment"] for e in desk.experiments(incident)["experiments"]] == [
        stored["experiment"]
    ]
