"""Is the rank named that never entered the collective the others wait in, and only where one alone lags?"""

from __future__ import annotations

from pathlib import Path

import pytest

from firstfault.workspace import Workspace


def watchdog(rank: int, enqueued: int, group: int = 0) -> str:
    return (
        f"[rank{rank}]:[E1122 03:14:07.000000000 ProcessGroupNCCL.cpp:1785] [PG ID {group} PG GUID 0 Rank {rank}] Timeout at "
        f"NCCL work: {enqueued}, last enqueued NCCL work: {enqueued}, last completed NCCL work: 700."
    )


@pytest.mark.parametrize(
    ("enqueued", "late"),
    [
        ((811, 811, 809, 811), (2, 809, 811, 3)),
        ((811, 812, 809, 813), (2, 809, 811, 3)),
        ((811, 811, 811, 811), None),
        ((809, 811, 809, 811), None),
        ((809, 811), None),
    ],
)
def test_the_one_that_lags(
    enqueued: tuple[int, ...], late: tuple[int, ...] | None, tmp_path: Path
) -> None:
    log = tmp_path / "job.log"
    log.write_text("\n".join(watchdog(r, n) for r, n in enumerate(enqueued)) + "\n")
    found = Workspace().diagnose_paths([log]).straggler
    assert (found and (found.rank, found.enqueued, found.others, found.count)) == late
    assert found is None or (found.line.line, found.line.file) == (3, "job.log")
