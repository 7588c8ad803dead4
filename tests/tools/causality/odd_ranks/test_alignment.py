"""Who diverged: watchdog lines of several ranks laid beside each other."""

from __future__ import annotations

from pathlib import Path

import pytest

from firstfault_tools.causality.incident import LogIncident
from firstfault_tools.causality.odd_ranks.alignment import align_ranks
from firstfault_tools.findings import Category, Level
from firstfault_tools.log.scan import build_set, scan_file


def timeout(rank: int, seq: int, op: str = "ALLREDUCE", numel: int = 1024) -> str:
    return (
        f"[rank{rank}]:[E608 19:50:07.4 ProcessGroupNCCL.cpp:632] [Rank {rank}] Watchdog caught collective "
        f"operation timeout: WorkNCCL(SeqNum={seq}, OpType={op}, NumelIn={numel}, NumelOut={numel}, "
        "Timeout(ms)=600000) ran for 600082 milliseconds before timing out."
    )


def status(rank: int, enqueued: int, completed: int, seq: int | None = None) -> str:
    return (
        f"[rank{rank}]:[E608 19:50:07.9 ProcessGroupNCCL.cpp:2268] [PG ID 0 PG GUID 0(default_pg) Rank {rank}]  "
        f"failure detected by watchdog at work sequence id: {seq or completed + 1} PG status: last enqueued "
        f"work: {enqueued}, last completed work: {completed}"
    )


def incident(tmp_path: Path, *lines: str) -> LogIncident:
    path = tmp_path / "log.txt"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    signatures = build_set(())
    return LogIncident((scan_file(path, "log.txt", signatures),), signatures)


def test_equal_counters_mean_the_rank_never_entered(tmp_path: Path) -> None:
    lines = [timeout(r, 20) for r in (0, 2, 3)] + [status(r, 20, 19) for r in (0, 2, 3)]
    found = align_ranks(incident(tmp_path, *lines, status(1, 19, 19)))
    assert [(f.kind, f.rank, f.level) for f in found] == [
        ("collective.never_entered", 1, Level.FAILURE)
    ]


def test_another_size_at_the_same_sequence_number_is_a_mismatch(tmp_path: Path) -> None:
    lines = [timeout(r, 31, numel=64 if r == 2 else 4096) for r in (3, 0, 1, 2)]
    (found,) = align_ranks(incident(tmp_path, *lines))
    assert (found.kind, found.rank, found.category) == ("collective.mismatch", 2, Category.CODE_BUG)
    assert "64 elements" in found.title


def test_two_against_one_another_name_nobody(tmp_path: Path) -> None:
    (found,) = align_ranks(incident(tmp_path, timeout(0, 7, numel=1), timeout(1, 7, numel=2)))
    assert (found.kind, found.rank) == ("collective.mismatch", None)


def test_the_lagging_rank_is_odd_where_sizes_tie(tmp_path: Path) -> None:
    lines = [timeout(0, 7, numel=1), status(0, 12, 6), timeout(1, 7, numel=2), status(1, 7, 6)]
    (found,) = align_ranks(incident(tmp_path, *lines))
    assert found.rank == 1


def test_the_one_rank_that_did_not_report_is_missing(tmp_path: Path) -> None:
    lines = ["[rank4]: entering evaluation", *(timeout(r, 9) for r in (0, 1, 2, 3, 5, 6, 7))]
    (found,) = align_ranks(incident(tmp_path, *lines))
    assert (found.kind, found.rank) == ("collective.missing", 4)
    assert "entering evaluation" in found.title


def test_a_rank_that_still_counts_is_busy_and_not_dead(tmp_path: Path) -> None:
    waiting = [timeout(r, 9) for r in range(1, 8)]
    (found,) = align_ranks(
        incident(
            tmp_path, "rank0 INFO packing shard 10/500", *waiting, "rank0 INFO packing shard 90/500"
        )
    )
    assert (found.kind, found.rank) == ("collective.rank_busy", None)
    assert found.facts["busy_rank"] == 0
    assert "90/500" in found.title


def test_all_ranks_in_the_same_place_blame_nobody(tmp_path: Path) -> None:
    lines = [timeout(r, 9) for r in range(4)] + [status(r, 9, 8) for r in range(4)]
    (found,) = align_ranks(incident(tmp_path, *lines))
    assert (found.kind, found.rank, found.level) == ("collective.timeout", None, Level.SYMPTOM)


@pytest.mark.parametrize(
    "version", ["[E ProcessGroupNCCL.cpp:485] [Rank {r}]", "[rank{r}]:[E1 P.cpp:1] [Rank {r}]"]
)
def test_old_and_new_formats_are_read(tmp_path: Path, version: str) -> None:
    text = " Watchdog caught collective operation timeout: WorkNCCL(OpType=ALLREDUCE, Timeout(ms)=1800000) ran for 1802119 milliseconds before timing out."
    found = align_ranks(incident(tmp_path, *(version.format(r=r) + text for r in range(3))))
    assert [f.kind for f in found] == ["collective.timeout"]


def test_all_ranks_that_send_wait_for_each_other(tmp_path: Path) -> None:
    (found,) = align_ranks(incident(tmp_path, timeout(0, 3, "SEND"), timeout(1, 3, "SEND")))
    assert (found.kind, found.rank) == ("collective.one_sided", None)


def test_a_sender_beside_a_receiver_is_no_deadlock_of_order(tmp_path: Path) -> None:
    (found,) = align_ranks(incident(tmp_path, timeout(0, 3, "SEND"), timeout(1, 3, "RECV")))
    assert found.kind != "collective.one_sided"


def test_waits_of_hccl_are_laid_beside_each_other(tmp_path: Path) -> None:
    wait = "[rank{}]: EI0006: [PID: 7] 2024-08-05-18:15:21.270.506 Getting socket times out."
    found = align_ranks(incident(tmp_path, *(wait.format(r) for r in (1, 2, 3))))
    assert found
    assert "rank 0 did not report" in found[0].title


def test_a_rank_silent_since_it_saved_is_undecided_in_the_next_step(tmp_path: Path) -> None:
    lines = ["INFO Saving checkpoint to /ckpt/9", *(timeout(r, 9) for r in (1, 2, 3))]
    (found,) = align_ranks(incident(tmp_path, *lines))
    assert (found.category, found.rank) == (None, None)
    gathered = ["INFO Saving checkpoint to /ckpt/9", *(timeout(r, 9, "_ALLGATHER_BASE") for r in (1, 2, 3))]  # fmt: skip
    (found,) = align_ranks(incident(tmp_path, *gathered))
    assert (found.category, found.rank) == (Category.CHECKPOINT, 0)
