"""`firstfault triage`: the plan, the capture, what is missing, exit codes, the page's commands."""

from __future__ import annotations

import importlib.util
import json
import shlex
import stat
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.rows import each_row

from firstfault.commands.triage import COMMAND
from firstfault.errors import UsageError
from firstfault.grounding.effects import may_propose
from firstfault.service import open_service
from firstfault.workspace import Workspace
from firstfault_tools.triage.steps import Scope, read_steps

ROOT = Path(__file__).parents[3]
FAKES = ROOT / "tests" / "tools" / "triage" / "conftest.py"
GOOD = {"ranks": [0, 1], "world": 4}
QUICK = ["--only", "last-lines,stacks"]


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two hosts of two ranks each; the second is dead."""
    spec = importlib.util.spec_from_file_location("fake_site_builder", FAKES)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    hosts = {"gpu1": GOOD, "gpu2": {"ranks": [2, 3], "acts": {"*": "255"}}}
    built: Path = module.build_site(tmp_path, monkeypatch, hosts)
    return built


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Incidents that a capture opens go on a record of their own."""
    monkeypatch.setenv("FIRSTFAULT_DATA", str(tmp_path / "data"))
    return tmp_path / "data"


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(COMMAND, list(arguments))


@pytest.mark.parametrize(
    "target",
    [[], ["--ssh", "a,b"], ["--slurm", "7"], ["--slurm", "7", "--hosts", "a"], ["--kubectl", "app=x"],
     ["--kubectl", "p-0", "-n", "ns", "-c", "main"]],
    ids=" ".join,
)  # fmt: skip
def test_a_plan_names_every_command_and_runs_none(site: Path, target: list[str]) -> None:
    done = invoke(*target, "--checkpoints", "/ckpt", "--plan", "--json")
    assert done.exit_code == 0
    plan = json.loads(done.stdout)
    assert (plan["schema"], plan["kind"]) == ("firstfault.triage/1", "plan")
    ids = [row["id"] for row in plan["steps"]]
    assert ids.index("stacks") < ids.index("gpu") < ids.index("packages") < ids.index("ras-2")
    for row in plan["steps"]:
        assert row["what"]
        assert row["limit_s"] > 0
        assert row["commands"]
        assert all(argv[0] for argv in row["commands"])
    assert "{options}" not in done.stdout
    assert not Path(f"{site}.log").exists()
    text = invoke(*target, "--checkpoints", "/ckpt", "--plan").stdout
    assert all(f". {name}: " in text for name in ids)


def test_a_capture_shows_commands_names_what_is_missing_and_is_diagnosed(
    site: Path, tmp_path: Path
) -> None:
    out = tmp_path / "bundle"
    done = invoke("--ssh", "gpu1,gpu2", *QUICK, "--out", str(out), "--json")
    whole = json.loads(done.stdout)
    assert [row["host"] for row in whole["missing_hosts"]] == ["gpu2"]
    assert whole["missing_ranks"] == [2, 3]
    assert whole["diagnosis"]["schema"] == "firstfault.diagnosis/1"
    assert done.exit_code in (1, 4)
    ran = [json.loads(line) for line in Path(f"{site}.log").read_text().splitlines()]
    shown = [shlex.split(line[2:]) for line in done.stderr.splitlines() if line.startswith("+ ")]
    assert sorted(ran) == sorted(shown)
    assert stat.S_IMODE(out.stat().st_mode) == 0o700
    kept = json.loads((out / "triage.json").read_text())
    assert kept["steps"] == whole["steps"]
    for row in whole["steps"]:
        assert row["file"] is None or (out / row["file"]).is_file()


