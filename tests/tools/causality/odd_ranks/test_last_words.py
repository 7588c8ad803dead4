"""Last words of a rank name the work that held it up; ordinary words name none."""

from __future__ import annotations

from pathlib import Path

from tests.rows import each_row

from firstfault.workspace import Workspace
from firstfault_tools.causality.odd_ranks.last_words import read_doing
from firstfault_tools.log.scan import make_line

WATCHDOG = (
    "[rank{rank}]:[E708 10:24:19.804713222 ProcessGroupNCCL.cpp:632] [Rank {rank}] Watchdog caught collective operation "
    "timeout: WorkNCCL(SeqNum=413, OpType=ALLREDUCE, NumelIn=660, NumelOut=660, Timeout(ms)=600000) ran for 600008 "
    "milliseconds before timing out.\n"
)


@each_row(
    ("text", "doing"),
    [
        ("[rank3] > /work/model/router.py(214)forward()", "debugger"),
        (
            "[rank3] WARNING: read of /data/web_1.bin failed: [Errno 5] Input/output error; next try in 60 s",
            "storage",
        ),
        ("[rank3] upload of checkpoint step 900 timed out, attempt 3", "checkpoint"),
        ("[rank3] waiting for lock of the extension build, torch_extensions/fused", "build"),
        ("[rank3] train iterator exhausted after 512 batches", "ended"),
        ("[rank3] step 88: train loader exhausted, entering evaluation", "ended"),
        ("[rank3] epoch 3 ended, averaging its metrics", "ended"),
        ("[rank3] router layers.4: expert mlp skipped, no tokens", "module"),
        ("[rank3] step 9: 3 calls of vision_model", "calls"),
        ("[rank3] starting validation stage", "validation"),
        ("[rank3] AUTOTUNE benchmarking takes 188 seconds", "autotune"),
        ("[rank3] not rank 0, skip saving the checkpoint", None),
        ("[rank3] step=5310, skipped=4, lr=[8.1e-05]", None),
        ("[rank3] saved checkpoint of step 900 in 4 s", None),
        ("[rank3] epoch 3 batch 20 loss 2.11", None),
        ("[rank3] layer 17: expert 43 received 6.2x the mean", None),
    ],
)
def test_doing(text: str, doing: str | None) -> None:
    found = read_doing([make_line("log", 1, text, 2026)])
    assert (found.name if found is not None else None) == doing


def test_words_in_the_rank_s_own_file_decide(tmp_path: Path) -> None:
    for rank in range(4):
        lines = "".join(f"[rank{rank}] step {step} loss 2.{step}\n" for step in range(1, 9))
        if rank == 2:
            lines += (
                "[rank2] WARNING: open of s3://tokens/shard-19.tar timed out, retrying (4 of 50)\n"
            )
        else:
            lines += WATCHDOG.format(rank=rank)
        (tmp_path / f"rank_{rank}.log").write_text(lines)
    diagnosis = Workspace().diagnose_paths(sorted(tmp_path.iterdir()))
    assert (diagnosis.category, diagnosis.first_failing_rank) == ("data", 2)
    assert "shard-19" in diagnosis.root_cause
