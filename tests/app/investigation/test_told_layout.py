"""The layout that a person states gives the rank that the evidence alone leaves open."""

from __future__ import annotations

from pathlib import Path

import pytest

from firstfault.workspace import Workspace

COLUMNS = (
    "index, clocks.current.sm [MHz], temperature.gpu, clocks_event_reasons.hw_thermal_slowdown\n"
)
ROWS = "".join(
    f"{i}, {750 if i == 5 else 1980} MHz, {90 if i == 5 else 60}, {'Active' if i == 5 else 'Not Active'}\n"
    for i in range(8)
)


@pytest.fixture(scope="module")
def workspace() -> Workspace:
    return Workspace()


@pytest.mark.parametrize(
    ("question", "rank"),
    [
        ("Slow. Ranks 0-7 on gx-r01, 8-15 on gx-r02.", 13),
        ("Slow. 8 ranks per node; gx-r01 is node 0, gx-r02 is node 1.", 13),
        ("Slow. 8 ranks per node.", None),
        ("Why is it slow?", None),
    ],
)
def test_rank_by_the_words_of_the_question(
    question: str, rank: int | None, workspace: Workspace, tmp_path: Path
) -> None:
    path = tmp_path / "gpu_gx-r02.csv"
    path.write_text(COLUMNS + ROWS, encoding="utf-8")
    found = workspace.diagnose_paths([path], question=question)
    assert (found.host, found.gpu) == ("gx-r02", "GPU 5")
    assert found.first_failing_rank == rank
