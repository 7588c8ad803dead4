"""The throughput collapse of seed 002, solved by experiments: four suspects, trials for each, one switch port."""

from __future__ import annotations

import sys
from itertools import combinations
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result
from tests.app.experiments.fabric_tool import spine

from firstfault.commands.experiment import COMMAND
from firstfault.conversation.board import lay_board
from firstfault.conversation.walk import begin
from firstfault.experiments.outcome import settle
from firstfault.service import NamedPath, NewIncident, Service, open_service

CASE = Path(__file__).parents[3] / "evals/cases/dev/communication/seed-002-throughput-collapse"
TOOL = str(Path(__file__).with_name("fabric_tool.py"))
HOSTS = [f"node-{i:02}" for i in range(32)]
PORT = "switch-04 port 17"
BUS = ["--figure", r"busbw = ([0-9.]+)", "--fails-below", "30"]


def invoke(*arguments: str) -> Result:
    done = CliRunner().invoke(COMMAND, list(arguments))
    assert done.exception is None or isinstance(done.exception, SystemExit), done.output
    return done


@pytest.fixture
def incident(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, Service]:
    """What was known at 03:01: the log and four ranks' times; no switch was looked at."""
    monkeypatch.setenv("FIRSTFAULT_DATA", str(tmp_path / "data"))
    service = open_service(workers=False)
    files = tuple(NamedPath(CASE / name) for name in ("train.log", "rank_times.txt"))
    question = (
        "Throughput fell from 142K to 89K tokens/s at 02:47 and nothing crashed. What is slow?"
    )
    identity = service.start(NewIncident(files, question))
    settle(service, identity)
    return identity, service


def test_from_four_suspects_to_one_port(
    incident: tuple[str, Service], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    identity, service = incident
    before = service.diagnosis(identity)
    assert before is not None
    assert PORT not in before.root_cause

    def test(claim: str, *more: str) -> int:
        rate = ["--rate", "0.9", "--incident", identity, "--yes", "--category"]
        done = invoke("test", claim, *rate, *more)
        return done.exit_code

    tool = ["--", sys.executable, TOOL]
    assert test("another job loads the whole network", "communication", "--expect", "fails", *BUS, *tool, "node-00", "node-01") == 0  # fmt: skip
    assert test("GPUs are throttled", "hardware", "--expect", "fails", "--figure", r"compute_ms = (\d+)", "--fails-above", "4500", *tool, "step") == 0  # fmt: skip

    routes = tmp_path / "routes.yaml"
    paths = {f"{a} {b}": spine(a, b) for a, b in combinations(HOSTS, 2)}
    routes.write_text(yaml.safe_dump({"routes": paths}))
    found = invoke("pairs", "node-[00-31]", "--routes", str(routes), *BUS, "--rate", "0.95", "--incident", identity, "--yes", *tool, "{a}", "{b}")  # fmt: skip
    assert found.exit_code == 1
    assert f"the slow pairs share {PORT}" in found.output

    after = service.diagnosis(identity)
    assert after is not None
    assert PORT in after.root_cause
    assert after.category is not None
    assert after.category.value == "communication"
    board = lay_board(after, begin(after), service.workspace.knowledge)
    states = {row.root_cause: row.state for row in board.rows}
    assert states["another job loads the whole network"] == "refuted"
    assert states["GPUs are throttled"] == "refuted"
    assert board.lead is not None
    assert PORT in board.lead.root_cause

    monkeypatch.setenv("REROUTED", "1")
    crossing = next(p for p, parts in paths.items() if PORT in parts).split()
    assert test("the port is the cause: without it pairs are fast", "communication", "--expect", "works", *BUS, *tool, *crossing) == 1  # fmt: skip
    last = service.diagnosis(identity)
    assert last is not None
    assert PORT in last.root_cause
    service.close()
