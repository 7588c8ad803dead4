"""A probe waits for a person, survives the death of its process, and runs exactly once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.app.agent.conftest import LOG
from tests.app.agent.probe_process import take_turn
from tests.conftest import ROOT

from firstfault.agent.reply import ProbeComponent
from firstfault.agent.store import AgentStore, Decision, ProbeState, open_store
from firstfault.settings import Settings


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    (tmp_path / "train.log").write_text(LOG.replace("{planted}", "[rank0]: waits"))
    return tmp_path


def start(place: Path, turn: int, text: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.app.agent.probe_process", str(place / "data"), str(place / "train.log"), str(turn), text]  # fmt: skip
    environ = dict(os.environ) | {"PYTHONPATH": f"{ROOT}:{ROOT / 'app'}:{ROOT / 'tools'}"}
    return subprocess.Popen(command, cwd=ROOT, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)  # fmt: skip


def take(place: Path, turn: int, text: str) -> str:
    """The turn in this process, which stands for any that is not killed."""
    said: list[str] = []
    take_turn(place / "data", place / "train.log", turn, text, said.append)
    return "\n".join(said)


def kill_at(process: subprocess.Popen[str], word: str) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if word in line:
            break
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=10)


def runs(place: Path) -> list[str]:
    file = place / "data" / "probe_runs"
    return file.read_text().splitlines() if file.exists() else []


def test_killed_between_request_and_approval(place: Path) -> None:
    (place / "data" / "die").touch()
    kill_at(start(place, 1, "-"), "WAITING")
    (place / "data" / "die").unlink()
    assert runs(place) == []
    approved = take(place, 2, "/approve")
    assert runs(place) == ["memory True"]
    assert "ran out of memory [1]" in approved
    assert "CALLS 1" in approved  # the two calls before the death are not made again
    # the worker died after the run: the turn is taken over
    again = take(place, 2, "/approve")
    assert runs(place) == ["memory True"]
    assert "ran out of memory" in again
    take(place, 3, "/approve")  # nothing waits any more: it is a question like any other
    assert runs(place) == ["memory True"]


def test_killed_while_the_probe_ran(place: Path) -> None:
    take(place, 1, "-")
    (place / "data" / "slow_probe").touch()
    kill_at(start(place, 2, "/approve"), "probe:")
    process = start(place, 2, "/approve")
    kill_at(process, "PROBING") if runs(place) == [] else process.kill()
    process.wait(timeout=10)
    (place / "data" / "slow_probe").unlink()
    take(place, 2, "/approve")
    assert len(runs(place)) == 1


def test_rejection_with_a_reason(place: Path) -> None:
    take(place, 1, "-")
    out = take(place, 2, "/reject: the node is in use")
    assert runs(place) == []
    assert "ran out of memory" in out


@pytest.mark.parametrize(
    "text", ["do not approve", "Should I approve this?", "approve nothing", "I reject that idea"]
)
def test_only_exact_words_decide(place: Path, text: str) -> None:
    take(place, 1, "-")
    take(place, 2, text)
    assert runs(place) == []


@pytest.fixture
def store(settings: Settings) -> AgentStore:
    return open_store(settings)


def test_a_call_is_claimed_once(store: AgentStore) -> None:
    assert store.begin_probe("a")[0] is ProbeState.NEW
    assert store.begin_probe("a") == (ProbeState.BEGUN, "")
    store.end_probe("a", "result")
    assert store.begin_probe("a") == (ProbeState.DONE, "result")
    assert store.begin_probe("b")[0] is ProbeState.NEW


def test_a_decision_is_taken_once(store: AgentStore) -> None:
    store.ask_approval(
        "i", "i:1", {"name": "run_probe", "args": {"component": ProbeComponent.DATA.value}}
    )
    assert store.pending("other") is None
    assert store.decide("i:1", Decision.APPROVE, 2)
    assert not store.decide("i:1", Decision.REJECT, 3)
    assert store.pending("i") is None
    decided = store.decided_in("i", 2)
    assert decided is not None
    assert decided[1] is Decision.APPROVE
