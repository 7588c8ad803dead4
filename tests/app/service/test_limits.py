"""Does a run that costs too much end in words that say where it was, and does the worker live on?"""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from firstfault.incidents.events import EventKind
from firstfault.incidents.record import Record
from firstfault.incidents.records import IncidentState
from firstfault.limits import NOTE_BYTES, OverLimit, bound_run, read_note
from firstfault.service import NewIncident, PastedText, Service
from firstfault.settings import Settings
from firstfault.worker import Worker
from firstfault.workspace import Workspace
from firstfault_tools.whereabouts import note_place

OOM = "[rank0]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
MakeSettings = Callable[..., Settings]


class Endless(Workspace):
    """Never comes to an end, by work or by waiting; swallows what is an Exception."""

    busy = True

    def diagnose_collection(self, *_: object) -> None:  # type: ignore[override]
        note_place("endless", "train.log")
        while True:
            try:
                if not self.busy:
                    time.sleep(5)
            except Exception:  # noqa: BLE001 (what a careless tool does)
                continue


@pytest.mark.parametrize("busy", [True, False])
def test_a_run_over_its_limit_ends_and_says_where(
    idle_service: Service, make_settings: MakeSettings, busy: bool
) -> None:
    record = Record(
        make_settings(**{"run_cpu_s" if busy else "run_wall_s": 0.3}), idle_service.record.database
    )
    workspace = Endless()
    workspace.busy = busy
    assert (
        workspace.knowledge.signatures
    )  # made before the run, whose limit is shorter than that takes
    incident = idle_service.start(NewIncident((PastedText(OOM),)))
    assert Worker(record, workspace).run_once()
    assert idle_service.incident(incident).state is IncidentState.FAILED
    said = str(idle_service.events(incident)[-1].body)
    assert "could not analyse: the limit of 0.3 s" in said
    assert "in endless, at train.log" in said
    # the same worker's next run is not touched by it
    other = idle_service.start(NewIncident((PastedText(OOM),)))
    assert Worker(idle_service.record, Workspace()).run_once()
    assert idle_service.events(other)[-1].kind is EventKind.DONE


def test_a_run_that_killed_two_workers_is_given_up_and_says_where(
    idle_service: Service, make_settings: MakeSettings
) -> None:
    record = Record(make_settings(lease_seconds=0.05), idle_service.record.database)
    incident = idle_service.start(NewIncident((PastedText(OOM),)))
    for _ in range(record.settings.max_attempts):
        run = record.queue.claim("dies")
        assert run is not None
        note = record.queue.note_of(run.id)
        assert note is not None
        child = os.fork()
        if child == 0:
            with bound_run(record.settings, note):
                note_place("reader pickles", "dump_3")
                os.kill(os.getpid(), 9)
        os.waitpid(child, 0)
        time.sleep(0.1)
    assert record.queue.claim("next") is None
    said = str(idle_service.events(incident)[-1].body)
    assert record.settings.max_attempts == 2
    assert "2 workers died on this input in reader pickles, at dump_3" in said


def test_the_line_in_hand_is_said(tmp_path: Path) -> None:
    settings = Settings(data=tmp_path, run_cpu_s=0.2)  # type: ignore[call-arg]
    source = (
        "def look(lines):\n for number, text in enumerate(lines, 1):\n  while number == 7: pass\n"
    )
    folder = tmp_path / "firstfault_tools"
    folder.mkdir()
    (folder / "made_up.py").write_text(source)
    look = runpy.run_path(str(folder / "made_up.py"))["look"]

    def run() -> None:
        with bound_run(settings, tmp_path / "runs" / "run-1"):
            note_place("made_up", "a.log")
            look(["x"] * 9)

    with pytest.raises(OverLimit, match=r"in made_up, at a\.log, line 7"):
        run()


def test_a_note_is_short_and_goes_with_its_run(tmp_path: Path) -> None:
    settings, note = Settings(data=tmp_path), tmp_path / "runs" / "run-1"  # type: ignore[call-arg]
    with bound_run(settings, note):
        note_place("tool", "é" * 4_000)
        assert note.stat().st_size == NOTE_BYTES
        assert note.stat().st_mode & 0o777 == 0o600
        note_place("other", "b.log")
        assert read_note(note) == " in other, at b.log"
    assert not note.exists()


COUNTS = """
import resource, signal
from firstfault.limits import read_cpu_time
limit = int(read_cpu_time()) + 1
told = []
signal.signal(signal.SIGXCPU, lambda *_: told.append(read_cpu_time()))
resource.setrlimit(resource.RLIMIT_CPU, (limit, -1))
while not told:
    sum(range(1_000))
print(told[0] - limit)
"""


def test_the_limit_of_the_system_is_met_by_the_clock_that_it_is_set_with() -> None:
    done = subprocess.run(
        [sys.executable, "-c", COUNTS], capture_output=True, text=True, check=True, timeout=60
    )
    assert 0 <= float(done.stdout) < 0.1
