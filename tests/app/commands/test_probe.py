"""`firstfault probe`: exit codes, one JSON object, the subcommands."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from firstfault.commands.probe import COMMAND

FAKE = Path(__file__).parents[2] / "tools" / "probe" / "fake_node"


def record(host: str, rate: float) -> str:
    values = {"dtype": "bf16", "size": 8192, "rate_tflops": rate}
    whole = {"schema": "firstfault.probe/1", "kind": "result", "host": host, "test": "gemm"}
    return json.dumps({**whole, "status": "ok", "gpu_index": 0, "values": values}) + "\n"


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{FAKE / 'bin'}:/usr/bin:/bin:{Path(sys.executable).parent}")
    monkeypatch.setenv("PYTHONPATH", str(FAKE))


@pytest.mark.usefixtures("node")
def test_a_slow_gpu_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_SECONDS", "0.0014,0.0028")
    done = CliRunner().invoke(COMMAND, ["--only", "compute", "--json"])
    assert done.exit_code == 1
    whole = json.loads(done.stdout)
    assert whole["schema"] == "firstfault.probe/1"
    assert [f["gpu"] for f in whole["findings"] if f["level"] == "cause"] == ["GPU 1"]
    assert "+ nvidia-smi" in done.stderr


@pytest.mark.usefixtures("node")
def test_equal_gpus_are_no_fault() -> None:
    done = CliRunner().invoke(COMMAND, ["--only", "compute"], env={"FAKE_SECONDS": "0.0014,0.0014"})
    assert done.exit_code == 0
    assert "nothing odd" in done.stdout


def test_without_a_gpu_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    done = CliRunner().invoke(COMMAND, ["--tests", "gemm"])
    assert done.exit_code == 4
    assert "no GPU was seen or measured" in done.stdout
    assert "gemm: not available here: no GPU" in done.stdout


def test_an_interpreter_that_is_not_there() -> None:
    done = CliRunner().invoke(COMMAND, ["--python", "/no/python"])
    assert done.exit_code == 4
    assert "--python" in done.stderr


def test_merge(tmp_path: Path) -> None:
    for number in range(5):
        (tmp_path / f"n{number}.jsonl").write_text(
            record(f"n{number}", 400 if number == 3 else 780)
        )
    files = [str(path) for path in sorted(tmp_path.iterdir())]
    done = CliRunner().invoke(COMMAND, ["merge", *files])
    assert done.exit_code == 1
    assert done.stdout.startswith("FAULT GPU 0 on n3")
    (tmp_path / "bad").write_text("nothing")
    assert CliRunner().invoke(COMMAND, ["merge", str(tmp_path / "bad")]).exit_code == 3


def test_kit_and_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = CliRunner().invoke(COMMAND, ["kit", str(tmp_path)])
    assert done.exit_code == 0
    assert (tmp_path / "firstfault-probe.pyz").is_file()

    def refuse(_folder: Path) -> Path:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("firstfault_tools.probe.build.write_kit", refuse)
    closed = CliRunner().invoke(COMMAND, ["kit", str(tmp_path)])
    assert (closed.exit_code, "cannot be written" in closed.output) == (2, True)
    plan = CliRunner().invoke(COMMAND, ["plan", "srun", "--nodes", "4"])
    assert "srun --nodes=4" in plan.stdout
    assert CliRunner().invoke(COMMAND, ["plan", "ssh"]).exit_code == 2
