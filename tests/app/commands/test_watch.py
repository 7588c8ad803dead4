"""Does `firstfault watch` follow, alert once, survive rotation and end with the right code?"""

import http.server
import json
import re
import shutil
import threading
from pathlib import Path

import pytest
from click.testing import CliRunner
from evals.cases import find_case
from tests.conftest import ROOT
from tests.rows import each_row
from tests.seeds.run_logs import write_log

from firstfault.commands import watch
from firstfault.commands._following import Follower
from firstfault.commands.watch import COMMAND
from firstfault.errors import InputUnreadable, UsageError
from firstfault.service import open_service


def line(step: int, loss: str = "2.0000") -> str:
    return f"step {step} | loss {loss} | grad_norm 1.0 | step_time 100.0ms\n"


def sick() -> str:
    return "".join(line(s, "2.0" if s < 40 else "nan") for s in range(60))


def test_stdin_to_the_end() -> None:
    done = CliRunner().invoke(COMMAND, ["-"], input=sick())
    assert done.exit_code == 1
    assert done.output.count("metrics.nan_loss") == 1
    assert "step 40" in done.output
    assert re.search(r"\[stdin:\d+,\d+\]", done.output), "the line with the NaN is named, too"
    well = CliRunner().invoke(COMMAND, ["-"], input="".join(line(s) for s in range(60)))
    assert (well.exit_code, well.output) == (0, "")


def test_file_with_json_and_baseline(tmp_path: Path) -> None:
    log, good = tmp_path / "run.log", tmp_path / "good.log"
    log.write_text("".join(line(s, f"{2.0 + (s > 50) * 0.9:.3f}") for s in range(1, 100)))
    good.write_text("".join(line(s) for s in range(1, 100)))
    done = CliRunner().invoke(
        COMMAND, [str(log), "--json", "--until-idle", "0.1", "--baseline", str(good)]
    )
    alerts = [json.loads(text) for text in done.output.splitlines()]
    assert done.exit_code == 1
    assert alerts[0]["schema"] == "firstfault.alert/1"
    assert "metrics.baseline_loss" in {a["kind"] for a in alerts}


