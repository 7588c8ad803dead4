"""Is the health told, and do other people's incidents go on, while one run hangs or eats memory?

An answer is in time if the run still hangs when it has come. The fault is planted in a page's own worker
processes: a tool that never ends, or never stops asking for memory, on files of a certain name.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from evals.running_page import ROOT, free_port, run_page
from tests.app.ui.wire import draw

from firstfault.incidents.records import IncidentState
from firstfault.operations.health import serve_health
from firstfault.service import NewIncident, Service, Upload, open_service
from firstfault.settings import Settings, WorkerMode

OOM = b"[rank0]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
PATIENCE = 240.0
_PLANT = """
from firstfault_tools import whereabouts
told = whereabouts.note_place

def note_place(tool, file):
    told(tool, file)
    if "hangs" in file:
        for number in range(7, 8):
            while True:
                pass
    if "eats" in file:
        held = []
        for number in range(9, 10):
            while True:
                held.append(bytearray(1 << 24))

whereabouts.note_place = note_place
"""


def wait(until: Callable[[], bool]) -> None:
    limit = time.monotonic() + PATIENCE
    while not until():
        assert time.monotonic() < limit
        time.sleep(0.05)


def ask(url: str) -> None:
    """Return when the address has answered that it is well."""
    with urllib.request.urlopen(url, timeout=PATIENCE) as answer:
        assert answer.status == 200


def plant(folder: Path) -> Path:
    """A folder for the path of Python. The line in hand is told from frames of the tools alone, so it is named like them."""
    made = folder / "firstfault_tools_plant"
    made.mkdir()
    (made / "sitecustomize.py").write_text(_PLANT)
    return made


@contextmanager
def run_worker(variables: dict[str, str]) -> Iterator[None]:
    """`firstfault worker` as a process of its own."""
    command = [sys.executable, "-c", "from firstfault.cli import main; main()", "worker"]
    process = subprocess.Popen(command, env={**os.environ, **variables})
    try:
        yield
    finally:
        process.terminate()
        process.wait(timeout=60)


def give(service: Service, name: str) -> str:
    return service.start(NewIncident((Upload(name, OOM),)))


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_one_run_that_hangs_and_one_that_eats_memory_end_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(plant(tmp_path))
    settings = Settings(
        data=tmp_path, worker=WorkerMode.PROCESS, worker_threads=2, run_cpu_s=6, run_memory_mib=1536
    )  # type: ignore[call-arg]
    with open_service(settings) as service:
        server = serve_health(service.record, "127.0.0.1", 0)
        health = server.server_address[1]
        warm = give(service, "first.log")
        wait(lambda: service.incident(warm).state.is_final)
        hanging = give(service, "hangs.log")
        wait(lambda: service.incident(hanging).state is IncidentState.RUNNING)
        others = [give(service, f"other-{number}.log") for number in range(4)]
        for _ in others:
            ask(f"http://127.0.0.1:{health}/healthz")
        assert service.incident(hanging).state is IncidentState.RUNNING
        for other in others:
            wait(lambda other=other: service.incident(other).state.is_final)  # type: ignore[misc]
            assert service.incident(other).state is IncidentState.DONE
        wait(lambda: service.incident(hanging).state.is_final)
        eating = give(service, "eats.log")
        wait(lambda: service.incident(eating).state.is_final)
        last = give(service, "last.log")
        wait(lambda: service.incident(last).state.is_final)
        said = {i: str(service.events(i)[-1].body) for i in (hanging, eating)}
        assert service.incident(last).state is IncidentState.DONE
        server.shutdown()
    assert "could not analyse: the limit of 6 s of CPU" in said[hanging]
    assert "at hangs.log, line 7" in said[hanging]
    assert "could not analyse: the limit of 1536 MiB of memory was reached" in said[eating]
    assert "at eats.log, line 9" in said[eating]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_page_answers_while_its_workers_hang(tmp_path: Path) -> None:
    """Every worker of the page hangs; both addresses by which others watch it answer all the same."""
    port, health = free_port(), free_port()
    path = os.pathsep.join([str(plant(tmp_path)), str(ROOT / "app"), str(ROOT / "tools")])
    data = tmp_path / "data"
    data.mkdir()
    settings = Settings(data=data, worker=WorkerMode.EXTERNAL)  # type: ignore[call-arg]
    variables = {"PYTHONPATH": path, "FIRSTFAULT_WORKER_THREADS": "1"}
    with (
        run_page(data, port, **variables) as page,
        run_worker({**variables, "FIRSTFAULT_DATA": str(data), "FIRSTFAULT_HEALTH_PORT": str(health)}),
        open_service(settings) as service,
    ):  # fmt: skip
        draw(page)  # a page's workers start with its first visitor
        hanging = [give(service, f"hangs-{number}.log") for number in range(2)]
        for incident in hanging:
            wait(lambda i=incident: service.incident(i).state is IncidentState.RUNNING)  # type: ignore[misc]
        for url in (f"{page}/_stcore/health", f"http://127.0.0.1:{health}/healthz"):
            for _ in range(9):
                ask(url)
        assert {service.incident(i).state for i in hanging} == {IncidentState.RUNNING}
