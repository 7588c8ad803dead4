"""Verdict, category and rank of small incidents, each a kind that is easily mistaken for another."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from firstfault.workspace import Workspace
from firstfault_tools.findings import Verdict
from firstfault_tools.knowledge.pack import read_yaml

FOLDER = Path(__file__).parent / "verdicts"
ROWS = [
    pytest.param(row, id=f"{file.stem}-{row['id']}")
    for file in sorted(FOLDER.glob("*.yaml"))
    for row in read_yaml(file.read_text(encoding="utf-8"))
]


@pytest.fixture(scope="module")
def workspace() -> Workspace:
    return Workspace()


@pytest.mark.parametrize("row", ROWS)
def test_verdict(row: dict[str, Any], workspace: Workspace, tmp_path: Path) -> None:
    paths = []
    for name, text in row["logs"].items():
        (tmp_path / name).write_text(text, encoding="utf-8")
        paths.append(tmp_path / name)
    found = workspace.diagnose_paths(paths, row.get("question", ""))
    said = f"{found.verdict} {found.category} rank {found.first_failing_rank}: {found.root_cause}"
    assert found.verdict.value in row["verdict"], said
    if "category" in row:
        assert found.category in row["category"], said
    if "said" in row:
        assert re.search(row["said"], found.root_cause), said
    if "rank" in row:
        assert found.first_failing_rank == row["rank"], said
    if found.verdict is Verdict.UNKNOWN:
        assert found.next_artefacts, said
        assert not any("{" in a.what + a.why for a in found.next_artefacts)
    if found.verdict is Verdict.HEALTHY:
        assert (found.category, found.fixes) == (None, ())


def test_a_slow_down_without_a_baseline_stays_open(workspace: Workspace, tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    path.write_text("".join(f"step {i} loss 1.{99 - i}\n" for i in range(10, 30)), encoding="utf-8")
    even = workspace.diagnose_paths([path], "Is this run still fine?")
    asked = workspace.diagnose_paths([path], "The run is slower than yesterday. Why?")
    assert (even.verdict, asked.verdict) == (Verdict.HEALTHY, Verdict.UNKNOWN)
    assert "compare" in asked.explanation


def test_an_open_verdict_names_what_would_decide_it(workspace: Workspace, tmp_path: Path) -> None:
    path = tmp_path / "node1.log"
    lines = [f"n1 [rank4] step {i} loss 2.{i}" for i in range(10, 20)]
    lines += [
        f"n1 [rank{r}]:[W304 10:01:1{r}.602118299 TCPStore.cpp:125] [c10d] recvValue failed on "
        f"SocketImpl(fd=64, addr=[n1]:471{r}, remote=[n0]:29400): failed to recv, got 0 bytes"
        for r in (4, 5, 6, 7)
    ]
    lines += [
        "n1 [rank4]:[E304 10:01:34.4 ProcessGroupNCCL.cpp:2068] [PG ID 0 PG GUID 0(default_pg) Rank 4] Process "
        "group watchdog thread terminated with exception: NCCL error: remote process exited or there was a network error"
    ]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    found = workspace.diagnose_paths([path])
    assert found.verdict is Verdict.UNKNOWN
    assert "n0" in found.root_cause
    assert "ranks 0-3" in found.root_cause
    assert any("n0" in a.what for a in found.next_artefacts)
