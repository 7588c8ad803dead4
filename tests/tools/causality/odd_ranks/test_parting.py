"""One rank leaves the loop while the others go on, and logs in which nobody does."""

from __future__ import annotations

from pathlib import Path

import pytest

from firstfault_tools.causality.incident import LogIncident
from firstfault_tools.causality.odd_ranks.parting import find_in_incident
from firstfault_tools.finding_roles import FindingRole
from firstfault_tools.findings import Category, Evidence, Finding, Level
from firstfault_tools.log.scan import build_set, scan_file

WAITED = Finding(
    "signature.watchdog", "x", Level.SYMPTOM, Category.COMMUNICATION, evidence=(Evidence("log.txt", 99, "x"),)
)  # fmt: skip
RAISED = Finding("traceback.unhandled", "x", Level.FAILURE, Category.CODE_BUG)


WATCHDOG = (
    "[rank{rank}]:[E1128 14:00:36.699828160 ProcessGroupNCCL.cpp:689] [Rank {rank}] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=14, OpType={op}, NumelIn={count}, NumelOut={count}, Timeout(ms)=20000) ran for 20067 milliseconds before timing out."
)


def incident(tmp_path: Path, *lines: str) -> LogIncident:
    path = tmp_path / "log.txt"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    signatures = build_set(())
    return LogIncident((scan_file(path, "log.txt", signatures),), signatures)


PARTED = {
    "early stop": (
        ["[rank0] epoch 3", "[rank1] epoch 3", "[rank0] early stopping after epoch 3", "[rank1] epoch 4"],
        "ranks.parted", 0, Category.CODE_BUG,
    ),
    "out of data": (
        ["[rank0] step 90", "[rank1] step 90", "[rank1] dataloader exhausted", "[rank0] step 91"],
        "ranks.parted", 1, Category.DATA,
    ),
    "skipped a batch": (
        ["[rank0] step 7", "[rank1] step 7", "[rank0] skipping batch, loss is not finite", "[rank1] step 8"],
        "ranks.parted", 0, Category.CODE_BUG,
    ),
    "one stays": (
        ["[rank0] epoch 2 best", "[rank1] epoch 2 new best, saving model", "[rank2] epoch 2 new best, saving model", "[rank0] epoch 3"],
        "ranks.parted", None, Category.CODE_BUG,
    ),
    "stops, and waits behind the loop": (
        [
            "[rank0] step 3", "[rank1] step 3", "[rank0] early stopping: no improvement for 3 evaluations, training finished",
            WATCHDOG.format(rank=1, op="BROADCAST", count=32), WATCHDOG.format(rank=0, op="ALLREDUCE", count=1),
        ],
        "ranks.parted", 0, Category.CODE_BUG,
    ),
    "counts apart": (
        ["Rank 0: 40 batches", "Rank 1: 40 batches", "Rank 2: 36 batches"],
        "ranks.apart", 2, Category.DATA,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PARTED)
def test_ranks_that_part(tmp_path: Path, name: str) -> None:
    lines, kind, rank, category = PARTED[name]
    (found,) = find_in_incident(incident(tmp_path, *lines), [WAITED])
    assert (found.kind, found.rank, found.category) == (kind, rank, category)


TOGETHER = {
    "all wait behind the loop": [
        "[rank0] step 3", "[rank1] step 3", "[rank0] early stopping: no improvement",
        WATCHDOG.format(rank=1, op="ALLREDUCE", count=1), WATCHDOG.format(rank=0, op="ALLREDUCE", count=1),
    ],
    "all stop": ["[rank0] epoch 3", "[rank1] epoch 3", "[rank0] early stopping", "[rank1] early stopping"],
    "main rank alone logs": ["[rank0] epoch 3", "[rank0] early stopping", "[rank1] waiting"],
    "nobody goes further": ["[rank0] step 9", "[rank1] step 9", "[rank0] training finished", "[rank1] step 9"],
    "one behind by a print": ["Rank 0: step 41", "Rank 1: step 41", "Rank 2: step 40"],
}  # fmt: skip


@pytest.mark.parametrize("name", TOGETHER)
def test_ranks_that_stay_together(tmp_path: Path, name: str) -> None:
    assert find_in_incident(incident(tmp_path, *TOGETHER[name]), [WAITED]) == []


@pytest.mark.parametrize("findings", [[], [WAITED, RAISED]])
def test_only_where_all_waited(tmp_path: Path, findings: list[Finding]) -> None:
    lines = PARTED["early stop"][0]
    assert find_in_incident(incident(tmp_path, *lines), findings) == []


@pytest.mark.parametrize(
    ("line", "alone"),
    [
        ("Evaluating predictions with official COCO API...", True),
        ("Evaluate in main process...", True),
        ("step 10 loss 2.1", False),
        ("NCCL INFO Connected all rings", False),
    ],
)
def test_work_of_one_process(tmp_path: Path, line: str, alone: bool) -> None:
    wait = Finding(
        "signature.gloo-timeout", "x", Level.SYMPTOM, Category.COMMUNICATION, evidence=(Evidence("log.txt", 2, "x"),),
        roles=frozenset({FindingRole.CONSEQUENCE}),
    )  # fmt: skip
    found = find_in_incident(incident(tmp_path, line, "Timed out waiting"), [wait])
    assert bool(found) is alone


def test_a_finding_of_a_dump_is_no_line_of_a_log(tmp_path: Path) -> None:
    """The first finding may stand in a file that is no log (L1 of the security review)."""
    dumped = Finding(
        "stalled", "x", Level.SYMPTOM, Category.COMMUNICATION, evidence=(Evidence("fr_rank_0", 3, "x"),)
    )  # fmt: skip
    lines = PARTED["early stop"][0]
    assert isinstance(find_in_incident(incident(tmp_path, *lines), [dumped, WAITED]), (list, tuple))
