"""Does the log of another program tell what became of the file that a rank could not read, and of no other file?"""

from __future__ import annotations

from pathlib import Path

import pytest

from firstfault.workspace import Workspace

STEPS = "".join(
    f"2026-05-0{n} 10:00:00 [rank0] INFO step {n * 10} loss 2.{n}\n" for n in range(1, 5)
)
FAILED = """[rank3]: Traceback (most recent call last):
[rank3]:   File "/w/train.py", line 9, in read
[rank3]:     reader = pyarrow.parquet.ParquetFile(path)
[rank3]: FileNotFoundError: [Errno 2] No such file or directory: '/data/web/part-0117.parquet'
"""
CLEANED = (
    "2026-05-03T02:00:11 janitor INFO deleted /data/web/part-{name}.parquet (older than 30d)\n"
)
COPIED = 'May  3 02:00:11 rsync: write failed on "/data/web/part-{name}.parquet": No space left on device (28)\n'
KEPT = (
    "2026-05-03T02:00:11 janitor INFO dry-run: would have deleted /data/web/part-{name}.parquet\n"
)


@pytest.mark.parametrize(
    ("log", "name", "told"),
    [
        pytest.param(CLEANED, "0117", "part-0117.parquet was deleted (janitor.log)", id="a cleaner"),
        pytest.param(COPIED, "0117", "part-0117.parquet was not written to its end", id="a copy that failed"),
        pytest.param(CLEANED, "0118", "", id="another file"),
        pytest.param(KEPT, "0117", "", id="only tried"),
    ],
)  # fmt: skip
def test_what_became_of_the_file(tmp_path: Path, log: str, name: str, told: str) -> None:
    (tmp_path / "train.log").write_text(STEPS + FAILED, encoding="utf-8")
    (tmp_path / "janitor.log").write_text(log.format(name=name), encoding="utf-8")
    found = Workspace().diagnose_paths([tmp_path / "train.log", tmp_path / "janitor.log"])
    assert (found.signature == "data.file_lost") is bool(told), found.root_cause
    assert told in found.root_cause
    assert found.first_failing_rank == 3


def test_several_files_that_went_are_no_rank_s_own(tmp_path: Path) -> None:
    rows = "".join(CLEANED.format(name=n) for n in ("0117", "0118", "0119"))
    (tmp_path / "train.log").write_text(STEPS + FAILED, encoding="utf-8")
    (tmp_path / "janitor.log").write_text(rows, encoding="utf-8")
    found = Workspace().diagnose_paths([tmp_path / "train.log", tmp_path / "janitor.log"])
    assert "2 other files too" in found.root_cause
    assert found.first_failing_rank is None
