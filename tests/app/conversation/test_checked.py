"""Does a check that a person reports drop only explanations that lie wholly in the part and were inferred?"""

from __future__ import annotations

from dataclasses import replace

import pytest
from evals.cases import load_cases
from evals.diagnosed import Diagnoses

from firstfault.conversation.answerer import Question
from firstfault.conversation.board import RULED_OUT, lay_board, rank_explanations
from firstfault.conversation.checked import lies_elsewhere, load_parts, parts_in
from firstfault.conversation.rules import answer_once
from firstfault.conversation.walk import Said, follow
from firstfault.investigation.diagnosis import Hypothesis, PhaseName, PhaseStatus
from firstfault.ui.card import make_card
from firstfault.ui.leading import say_ruled_out
from firstfault.ui.verdict_card import write_verdict
from firstfault.workspace import Workspace
from firstfault_tools.findings import Category, Confidence

WORKSPACE = Workspace()
DIAGNOSES = Diagnoses(WORKSPACE)
CASES = {c.id: c for c in load_cases()}
SAID = (
    "we already checked the network",
    "the disk is fine",
    "the GPU passed its tests",
    "the memory is fine",
    "the data is fine",
    "we checked the code",
)
GRID = {
    # case: statements by which its verdict is dropped; all others of SAID leave it
    "a1-83": set(),  # a test of the port is in the evidence
    "b2-communication-flush-errors-hide-retry-exceeded": {"we already checked the network"},
    "lab-worker_killed": {"the memory is fine"},
    "b7-mem-01-zero3-offload-host-ram": {"the memory is fine"},
    "hw-xid79-off-bus": set(),
    "comm-ib-port-flap": set(),
    "induced-stuck-lock": set(),
    "b12-mem-08-caffe-labelids-beyond-classes": set(),
    "b5-data-shard-read-error-retried-quietly": set(),
    "b3-performance-gpu-link-trained-x4": set(),
    "b12-comm-05-container-without-dev-infiniband": set(),
}  # fmt: skip
CAUSE = Hypothesis(
    "Stale file handle on a network file system", Category.ENVIRONMENT, Confidence.LIKELY, (1,), page="stale-file-handle"
)  # fmt: skip


@pytest.mark.parametrize("case", GRID)
def test_only_what_was_inferred_in_that_part_is_dropped(case: str) -> None:
    diagnosis = DIAGNOSES.of(CASES[case]).diagnosis
    dropped = set()
    for said in SAID:
        walk = follow(diagnosis, [Said(said)])
        assert walk.statements[-1].checked, said
        rows = {id(r.hypothesis): r.state for r in rank_explanations(diagnosis, walk)}
        if rows[id(diagnosis.hypotheses[0])] == RULED_OUT:
            dropped.add(said)
    assert dropped == GRID[case]


def test_every_page_and_kind_of_the_table_is_there() -> None:
    for part in load_parts():
        assert part.pages | part.recorded <= set(WORKSPACE.knowledge.pages), part.id


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("the network is fine", {"network"}),
        ("the network file system is fine", {"storage"}),
        ("the GPU memory is fine", {"memory"}),
        ("the network card was replaced", {"network"}),
        ("the data loader is fine", {"loader"}),
        ("the host memory is fine", {"memory"}),
    ],
)
def test_the_part_that_is_meant(text: str, parts: set[str]) -> None:
    assert {p.id for p in parts_in(text)} == parts


def test_a_word_that_two_parts_share_does_not_make_it_the_other() -> None:
    assert lies_elsewhere(CAUSE, "the network")
    assert not lies_elsewhere(CAUSE, "NFS")
    assert not lies_elsewhere(replace(CAUSE, page="python-error"), "the network")


def test_the_verdict_does_not_rest_on_what_was_checked() -> None:
    text = "[rank11]: 2026-11-27 03:22:00 ERROR OSError: [Errno 116] Stale file handle: '/mnt/nfs/shard-00918.tar'\n"
    diagnosis = WORKSPACE.diagnose_text("a.log", text.encode())
    for said, wanted in (
        ("we already checked the network", "does not rest on the network"),
        ("we checked the storage, it is fine", "That line is there whatever the check found"),
    ):
        question = Question("", 2, said, diagnosis, {}, (), WORKSPACE.knowledge)
        part = answer_once(said, diagnosis, WORKSPACE.knowledge, question)
        assert wanted in part.text
        assert "Ruled out by you:" not in part.text
    assert lay_board(diagnosis, follow(diagnosis, [Said("the disk is fine")]), WORKSPACE.knowledge).lead  # fmt: skip


def test_what_was_ruled_out_moves_card_and_phases() -> None:
    diagnosis = DIAGNOSES.of(CASES["b2-communication-flush-errors-hide-retry-exceeded"]).diagnosis
    said = "we already checked the network"
    at = 16 * 3600 + 5 * 60.0
    question = Question("", 2, said, diagnosis, {}, (), WORKSPACE.knowledge, time=at)
    walk = answer_once(said, diagnosis, WORKSPACE.knowledge, question).walk
    assert walk is not None
    assert walk.ruled_out is not None
    assert say_ruled_out(walk.ruled_out).startswith("Ruled out by you at 16:05 UTC; ")
    phases = {p.name: p for p in walk.phases}
    assert phases[PhaseName.ROOT_CAUSE].status is PhaseStatus.OPEN
    assert phases[PhaseName.ROOT_CAUSE].summary.startswith("Ruled out by you at 16:05 UTC: ")
    shown = write_verdict(diagnosis, make_card(diagnosis), walk.ruled_out)
    assert "Ruled out by you at 16:05 UTC" in shown
    assert "Ruled out" not in write_verdict(diagnosis, make_card(diagnosis))


def test_a_check_elsewhere_moves_no_phase() -> None:
    diagnosis = DIAGNOSES.of(CASES["a1-83"]).diagnosis
    said = "the disk is fine"
    walk = answer_once(said, diagnosis, WORKSPACE.knowledge).walk
    assert walk is not None
    assert walk.ruled_out is None
    assert {p.name: p.status for p in walk.phases} == {
        p.name: p.status for p in follow(diagnosis, []).phases
    }
