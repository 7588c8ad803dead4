"""Do the words around a verdict say no more than the evidence shows?"""

from __future__ import annotations

import random

import pytest
from evals.cases import find_case
from tests.rows import each_row

from firstfault.investigation.diagnosis import PhaseName
from firstfault.workspace import Workspace
from firstfault_tools.findings import Verdict


@pytest.fixture(scope="module")
def workspace() -> Workspace:
    return Workspace()


def test_an_unknown_error_is_not_called_no_failure(workspace: Workspace) -> None:
    diagnosis = workspace.diagnose_text("x.log", b"<b>x</b> QuuxError: zyx <b>x</b>\n")
    assert diagnosis.verdict is Verdict.UNKNOWN
    assert "no fault is seen" not in diagnosis.root_cause.lower()
    assert "before it" not in diagnosis.explanation
    phases = {p.name: p.summary for p in diagnosis.phases}
    assert "not shown" in phases[PhaseName.TRIAGE]
    assert "No cause stands out" in phases[PhaseName.ISOLATE]


def test_what_would_disprove_is_a_sentence_without_commands(workspace: Workspace) -> None:
    log = find_case("public-comm-27-per-rank-continue-skips-backward") / "log.txt"
    said = workspace.diagnose_paths([log]).disproof
    assert said.startswith("Another outcome of this check: start again so that each rank prints")
    assert "torchrun" not in said
    assert " )" not in said


@each_row(
    ("message", "known"),
    [
        ("CUDA out of memory. Tried to allocate 2.00 GiB", True),
        ("NCCL timeout after a checkpoint", False),
        ("hello", False),
    ],
)
def test_a_message_alone_is_recognised(workspace: Workspace, message: str, known: bool) -> None:
    assert workspace.recognises(message) is known


def test_packed_bytes_are_no_log_and_strange_encodings_are(workspace: Workspace) -> None:
    packed = random.Random(7).randbytes(5_000)
    with_text = {"what.bin": packed, "gbk.log": "训练开始 第一步\n".encode("gbk") * 50}
    for name, data in with_text.items():
        diagnosis = workspace.diagnose_text(name, data)
        skipped = [s.what for s in diagnosis.input.skipped]
        assert skipped == (["what.bin"] if name == "what.bin" else [])