def test_a_capture_opens_as_an_incident(site: Path, tmp_path: Path, data: Path) -> None:
    done = invoke("--ssh", "gpu1,gpu2", *QUICK, "--out", str(tmp_path / "a"), "--json")
    with open_service(workers=False) as service:
        (incident,) = service.incidents()
        assert incident.id == json.loads(done.stdout)["incident"]
        diagnosis = service.diagnosis(incident.id)
        names = {f.name for f in service.evidence(incident.id)}
    assert diagnosis is not None
    assert "gpu1/rank0-stacks.txt" in names
    assert invoke("--ssh", "gpu1", *QUICK, "--no-record", "--out", str(tmp_path / "b")).stdout
    with open_service(workers=False) as service:
        assert len(service.incidents()) == 1


def test_without_a_place_for_records_it_is_diagnosed_all_the_same(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FIRSTFAULT_DATA", "/proc/none")
    done = invoke("--ssh", "gpu1,gpu2", *QUICK, "--out", str(tmp_path / "a"), "--json")
    assert "no incident was opened" in done.stderr
    assert json.loads(done.stdout)["diagnosis"]


def test_a_hung_run_of_two_gpus_names_the_rank() -> None:
    """Captured from a real run on two H200s: rank 1 waited for a shard, rank 0 in the collective."""
    captured = ROOT / "tests" / "data" / "hung_run"
    diagnosis = Workspace().diagnose_paths([captured], "The run hangs, which rank?")
    assert diagnosis.first_failing_rank == 1
    assert "read_next_shard (train.py:29)" in diagnosis.root_cause
    assert "AllReduce only up to operation 61 of 73" in diagnosis.explanation


def test_hosts_come_from_the_manager(site: Path, tmp_path: Path) -> None:
    for at, target in enumerate((["--slurm", "7"], ["--kubectl", "app=x", "-n", "ns"])):
        out = tmp_path / f"b{at}"
        done = invoke(*target, *QUICK, "--out", str(out))
        assert "missing  host gpu2" in done.stdout
        assert "missing  rank 2-3" in done.stdout
        assert "last     rank 1 on gpu1: step 41" in done.stdout


@each_row(
    "arguments",
    [["--ssh", "a", "--slurm", "7"], ["--hosts", "a"], ["--ssh", ""], ["--ssh", "-oProxyCommand=x"],
     ["--slurm", "7;rm"], ["--only", "nosuch"], ["--limit", "0"], ["--kubectl", "p-0", "-n", "-x"]],
    ids=" ".join,
)  # fmt: skip
def test_what_is_no_job_is_a_usage_error(arguments: list[str]) -> None:
    done = invoke(*arguments, "--plan")
    code = done.exception.exit_code if isinstance(done.exception, UsageError) else done.exit_code
    assert code == 2


def test_a_folder_that_is_there_is_not_touched(tmp_path: Path) -> None:
    done = invoke("--only", "memory", "--out", str(tmp_path))
    assert isinstance(done.exception, UsageError)


def test_steps_only_read() -> None:
    """What the checks of advice take for reading, or what this list says and why."""
    known = {
        "cat",
        "tail",
        "grep",
        "ps",
        "df",
        "ip",
        "ibstat",
        "rdma",
        "ncclras",
        "curl",
        "python3",
        "sacct",
    }
    for step in read_steps():
        assert step.source.startswith("https://")
        for argv in step.commands:
            line = shlex.join(part.replace("{", "").replace("}", "") for part in argv)
            assert argv[0] in known or may_propose(line), line
            assert ">" not in line
            assert step.scope is not Scope.PROCESS or "{" in " ".join(argv)


def test_the_page_says_what_the_command_does() -> None:
    page = (ROOT / "docs" / "triage.md").read_text(encoding="utf-8")
    commands = [line for line in page.splitlines() if line.startswith("firstfault triage")]
    assert len(commands) >= 5
    for command in commands:
        done = invoke(
            *shlex.split(command, comments=True)[2:], *([] if "--plan" in command else ["--plan"])
        )
        assert done.exit_code == 0, command
    rows: list[Any] = [
        line.split("|")[1].strip(" `") for line in page.splitlines() if line.startswith("| `")
    ]
    assert rows == [step.id for step in read_steps()]
