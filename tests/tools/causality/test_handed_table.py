"""Tables beside a log: the one that differs, all alike that should not be, a copy that stays behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from firstfault.workspace import Workspace

REPLAY = "replay,rank,host,loss,param_crc\n" + "".join(
    f"{n},{r},k{r // 2},{'1.9031' if r == 5 else '1.9027'},8f31\n" for n in (1, 2) for r in range(8)
)
LINKS = "host,device,LnkCap_width,LnkSta_width\n" + "".join(
    f"p{h},mlx5_{d},x16,{'x4' if (h, d) == (2, 1) else 'x16'}\n" for h in (1, 2) for d in range(4)
)
SAME = "step,rank,first_doc_id,local_loss\n" + "".join(
    f"{s},{r},web-{s},6.5{s}\n" for s in (100, 101) for r in range(4)
)
COPIES = "host,path,bytes\n" + "".join(
    f"w{h},/ssd/mix.bin,{990 if h == 3 else 1200}\n" for h in range(5)
)
PINGS = "peer,size,loss_pct\n" + "".join(
    f"z{h},{size},{100 if h == 2 and size > 1472 else 0}\n"
    for h in (1, 2, 3)
    for size in (64, 1472, 1473, 8972)
)
STALE = "step,trainer_version,rollout_version\n" + "".join(f"{n},{n},1\n" for n in range(1, 9))


@pytest.mark.parametrize(
    ("text", "kind", "rank", "host"),
    [
        (REPLAY, "table.odd_computation", 5, "k2"),
        (LINKS, "table.odd_link", None, "p2"),
        (SAME, "table.same_data", None, None),
        (COPIES, "table.cut_copy", None, "w3"),
        (PINGS, "table.size_limit", None, "z2"),
        (STALE, "table.stale_version", None, None),
    ],
)
def test_what_a_table_shows(
    text: str, kind: str, rank: int | None, host: str | None, tmp_path: Path
) -> None:
    path = tmp_path / "table.csv"
    path.write_text(text, encoding="utf-8")
    found = Workspace().diagnose_paths([path])
    assert (found.signature, found.first_failing_rank, found.host) == (kind, rank, host)


@pytest.mark.parametrize(
    "text",
    [
        REPLAY.replace("1.9031", "1.9027"),
        REPLAY.replace("2,5,k2,1.9031", "2,5,k2,1.9027"),
        LINKS.replace("x4", "x16"),
        COPIES.replace("990", "1200"),
        PINGS.replace(",100\n", ",0\n"),
        "step,rank,first_doc_id\n" + "".join(f"{s},{r},web-{s}-{r}\n" for s in (1, 2) for r in range(4)),
        STALE.replace(",1\n", ",2\n", 3).replace("8,8,1", "8,8,8"),
        "a,b\n1,2\n",
    ],
)  # fmt: skip
def test_no_table_is_blamed_that_agrees(text: str, tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text(text, encoding="utf-8")
    found = Workspace().diagnose_paths([path])
    assert not (found.signature or "").startswith("table.")


WATCHDOG = (
    "[rank%d]:[E1 ProcessGroupNCCL.cpp:607] [Rank %d] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=512, "
    "OpType=ALLREDUCE, NumelIn=4096, NumelOut=4096, Timeout(ms)=600000) ran for 600010 milliseconds before timing out.\n"
)
COUNTS = "rank n_examples\n" + "".join(f"{r} {880 if r == 2 else 900 + r}\n" for r in range(6))


@pytest.mark.parametrize(
    ("table", "told"),
    [
        (COUNTS, True),
        (COUNTS.replace("880", "900").replace("90", "70"), True),
        ("rank n_examples\n" + "".join(f"{r} 900\n" for r in range(6)), False),
    ],
)
def test_ranks_with_less_data(table: str, told: bool, tmp_path: Path) -> None:
    (tmp_path / "counts.txt").write_text(table, encoding="utf-8")
    (tmp_path / "run.log").write_text(
        "".join(WATCHDOG % (r, r) for r in (0, 1, 3, 4, 5)), encoding="utf-8"
    )
    found = Workspace().diagnose_paths([tmp_path / "run.log", tmp_path / "counts.txt"])
    assert ((found.signature or "") == "table.uneven_data") is told
