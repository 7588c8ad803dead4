"""Do a page's own worker processes work, come back when killed, and go when the page goes?"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from firstfault.crew import environment_of
from firstfault.incidents.records import IncidentState
from firstfault.service import NewIncident, PastedText, open_service
from firstfault.settings import Settings, WorkerMode

OOM = "[rank0]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"


def make_settings(folder: Path) -> Settings:
    return Settings(data=folder, worker=WorkerMode.PROCESS, worker_threads=1, lease_seconds=1)  # type: ignore[call-arg]


def wait(until: Callable[[], bool], seconds: float = 60.0) -> None:
    limit = time.monotonic() + seconds
    while not until():
        assert time.monotonic() < limit
        time.sleep(0.05)


@pytest.mark.slow
def test_children_work_and_are_replaced(tmp_path: Path) -> None:
    with open_service(make_settings(tmp_path)) as service:
        crew = service._crew
        assert crew is not None
        wait(lambda: bool(crew.process_ids))
        first = crew.process_ids[0]
        os.kill(first, signal.SIGKILL)
        incident = service.start(NewIncident((PastedText(OOM),)))
        wait(lambda: service.incident(incident).state.is_final)
        assert service.incident(incident).state is IncidentState.DONE
        second = crew.process_ids[0]
        assert second != first
    wait(lambda: not psutil.pid_exists(second))


@pytest.mark.slow
def test_no_child_outlives_a_killed_page(tmp_path: Path) -> None:
    script = (
        "import time\n"
        "from firstfault.service import open_service\n"
        "s = open_service()\n"
        "while not s._crew.process_ids: time.sleep(0.05)\n"
        "print(s._crew.process_ids[0], flush=True)\n"
        "time.sleep(600)\n"
    )
    environment = environment_of(make_settings(tmp_path))
    page = subprocess.Popen(
        [sys.executable, "-c", script], env=environment, stdout=subprocess.PIPE, text=True
    )
    assert page.stdout is not None
    child = int(page.stdout.readline())
    assert psutil.pid_exists(child)
    page.kill()
    page.wait()
    wait(lambda: not psutil.pid_exists(child) or psutil.Process(child).status() == "zombie")


def test_a_child_reads_the_same_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings(data=tmp_path, lease_seconds=3, password="s", worker=WorkerMode.EXTERNAL)  # type: ignore[call-arg]
    for name, value in environment_of(settings).items():
        if name.startswith("FIRSTFAULT_"):
            monkeypatch.setenv(name, value)
    again = Settings()  # type: ignore[call-arg]
    assert again.database == settings.database
    assert again.lease_seconds == 3
    assert again.password.get_secret_value() == "s"
    assert again.worker is WorkerMode.EXTERNAL
