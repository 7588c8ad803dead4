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
STALE = "step,trainer_version,rollout_version\n" + "".join(f"{n},{n},1\n" for n in range(1, 9))


@pytest.mark.parametrize(
    ("text", "kind", "rank", "host"),
    [
        (REPLAY, "table.odd_computation", 5, "k2"),
        (LINKS, "table.odd_link", None, "p2"),
        (SAME, "table.same_data", None, None),
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
