"""`firstfault experiment`: consent, plans, resuming after a kill, each kind end to end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from firstfault.commands.experiment import COMMAND
from firstfault.errors import UsageError
from firstfault.service import open_service

ONCE = ["--rate", "1", "--noise", "0"]


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FIRSTFAULT_DATA", str(tmp_path / "data"))
    return tmp_path / "data"


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(COMMAND, list(arguments))


def python(script: str, *arguments: str) -> list[str]:
    return ["--", sys.executable, "-c", script, *arguments]


def test_a_plan_runs_and_stores_nothing(data: Path) -> None:
    done = invoke("hosts", "gpu-[01-64]", "--rate", "0.3", "--plan", "--", "/no/such/thing", "{hosts}")  # fmt: skip
    assert done.exit_code == 0
    for line in ("hypothesis", "prediction", "command", "error rates", "least        4", "leaves"):
        assert line in done.stdout
    assert not data.exists()


def test_nothing_runs_without_consent(tmp_path: Path) -> None:
    script = f"open({str(tmp_path / 'ran')!r}, 'w')"
    done = invoke("test", "x", "--expect", "fails", *python(script))
    assert isinstance(done.exception, UsageError)
    assert not (tmp_path / "ran").exists()


def test_sizes_and_what_changes() -> None:
    script = "import sys; sys.exit(int(sys.argv[1]) > 24)"
    done = invoke("sizes", "--good", "8", "--bad", "64", "--tensor", "8", *ONCE, "--yes", *python(script, "{value}"))  # fmt: skip
    assert done.exit_code == 1
    assert "ranks 24 works, 32 fails" in done.stdout
    assert "data parallel 3 becomes 4" in done.stdout
    assert "3 nodes become 4" in done.stdout


def test_hosts_as_a_record() -> None:
    script = "import sys; sys.exit('n03' in sys.argv[1].split(','))"
    done = invoke("hosts", "n[01-16]", *ONCE, "--yes", "--json", *python(script, "{hosts}"))
    assert done.exit_code == 1
    record = json.loads(done.stdout)
    assert record["schema"] == "firstfault.experiment/1"
    assert record["result"]["culprits"] == ["n03"]
    assert record["result"]["trials"] == len(record["trials"]) <= 7


def test_a_command_that_is_not_there_is_no_verdict() -> None:
    done = invoke("hosts", "n[01-16]", "--yes", "--", "/no/such/thing", "{hosts}")
    assert done.exit_code == 4
    assert "cannot start" in done.stdout


def test_settings(tmp_path: Path) -> None:
    good, bad = tmp_path / "good.json", tmp_path / "bad.json"
    good.write_text(json.dumps({"lr": 1, "fp8": False, "workers": 8, "seed": 1}))
    bad.write_text(json.dumps({"lr": 3, "fp8": True, "workers": 2, "seed": 1}))
    script = (
        "import json, sys; c = json.load(open(sys.argv[1])); sys.exit(c['fp8'] and c['lr'] > 2)"
    )
    done = invoke("settings", str(good), str(bad), *ONCE, "--yes", *python(script, "{config}"))
    assert done.exit_code == 1
    assert "these differences together make it fail: lr: 1 -> 3; fp8: false -> true" in done.stdout
    assert json.loads(good.read_text())["lr"] == 1


def test_commits(tmp_path: Path) -> None:
    def git(*arguments: str) -> None:
        subprocess.run(["git", "-C", str(tmp_path / "p"), "-c", "user.name=A", "-c", "user.email=a@b", *arguments], check=True, capture_output=True)  # fmt: skip

    (tmp_path / "p").mkdir()
    git("init", "-q", "-b", "main")
    for number in range(9):
        (tmp_path / "p" / "value").write_text(str(number))
        git("add", "value")
        git("commit", "-q", "-m", f"step {number}")
        git("tag", f"v{number}")
    script = "import sys; v = int(open('value').read()); sys.exit(125 if v == 4 else v >= 5)"
    done = invoke("commits", "--good", "v0", "--repository", str(tmp_path / "p"), "--rate", "0.9", "--noise", "0.001", "--yes", *python(script))  # fmt: skip
    assert "step 5" in done.stdout or "nothing more can be tried" in done.stdout
    assert (tmp_path / "p" / "value").read_text() == "8"
    listed = subprocess.run(["git", "-C", str(tmp_path / "p"), "worktree", "list"], check=True, capture_output=True)  # fmt: skip
    assert listed.stdout.count(b"\n") == 1


def test_figures_of_pairs_from_a_file(tmp_path: Path) -> None:
    rows = [f"n{a} n{b} {17.1 if 3 in (a, b) else 42.3}" for a in range(6) for b in range(a)]
    (tmp_path / "pairs.txt").write_text("\n".join(rows))
    done = invoke("pairs", str(tmp_path / "pairs.txt"))
    assert done.exit_code == 1
    assert "every path of host n3 is slow: 5 of 5 pairs across it are slow, 0 of 10" in done.stdout


def test_recorded_components_and_the_file_for_scripts(tmp_path: Path) -> None:
    recorded = Path(__file__).parents[2] / "data" / "component"
    done = invoke("component", "--read", str(recorded / "slow_rank"))
    assert done.exit_code == 1
    assert done.stdout.startswith("CARRIES  rank 1 on gpu-a17")
    assert invoke("component", "--write", str(tmp_path)).exit_code == 0
    assert isinstance(invoke("component", "--write", str(tmp_path)).exception, UsageError)


def test_components_of_a_script(tmp_path: Path) -> None:
    invoke("component", "--write", str(tmp_path))
    script = tmp_path / "train.py"
    script.write_text(
        "import time\nimport firstfault_component as component\n"
        "def batches():\n    while True:\n        time.sleep(0.04); yield 1\n"
        "for batch in component.watch(batches()):\n    time.sleep(0.004)\n"
    )
    os.environ["FIRSTFAULT_COMPONENT_STEPS"] = "8"
    done = invoke("component", "--variants", "synthetic_data", "--repeat", "1", "--yes", "--", sys.executable, str(script))  # fmt: skip
    del os.environ["FIRSTFAULT_COMPONENT_STEPS"]
    assert done.exit_code == 1
    assert "the input data takes" in done.stdout


def test_a_killed_experiment_goes_on_behind_its_last_trial(tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    script = f"import sys, time; open({str(ran)!r}, 'a').write(sys.argv[1] + '\\n'); time.sleep(0.3 if int(sys.argv[1]) < 20 else 60); sys.exit(int(sys.argv[1]) > 5)"
    argv = [sys.executable, "-m", "firstfault", "experiment", "sizes", "--good", "1", "--bad", "20", *ONCE, "--yes", *python(script, "{value}")]  # fmt: skip
    process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until = time.monotonic() + 90
    while time.monotonic() < until and (not ran.exists() or len(ran.read_text().split()) < 3):
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    with open_service(workers=False) as service:
        (stored,) = service.record.experiments.list()
        done_before = [t.subject[0] for t in stored.trials]
    assert stored.result is None
    assert len(done_before) >= 2
    begun = len(ran.read_text().split())
    resumed = invoke("resume", stored.id, "--yes")
    assert "value 5 works, 6 fails" in resumed.stdout
    again = ran.read_text().split()[begun:]
    assert not set(again) & set(done_before)
    assert invoke("resume", stored.id).exit_code == 1
    assert stored.id in invoke("list").stdout
