"""A rank that is missing since it still saves: sizes and seconds it printed, or the clock between its parts."""

from __future__ import annotations

from pathlib import Path

import pytest

from firstfault.workspace import Workspace

HEAD = "2026-10-20 13:58:10 [rank0] saving checkpoint to /nfs/ckpt/step500\n"
WAITED = "".join(
    f"[rank{r}]:[E1020 14:28:12.33{r} ProcessGroupNCCL.cpp:632] [Rank {r}] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=8812, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=1800000) ran for 1800021 milliseconds "
    "before timing out.\n"
    for r in (1, 2, 3)
)


def parts(done: int, whole: int, words: str, minutes: int) -> str:
    return "".join(
        f"2026-10-20 14:{2 + n * minutes:02d}:11 [rank0] wrote shard {n + 1}/{whole}{words}\n"
        for n in range(done)
    )


@pytest.mark.parametrize(
    ("said", "leads", "rate"),
    [
        (parts(6, 14, " (1043 MB) in 241.0 s", 4), True, "4.3 MB/s"),
        (parts(6, 14, "", 4), True, "s a part"),
        (parts(6, 14, " (104 GB) in 241.0 s", 4), False, ""),
        (parts(6, 6, " (1043 MB) in 241.0 s", 4), False, ""),
        (parts(6, 14, " (1043 MB) in 0.9 s", 0), False, ""),
    ],
)
def test_still_writing(tmp_path: Path, said: str, leads: bool, rate: str) -> None:
    (tmp_path / "train.log").write_text(HEAD + said + WAITED)
    found = Workspace().diagnose_paths([tmp_path / "train.log"]).to_json()
    assert (found["signature"] == "storage.slow_save") is leads, found["root_cause"]
    assert rate in found["root_cause"]
    assert found["first_failing_rank"] == 0
