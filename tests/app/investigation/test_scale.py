"""Many ranks, many megabytes, many workers: the same diagnosis, and nothing lost."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from evals.log_generator import write_incident

from firstfault.intake.collect import collect_paths
from firstfault.investigation.examination import MAX_STEP_LOGS, choose_few
from firstfault.workspace import Workspace
from firstfault_tools.errors import InvalidParameter
from firstfault_tools.findings import Verdict
from firstfault_tools.log import executors, plan
from firstfault_tools.log.executors import Workers, merge_outcomes, scan_logs
from firstfault_tools.log.plan import describe_log, plan_logs

RANKS = 24
SIZE = 1_300_000


@cache
def workspace() -> Workspace:
    return Workspace(cache=None)


@pytest.fixture(scope="module")
def incident(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    """Logs of 24 ranks, more than is kept line by line, and the culprit's rank."""
    folder = tmp_path_factory.mktemp("scale") / "run"
    return folder, write_incident(folder, RANKS, SIZE)


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "PART_BYTES", 400_000)
    monkeypatch.setattr(plan, "BATCH_BYTES", 1_000_000)


def parts_of(folder: Path) -> list[plan.Part]:
    logs = [describe_log(p.name, p, p.read_bytes()[:65536]) for p in sorted(folder.glob("*.log"))]
    return plan_logs(logs)


def outline(scanned: executors.Scanned) -> dict[str, Any]:
    return {
        file: (
            digest.lines_total,
            list(digest.kept),
            digest.hits,
            digest.hit_counts,
            digest.conditions,
            digest.marked,
            digest.ranks,
        )
        for file, digest in scanned.digests.items()
    }


def test_first_fault_among_many_ranks(incident: tuple[Path, int]) -> None:
    folder, culprit = incident
    diagnosis = workspace().diagnose_paths([folder], "", Workers(1))
    assert diagnosis.verdict is Verdict.FAULT
    assert diagnosis.first_failing_rank == culprit
    assert diagnosis.signature == "cuda-out-of-memory" or "memory" in diagnosis.root_cause
    assert len(diagnosis.input.ranks_seen) == RANKS
    assert diagnosis.input.lines_total == sum(p.read_bytes().count(b"\n") for p in folder.iterdir())


def test_pool_and_one_process_agree(incident: tuple[Path, int]) -> None:
    folder, _ = incident
    one = workspace().diagnose_paths([folder], "", Workers(1)).to_json()
    assert workspace().diagnose_paths([folder], "", Workers(2)).to_json() == one


def test_dead_pool_process_loses_nothing(
    incident: tuple[Path, int], small_batches: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The operating system kills a scanning process: its part is scanned again."""
    parts = parts_of(incident[0])
    signatures = workspace().knowledge.signatures
    expected = outline(scan_logs(parts, signatures, Workers(1)))
    mark = tmp_path / "killed"
    monkeypatch.setattr(executors, "_work", KillOnce(mark, os.getpid()))
    assert outline(scan_logs(parts, signatures, Workers(2))) == expected
    assert mark.exists()


class KillOnce:
    """Scans a batch; the third one kills its process the first time."""

    def __init__(self, mark: Path, parent: int) -> None:
        self.mark, self.parent = mark, parent

    def __call__(self, batch: tuple[plan.Part, ...]) -> list[executors.Outcome]:
        if batch[0].name > "rank_13.log" and not self.mark.exists() and os.getpid() != self.parent:
            self.mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return executors.scan_batch(batch, executors._worker_signatures[0])


@pytest.fixture
def cluster() -> Iterator[Any]:
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(
        n_workers=2,
        threads_per_worker=1,
        processes=True,
        host="127.0.0.1",
        dashboard_address=None,
    ) as cluster:
        yield cluster


@pytest.mark.slow
def test_cluster_survives_the_death_of_a_worker(
    cluster: Any, incident: tuple[Path, int], small_batches: None
) -> None:
    """A worker is killed in the middle of the work: the same digests, in the same order."""
    parts = parts_of(incident[0])
    signatures = workspace().knowledge.signatures
    expected = outline(scan_logs(parts, signatures, Workers(1)))
    outcomes = executors._on_cluster(
        plan.pack_batches(parts), signatures, cluster.scheduler_address
    )
    seen = [next(outcomes), next(outcomes)]
    victim = next(iter(cluster.workers.values())).process.pid
    os.kill(victim, signal.SIGKILL)
    seen += outcomes
    assert outline(merge_outcomes(seen)) == expected
    assert len(seen) > 10


@pytest.mark.slow
def test_diagnosis_on_a_cluster_is_the_same(cluster: Any, incident: tuple[Path, int]) -> None:
    folder, _ = incident
    workers = Workers(cluster=cluster.scheduler_address)
    assert (
        workspace().diagnose_paths([folder], "", workers).to_json()
        == workspace().diagnose_paths([folder], "", Workers(1)).to_json()
    )


def test_absent_cluster_is_said(
    incident: tuple[Path, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executors, "CONNECT_SECONDS", 1)
    with pytest.raises(InvalidParameter, match="no Dask scheduler answers"):
        workspace().diagnose_paths([incident[0]], "", Workers(cluster="tcp://127.0.0.1:9"))


def test_file_that_vanishes_is_named(incident: tuple[Path, int], tmp_path: Path) -> None:
    path = tmp_path / "gone.log"
    path.write_text("step 1 loss: 2.0\n")
    log = describe_log("gone.log", path, b"step")
    path.unlink()
    scanned = scan_logs(plan_logs([log]), workspace().knowledge.signatures, Workers(1))
    assert scanned.digests == {}
    assert "No such file" in scanned.failed["gone.log"]


def test_budgets_shrink_with_the_number_of_logs() -> None:
    """What 4,096 logs may keep together stays far below a gigabyte."""
    budget = plan.share_budget(2_500_000, 4096 * 2_500_000, 4096)
    assert not budget.complete
    assert 4096 * (budget.head + budget.tail + budget.windows) < 200 * 1024 * 1024
    assert plan.share_budget(20_000_000, 20_000_000, 1).complete


def test_step_lines_are_judged_on_logs_spread_over_all(incident: tuple[Path, int]) -> None:
    digests = list(
        scan_logs(parts_of(incident[0]), workspace().knowledge.signatures, Workers(1))
        .digests.values()
    )  # fmt: skip
    assert choose_few(digests) == digests
    many = digests * 40
    few = choose_few(many)
    assert len(few) == MAX_STEP_LOGS
    assert few[0] is many[0]
    assert few[-1] is many[-1]


def test_growth_is_bounded_by_what_is_read(tmp_path: Path) -> None:
    """Kept text does not grow with the log."""
    from evals.log_generator import write_rank

    kept = []
    for size in (30_000_000, 60_000_000):
        path = tmp_path / f"{size}.log"
        write_rank(path, 0, size, 0, 5)
        collection = collect_paths([path], tmp_path / "spool")
        parts = plan_logs([describe_log("a", collection.artefacts[0].path, b"")])
        digest = scan_logs(parts, workspace().knowledge.signatures, Workers(1)).digests["a"]
        kept.append(digest.kept.bytes_total)  # type: ignore[attr-defined]
        path.unlink()
    assert kept[1] < kept[0] * 1.2
