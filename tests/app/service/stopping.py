"""Readings that are stopped in the middle: logs of steps, small pieces, and a worker that is stopped at a share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from firstfault import reading
from firstfault.incidents.records import IncidentState
from firstfault.service import NamedPath, NewIncident, Service
from firstfault.worker import Worker
from firstfault_tools.log import plan, progress

PIECE = 32 * 1024
STEP = "[rank{rank}]: 2026-11-27 {hour:02d}:{minute:02d}:{second:02d} INFO step {step}/4000 loss {loss:.4f} grad_norm 0.97\n"
END = "[rank{rank}]: 2026-11-27 09:00:00 INFO Training finished after 4000 steps\n"
FULL = "[rank{rank}]: 2026-11-27 01:00:00 ERROR OSError: [Errno 28] No space left on device: '/ckpt/step_900.pt'\n"


def write_log(folder: Path, rank: int = 0, fault_at: int = -1, ends: bool = True) -> Path:
    """A log of 4,000 steps, 300 kB; fault_at: the step at which the disk is full, and it ends."""
    lines = []
    for step in range(4000):
        if step == fault_at:
            lines.append(FULL.format(rank=rank))
            break
        clock = {"hour": step // 3600, "minute": step // 60 % 60, "second": step % 60}
        lines.append(STEP.format(rank=rank, step=step, loss=2.4 - step / 4000, **clock))
    else:
        lines += [END.format(rank=rank)] if ends else []
    path = folder / f"rank_{rank}.log"
    path.write_text("".join(lines))
    return path


def cut_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Readings are cut into small pieces, all of them kept and told."""
    monkeypatch.setattr(plan, "PART_BYTES", PIECE)
    monkeypatch.setattr(plan, "BATCH_BYTES", PIECE)
    monkeypatch.setattr(progress, "TELL_SECONDS", 0.0)
    monkeypatch.setattr(reading, "SCAN_SECONDS", 0.0)
    monkeypatch.setattr(reading, "SCAN_SHARE", 0.0)
    monkeypatch.setattr(reading, "WORTH_KEEPING", 0)


def work(service: Service) -> None:
    Worker(service.record, service.workspace).run_once()


def start_and_stop(service: Service, *logs: Path, at: float) -> str:
    """An incident whose reading was stopped at a share of its bytes."""
    incident = service.start(NewIncident(tuple(NamedPath(p) for p in logs)))
    say = reading.ScanTeller.say

    def stop(teller: Any, now: progress.Scanning) -> None:
        if now.done >= at * now.total:
            service.stop(incident)
        say(teller, now)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading.ScanTeller, "say", stop)
        work(service)
    assert service.incident(incident).state is IncidentState.STOPPED
    assert service.diagnosis(incident) is None
    return incident
