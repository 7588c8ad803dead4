"""What can a person do after Stop? Go on without reading twice, or have a verdict on what was read, which says so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.app.service.stopping import END, cut_small, start_and_stop, work, write_log

from firstfault.errors import UsageError
from firstfault.incidents.events import EventKind, Failed
from firstfault.incidents.records import TurnKind
from firstfault.investigation.diagnosis import Diagnosis
from firstfault.investigation.partial import is_partial
from firstfault.service import NamedPath, NewIncident, Service
from firstfault_tools.findings import Category, Confidence, Verdict
from firstfault_tools.log import executors
from firstfault_tools.log.digest import STOPPED


@pytest.fixture
def stoppable(idle_service: Service, monkeypatch: pytest.MonkeyPatch) -> Service:
    """A service whose readings are cut into small pieces; the tests do its workers' work."""
    cut_small(monkeypatch)
    return idle_service


def diagnose(service: Service, incident: str) -> Diagnosis:
    work(service)
    diagnosis = service.diagnosis(incident)
    assert diagnosis is not None
    return diagnosis


def count_scanned(patch: pytest.MonkeyPatch) -> list[int]:
    scanned: list[int] = []
    whole = executors.scan_batch

    def count(batch: Any, *more: Any) -> Any:
        scanned.append(executors.size_of(batch))
        return whole(batch, *more)

    patch.setattr(executors, "scan_batch", count)
    return scanned


def test_going_on_reads_nothing_twice_and_ends_as_one_reading(
    stoppable: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = [write_log(tmp_path, 0), write_log(tmp_path, 1, fault_at=3000)]
    size = sum(p.stat().st_size for p in logs)
    incident = start_and_stop(stoppable, *logs, at=0.7)
    kept = stoppable.read_so_far(incident)
    assert 0.5 * size < kept.size < 0.8 * size
    assert kept.files == 1
    stoppable.go_on(incident)
    scanned = count_scanned(monkeypatch)
    diagnosis = diagnose(stoppable, incident)
    assert sum(scanned) == size - kept.size
    other = stoppable.start(NewIncident(tuple(NamedPath(p) for p in logs)))
    assert diagnose(stoppable, other) == diagnosis
    assert not is_partial(diagnosis.input)
    assert stoppable.read_so_far(incident).size == 0, "nothing is kept when all is read"
    assert [t.kind for t in stoppable.turns(incident)] == [TurnKind.REPORT, TurnKind.GO_ON]


@pytest.mark.parametrize(
    ("faults", "at", "verdict", "left"),
    [
        ((-1,), 0.6, Verdict.UNKNOWN, ["rank_0.log"]),
        ((-1, -1), 0.8, Verdict.UNKNOWN, ["rank_1.log"]),
        ((-1, 3900), 0.8, Verdict.UNKNOWN, ["rank_1.log"]),
        ((900, -1, -1), 0.4, Verdict.FAULT, ["rank_1.log", "rank_2.log"]),
    ],
    ids=["well-so-far", "one-is-well", "fault-not-reached", "fault-reached"],
)
def test_a_verdict_on_what_was_read_says_what_it_lacks_and_is_never_healthy(
    stoppable: Service, tmp_path: Path, faults: tuple[int, ...], at: float, verdict: Verdict, left: list[str],
) -> None:  # fmt: skip
    logs = [write_log(tmp_path, rank, fault_at) for rank, fault_at in enumerate(faults)]
    incident = start_and_stop(stoppable, *logs, at=at)
    stoppable.diagnose_read(incident)
    with pytest.MonkeyPatch.context() as patch:
        scanned = count_scanned(patch)
        diagnosis = diagnose(stoppable, incident)
    assert not scanned, "nothing more is read"
    assert diagnosis.verdict is verdict
    assert diagnosis.confidence is not Confidence.CONFIRMED
    stopped = [s for s in diagnosis.input.skipped if s.why.startswith(STOPPED)]
    assert [s.what for s in stopped] == left
    assert "verdict on a part" in diagnosis.explanation
    assert all(name in diagnosis.explanation for name in left)
    if verdict is Verdict.FAULT:
        assert diagnosis.category is Category.ENVIRONMENT
        extent = diagnosis.measured
        assert extent is not None
        assert extent.since is not None
        late = [end for _, end in extent.silences if end > extent.since]
        assert not late, "nothing is told of logs that were not read"
    # the rest can still be read, and what was finished is not read again
    kept = stoppable.read_so_far(incident)
    assert kept.size
    stoppable.go_on(incident)
    with pytest.MonkeyPatch.context() as patch:
        scanned = count_scanned(patch)
        whole = diagnose(stoppable, incident)
    assert sum(scanned) == sum(p.stat().st_size for p in logs) - kept.size
    assert not is_partial(whole.input)
    assert whole.verdict is (Verdict.FAULT if max(faults) > 0 else Verdict.HEALTHY)


def test_nothing_finished_is_nothing_to_diagnose(stoppable: Service, tmp_path: Path) -> None:
    incident = start_and_stop(stoppable, write_log(tmp_path), at=0.0)
    assert stoppable.read_so_far(incident).size == 0
    with pytest.raises(UsageError, match="go on instead"):
        stoppable.diagnose_read(incident)


def test_a_file_that_changed_since_is_read_again(
    stoppable: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = write_log(tmp_path)
    incident = start_and_stop(stoppable, log, at=0.6)
    stoppable.diagnose_read(incident)
    given = stoppable.evidence(incident)[0].path
    given.chmod(0o600)
    given.write_text(log.read_text() + END.format(rank=0))
    assert stoppable.read_so_far(incident).size == 0
    work(stoppable)
    failed = [e.body for e in stoppable.events(incident) if e.kind is EventKind.ERROR]
    assert isinstance(failed[0], Failed)
    assert "a file has changed since" in failed[0].message
    stoppable.go_on(incident)
    scanned = count_scanned(monkeypatch)
    diagnose(stoppable, incident)
    assert sum(scanned) == given.stat().st_size


@pytest.mark.parametrize("how", ["again", "delete"])
def test_what_was_kept_goes(stoppable: Service, tmp_path: Path, how: str) -> None:
    incident = start_and_stop(stoppable, write_log(tmp_path), at=0.6)
    folder = stoppable.record.shelf.reading_of(incident)
    assert folder.is_dir()
    assert all(not p.stat().st_mode & 0o077 for p in folder.rglob("*"))
    if how == "again":
        stoppable.diagnose_again(incident)
    else:
        stoppable.delete(incident)
    assert not folder.exists()