def test_webhook_gets_the_alert_and_its_failure_is_survived(tmp_path: Path) -> None:
    bodies = []

    class Receiver(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Keep the test quiet."""

    server = http.server.HTTPServer(("127.0.0.1", 0), Receiver)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        address = f"http://127.0.0.1:{server.server_port}/hook"
        done = CliRunner().invoke(COMMAND, ["-", "--webhook", address], input=sick())
        assert done.exit_code == 1
        assert "metrics.nan_loss" in [b["kind"] for b in bodies]
    finally:
        server.shutdown()
        server.server_close()
    dead = CliRunner().invoke(COMMAND, ["-", "--webhook", address], input=sick())
    assert dead.exit_code == 1
    assert "metrics.nan_loss" in dead.output


def test_usage_errors(tmp_path: Path) -> None:
    empty = tmp_path / "empty.log"
    empty.write_text("hello\n")
    for arguments in (
        ["-", "--webhook", "file:///etc/passwd"],
        ["-", "--baseline", str(empty)],
        ["-", str(empty)],
        ["-", "--capture", ""],
        [str(empty), "--capture", "--only nosuch"],
        [str(empty), "--capture", "'"],
    ):
        done = CliRunner().invoke(COMMAND, arguments, input="")
        code = (
            done.exception.exit_code if isinstance(done.exception, UsageError) else done.exit_code
        )
        assert code == 2, arguments
    for path in (tmp_path / "none.log", Path("/dev/null")):
        unread = CliRunner().invoke(COMMAND, [str(path)])
        assert isinstance(unread.exception, InputUnreadable)


def test_what_leaves_for_a_webhook_is_redacted(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[dict[str, object]] = []
    monkeypatch.setattr(watch, "post_alert", lambda _url, body: sent.append(body))
    log = sick().replace("step_time", "WANDB_API_KEY=" + "0a1b" * 10 + " step_time").encode()
    done = CliRunner().invoke(
        COMMAND, ["-", "--json", "--webhook", "http://127.0.0.1:9/"], input=b"\xff\n" + log
    )
    assert done.exit_code == 1
    assert sent
    for text in (json.dumps(sent), done.output):
        assert "0a1b0a1b" not in text
        assert "<redacted:tracker_key>" in text


def test_follower_survives_growth_truncation_and_rotation(tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    log.write_bytes(b"one\ntw")
    follower = Follower(str(log), from_start=True)
    assert list(follower.read()) == ["one"]
    with log.open("ab") as stream:
        stream.write(b"o\r\nthree\n")
    assert list(follower.read()) == ["two", "three"]
    log.rename(tmp_path / "run.log.1")
    assert list(follower.read()) == []
    log.write_bytes(b"four\n")
    assert list(follower.read()) == ["four"]
    log.write_bytes(b"5\n")
    assert list(follower.read()) == ["5"]
    with log.open("ab") as stream:
        stream.write(b"x" * 300_000)
    assert list(follower.read()) == []
    assert len(follower.rest) <= 64 * 1024
    follower.close()


def test_from_end_skips_what_was_there(tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    log.write_text(sick())
    follower = Follower(str(log), from_start=False)
    assert list(follower.read()) == []
    follower.close()


FIRST_FAULT = find_case("public-comm-27-per-rank-continue-skips-backward") / "log.txt"


@each_row("stream", [True, False])
def test_the_first_fault_is_told_with_the_verdict_and_what_to_do(stream: bool) -> None:
    text = FIRST_FAULT.read_text(encoding="utf-8")
    arguments = ["-"] if stream else [str(FIRST_FAULT), "--once"]
    done = CliRunner().invoke(COMMAND, [*arguments, "--json"], input=text if stream else "")
    assert done.exit_code == 1
    alert = json.loads(done.output.splitlines()[0])
    assert (alert["kind"], alert["rank"]) == ("fault", 5)
    assert alert["title"].startswith("Rank 5 skipped a batch")
    assert alert["evidence"][0]["line"] == 3
    assert alert["next"]["command"]


def test_metrics_only_leaves_the_rest_of_the_log_alone() -> None:
    text = FIRST_FAULT.read_text(encoding="utf-8")
    done = CliRunner().invoke(COMMAND, ["-", "--metrics-only", "--json"], input=text)
    assert '"kind": "fault"' not in done.output


def test_an_incident_is_opened_from_a_file_only(tmp_path: Path) -> None:
    assert CliRunner().invoke(COMMAND, ["-", "--open-incident"], input="").exit_code == 2
    log = tmp_path / "train.log"
    log.write_text(FIRST_FAULT.read_text(encoding="utf-8"), encoding="utf-8")
    done = CliRunner().invoke(COMMAND, [str(log), "--once", "--open-incident", "--json"])
    assert len(json.loads(done.output.splitlines()[0])["incident"]) >= 16


def test_logs_of_many_ranks_are_told_of_once(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    for rank in range(4):
        (logs / f"rank_{rank}.log").write_text(sick())
    done = CliRunner().invoke(COMMAND, [str(logs), "--until-idle", "0.1", "--json"])
    alerts = [json.loads(text) for text in done.output.splitlines()]
    assert [a["kind"] for a in alerts].count("metrics.nan_loss") == 1


def test_a_rank_that_falls_silent_is_captured_put_on_record_and_diagnosed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ranks write while they are watched; rank 2 stops first, and the capture shows where it stands."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FIRSTFAULT_DATA", str(tmp_path / "data"))
    logs = tmp_path / "logs"
    logs.mkdir()
    over = threading.Event()

    def write() -> None:
        for step in range(10_000):
            for rank in range(4):
                if rank != 2 or step < 20:
                    with (logs / f"rank_{rank}.log").open("a") as stream:
                        stream.write(line(step))
            if over.wait(0.05):
                return

    stacks = ROOT / "tests" / "data" / "hung_run" / "gpu-a17"

    def capture(_job: object) -> Path:
        shutil.copytree(stacks, tmp_path / "triage" / "captured" / "gpu-a17")
        return tmp_path / "triage"

    monkeypatch.setattr("firstfault.commands.triage.take_capture", capture)
    writer = threading.Thread(target=write)
    writer.start()
    try:
        done = CliRunner().invoke(
            COMMAND, [str(logs), "--once", "--stall-after", "3", "--capture", "", "--json"]
        )
    finally:
        over.set()
        writer.join()
    alert, verdict = (json.loads(text) for text in done.stdout.splitlines())
    assert done.exit_code == 1
    assert (alert["kind"], alert["rank"]) == ("metrics.stalled", 2)
    assert "3 others go on" in alert["title"]
    assert (verdict["kind"], verdict["incident"]) == ("verdict", alert["incident"])
    assert verdict["capture"] == str(tmp_path / "triage")
    with open_service(workers=False) as service:
        names = {file.name for file in service.evidence(alert["incident"])}
    assert {"rank_2.log", "gpu-a17/rank1-stacks.txt"} <= {n.removeprefix("logs/") for n in names}
    assert "read_next_shard" in verdict["title"]


def test_a_job_that_ended_is_not_silent(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    end = "{'train_runtime': 812.1, 'train_samples_per_second': 9.8, 'train_steps_per_second': 0.61, 'train_loss': 1.91, 'epoch': 3.0}"
    log.write_text(
        write_log({"form": "hugging face", "steps": [10, 500, 10], "tail": end}), encoding="utf-8"
    )
    done = CliRunner().invoke(COMMAND, [str(log), "--stall-after", "0.1"])
    assert done.exit_code == 0
    assert "ended: " in done.stderr
