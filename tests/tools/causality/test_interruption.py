"""Did the run stand still before somebody stopped it, and did one rank stand elsewhere?"""

from __future__ import annotations

from pathlib import Path

import pytest

from firstfault_tools.causality.incident import LogIncident
from firstfault_tools.causality.interruption import read_interruption
from firstfault_tools.findings import Category, Level
from firstfault_tools.log.scan import build_set, scan_file


def incident(tmp_path: Path, *lines: str) -> LogIncident:
    path = tmp_path / "log.txt"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    signatures = build_set(())
    return LogIncident((scan_file(path, "log.txt", signatures),), signatures)


def steps(count: int = 12) -> list[str]:
    return [f"2026-03-04 10:00:{5 * i:02d} step {i} loss 1.{i}" for i in range(count)]


def stack(rank: int, file: str, line: int, at: str = "") -> list[str]:
    stamp = f"2026-03-04 {at} " if at else ""
    return [
        f"[rank{rank}]: Traceback (most recent call last):",
        f'[rank{rank}]:   File "/w/{file}", line {line}, in run',
        f"[rank{rank}]: {stamp}KeyboardInterrupt",
    ]


def test_nobody_stopped_it(tmp_path: Path) -> None:
    assert read_interruption(incident(tmp_path, *steps())) is None


@pytest.mark.parametrize(
    ("at", "level", "category", "words"),
    [
        ("10:00:58", Level.CAUSE, Category.SCHEDULER, "went on as before"),
        ("10:31:00", Level.SYMPTOM, None, "stood still before"),
        ("10:01:20", Level.SYMPTOM, None, "is not why"),
    ],
)
def test_the_pause_before_decides(
    tmp_path: Path, at: str, level: Level, category: Category | None, words: str
) -> None:
    stamped = [*steps(), f"2026-03-04 {at} [rank0]: Traceback (most recent call last):",
               f'2026-03-04 {at} [rank0]:   File "/w/train.py", line 3, in run',
               f"2026-03-04 {at} [rank0]: KeyboardInterrupt"]  # fmt: skip
    found = read_interruption(incident(tmp_path, *stamped))
    assert found is not None
    assert (found.level, found.category) == (level, category)
    assert words in found.title


def test_one_rank_elsewhere_holds_the_others_up(tmp_path: Path) -> None:
    lines = [row for r in (0, 1, 2, 4) for row in stack(r, "train.py", 80)]
    lines += stack(3, "dataset.py", 12)
    found = read_interruption(incident(tmp_path, *steps(), *lines))
    assert found is not None
    assert (found.rank, found.level, found.category) == (3, Level.FAILURE, Category.DATA)


def test_all_in_one_place_name_nobody(tmp_path: Path) -> None:
    lines = [row for r in range(4) for row in stack(r, "train.py", 80)]
    found = read_interruption(incident(tmp_path, *steps(), *lines))
    assert found is not None
    assert (found.rank, found.level) == (None, Level.SYMPTOM)
    assert "all 4 ranks" in found.title


def test_processes_that_did_not_answer_are_counted(tmp_path: Path) -> None:
    rows = [f"Unable to shutdown process {pid} via 2, forcefully exiting via 9" for pid in (7, 8)]
    found = read_interruption(incident(tmp_path, *steps(), *stack(0, "train.py", 3), *rows))
    assert found is not None
    assert "2 processes did not even answer" in found.title


def test_a_stop_that_was_got_over_is_none(tmp_path: Path) -> None:
    more = [f"2026-03-04 10:05:{i:02d} step {i} loss 1.{i}" for i in range(12, 20)]
    assert read_interruption(incident(tmp_path, *steps(), *stack(0, "train.py", 3), *more)) is None
