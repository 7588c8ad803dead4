"""How the kit is started: texts for a person, and the run on this machine."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import pytest
from tests.rows import each_row

from firstfault_tools.errors import InvalidParameter
from firstfault_tools.probe.launch import Launcher, plan_launch
from firstfault_tools.probe.local import run_here

FAKE = Path(__file__).with_name("fake_node")


@each_row("launcher", list(Launcher))
def test_every_launcher_ends_with_the_merge(launcher: Launcher) -> None:
    steps = plan_launch(launcher, ["node-1"], node_count=2, gpus_per_node=8)
    assert steps[-1].text == "firstfault probe merge probe-*.jsonl"
    assert any("firstfault-probe.pyz" in step.text for step in steps)


def test_kubectl_copies_then_runs() -> None:
    steps = plan_launch(Launcher.KUBECTL, ["ml/trainer-0"], node_count=1, gpus_per_node=8)
    assert [step.argv[:2] for step in steps[:2]] == [("kubectl", "cp"), ("kubectl", "exec")]
    assert steps[1].text.endswith("> probe-ml-trainer-0.jsonl")


@each_row("name", ["-oProxyCommand=x", "a;b", "a b", ""])
def test_names_that_are_no_names_are_refused(name: str) -> None:
    with pytest.raises(InvalidParameter):
        plan_launch(Launcher.SSH, [name], node_count=1, gpus_per_node=8)


def test_ssh_needs_names() -> None:
    with pytest.raises(InvalidParameter):
        plan_launch(Launcher.SSH, [], node_count=1, gpus_per_node=8)


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{FAKE / 'bin'}:/usr/bin:/bin:{Path(sys.executable).parent}")
    monkeypatch.setenv("PYTHONPATH", str(FAKE))


@pytest.mark.usefixtures("node")
def test_the_run_here_shows_its_command_and_reads_the_records() -> None:
    shown: list[str] = []
    run = run_here(["--tests", "gemm"], 30, show=shown.append)
    assert run.exit_code == 0
    assert not run.stopped
    assert {r.gpu_index for r in run.records if r.test == "gemm"} == {0, 1}
    assert shown[0].startswith("+ ")
    assert any(line.startswith("+ nvidia-smi") for line in shown)


@pytest.mark.usefixtures("node")
def test_the_run_here_can_be_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_HANG", "1")
    stop = threading.Event()

    def watch(line: str) -> None:
        if line == "test: copy":
            stop.set()

    run = run_here(["--tests", "copy"], 60, show=watch, stop=stop)
    assert run.stopped
    assert run.records[-1].status == "stopped"
