"""Healthy needs a proof: a table of situations, and text that does no harm never makes one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from firstfault.intake.collect import collect_paths
from firstfault.investigation.examination import examine
from firstfault.investigation.health import prove_health
from firstfault.workspace import Workspace
from firstfault_tools.findings import Verdict
from firstfault_tools.knowledge.pack import read_yaml

TABLE = read_yaml((Path(__file__).parent / "health" / "table.yaml").read_text(encoding="utf-8"))  # fmt: skip
ROWS = [pytest.param(row, id=row["id"]) for row in TABLE["rows"]]
BENIGN = (
    "2026-03-01 11:00:00 INFO saved checkpoint to /ckpt/step_40",
    "INFO all good, nothing to report",
    "0 errors, 0 warnings",
    "# Out of bounds values : 0 OK",
    "# Avg bus bandwidth    : 345.27",
    "[runner] step 'upload' finished",
    "Successful task run with exit code: 0",
    "lorem ipsum dolor sit amet",
    "",
    "NCCL INFO NET/Plugin: No plugin found (libnccl-net.so), using internal implementation",
    "GPU 0: NVIDIA H100 80GB HBM3, 61 C, 98 %",
)


@pytest.fixture(scope="module")
def workspace() -> Workspace:
    return Workspace()


def write_part(name: str) -> str:
    part = TABLE["parts"][name]
    if "text" in part:
        return str(part["text"]) + "\n"
    lines = (
        part["line"].format(n=n, m=n * 10 // 60, s=n * 10 % 60, x=3.0 - n / 40)
        for n in range(1, part["count"] + 1)
    )
    return "\n".join(lines) + "\n"


def write_files(row: dict[str, Any], folder: Path) -> list[Path]:
    files = row.get("files") or {"run.log": row["log"]}
    paths = []
    for name, parts in files.items():
        (folder / name).write_text("".join(map(write_part, parts)), encoding="utf-8")
        paths.append(folder / name)
    return paths


@pytest.mark.parametrize("row", ROWS)
def test_verdict(row: dict[str, Any], workspace: Workspace, tmp_path: Path) -> None:
    paths = write_files(row, tmp_path)
    question = row.get("question", "")
    found = workspace.diagnose_paths(paths, question)
    assert found.verdict.value == row["verdict"], found.root_cause + found.explanation
    if "lacks" in row:
        artefacts = collect_paths(paths, tmp_path).artefacts
        examination = examine(artefacts, workspace.knowledge.signatures)
        proof = prove_health(examination, question)
        assert {c.condition.value for c in proof.missing} == set(row["lacks"]), proof
    if found.verdict is Verdict.UNKNOWN:
        assert found.next_artefacts
        assert all(a.command for a in found.next_artefacts)
    else:
        assert "that does not show" not in found.root_cause


def test_table_is_large_enough() -> None:
    ids = [row["id"] for row in TABLE["rows"]]
    assert len(ids) == len(set(ids)) >= 60
    assert {part for row in TABLE["rows"] for part in row.get("log", ())} <= set(TABLE["parts"])


OPEN = [row for row in TABLE["rows"] if row["verdict"] == "unknown" and "lacks" in row]


@given(
    row=st.sampled_from(OPEN),
    lines=st.lists(st.sampled_from(BENIGN), min_size=1, max_size=6),
    before=st.booleans(),
    beside=st.booleans(),
)
@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_benign_text_never_makes_healthy(
    row: dict[str, Any], lines: list[str], before: bool, beside: bool, workspace: Workspace, tmp_path: Path
) -> None:  # fmt: skip
    paths = write_files(row, tmp_path)
    text = "\n".join(lines) + "\n"
    if beside:
        (tmp_path / "more.txt").write_text(text, encoding="utf-8")
        paths.append(tmp_path / "more.txt")
    else:
        own = paths[0].read_text(encoding="utf-8")
        paths[0].write_text(text + own if before else own + text, encoding="utf-8")
    found = workspace.diagnose_paths(paths, row.get("question", ""))
    assert found.verdict is not Verdict.HEALTHY, found.explanation
