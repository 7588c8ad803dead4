"""A run that the tools read as broken and a model as well: what it must name, what code must see, who cannot do it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from evals.cases import find_case, load_case
from evals.fakes.liars import healthy_by_the_rules
from evals.fakes.scripted_model import ScriptedModel, in_order, reply
from tests.rows import each_row

from firstfault.agent.context import open_context
from firstfault.agent.endpoint import Endpoint
from firstfault.agent.enrich import Enriched, enrich, make_question
from firstfault.agent.judge import Explanation
from firstfault.agent.soundness import with_rank
from firstfault.investigation.diagnosis import Citation, CitationKind, Diagnosis, LedBy
from firstfault.workspace import Workspace
from firstfault_tools.findings import Category, Confidence, Verdict

STEPS = [f"2026-03-01 12:{m:02d}:00 [rank0]: step {m} loss {3 - m / 40:.3f}" for m in range(40)]
PREEMPTED = "2026-03-01 12:20:30 slurmstepd: error: *** JOB 71 ON gx-1 CANCELLED AT 2026-03-01T12:20:30 DUE TO PREEMPTION ***"
RESUMED = [*STEPS[:21], PREEMPTED, "2026-03-01 12:20:50 [rank0]: resumed from step 20", *STEPS[21:]]
AT = 22
"""Line of the preemption, counted from 1."""

WELL = {
    "verdict": "healthy", "cause": "The run was preempted and resumed at step 20, and the loss goes on falling.",
    "lines": ["F1:23", f"F1:{len(RESUMED)}"], "against": "The preemption was got over.", "against_lines": [f"F1:{AT}"],
}  # fmt: skip


def read_as(diagnosis: Diagnosis, category: Category, sure: Confidence, name: str) -> Diagnosis:
    """The tools' reading as a fault that stands on the line of the preemption."""
    cited = Citation(1, CitationKind.LOG, PREEMPTED, file=name, line=AT)
    first = replace(
        diagnosis.hypotheses[0], root_cause="Preempted", category=category, confidence=sure, for_=(1,), against=()
    )  # fmt: skip
    return replace(
        diagnosis, verdict=Verdict.FAULT, category=category, confidence=sure, root_cause="Preempted", citations=(cited,),
        hypotheses=(first,), fixes=(), cascade=(),
    )  # fmt: skip


def ask(
    workspace: Workspace, folder: Path, account: dict[str, Any], *, lines: list[str] = RESUMED,
    category: Category = Category.SCHEDULER, sure: Confidence = Confidence.LIKELY, text: str = "is this run fine?",
) -> Enriched:  # fmt: skip
    path = folder / "train.log"
    path.write_text("\n".join(lines) + "\n", "utf-8")
    reading = read_as(workspace.diagnose_paths([path]), category, sure, path.name)
    question = make_question(reading, {path.name: path}, workspace.knowledge, text)
    script = in_order(reply(answer=[], explanations=[account]))
    return enrich(question, ScriptedModel(script), earned=True)


def test_a_run_that_was_preempted_and_went_on_may_be_called_well(
    workspace: Workspace, tmp_path: Path
) -> None:
    after = ask(workspace, tmp_path, WELL).diagnosis
    assert (after.verdict, after.led_by, after.disputed) == (Verdict.HEALTHY, LedBy.MODEL, True)
    assert after.confidence is Confidence.LIKELY
    assert "Preempted" in [h.root_cause for h in after.hypotheses]


@pytest.mark.parametrize(
    ("change", "more"),
    [
        ({"against_lines": [], "against": ""}, {}),
        ({"lines": ["F1:3"]}, {}),
        ({}, {"category": Category.NUMERICAL}),
        ({}, {"category": Category.OOM}),
        ({}, {"sure": Confidence.CONFIRMED}),
        ({"lines": [f"F1:{AT}"]}, {"lines": RESUMED[:AT]}),
        ({"lines": ["F1:23"]}, {"lines": [*RESUMED[:23], "[rank0]: RuntimeError: the device is gone"]}),
        ({}, {"text": "Why does it hang? It has been stuck since noon."}),
    ],
    ids=["does not name the line", "shows no step after it", "numbers", "memory", "confirmed", "ends there", "an error at the end", "said to hang"],
)  # fmt: skip
def test_it_may_not(
    change: dict[str, Any], more: dict[str, Any], workspace: Workspace, tmp_path: Path
) -> None:
    enriched = ask(workspace, tmp_path, {**WELL, **change}, **more)
    after = enriched.diagnosis
    assert after.verdict is Verdict.FAULT
    assert after.led_by is LedBy.RULE
    assert enriched.ruling is not None
    assert enriched.ruling.disputed or after.confidence is Confidence.CONFIRMED


BROKEN = ("a1-02", "a1-69", "abstain-cuda-unknown-error-in-step", "b11-mem-10-resume-replays-tail", "b2-abstain-ray-actor-died-unexpectedly", "lab-oom_one_rank")  # fmt: skip


@each_row("case", BROKEN)
def test_who_knows_the_rules_and_lies_calls_no_broken_run_well(
    case: str, workspace: Workspace
) -> None:
    given = load_case(find_case(case))
    before = workspace.diagnose_paths(given.inputs, given.question)
    files = {p.name: p for p in given.inputs}
    question = make_question(before, files, workspace.knowledge, given.question)
    after = enrich(question, ScriptedModel(healthy_by_the_rules), earned=True).diagnosis
    assert after.verdict is not Verdict.HEALTHY


@pytest.mark.parametrize("sure", [Confidence.LIKELY, Confidence.CONFIRMED])
def test_a_run_of_which_a_model_quotes_a_fault_does_not_stay_healthy(
    sure: Confidence, workspace: Workspace, tmp_path: Path
) -> None:
    given = load_case(find_case("healthy-requeue-resumed"))
    before = workspace.diagnose_paths(given.inputs, given.question)
    assert before.verdict is Verdict.HEALTHY
    reading = replace(
        before, confidence=sure, hypotheses=(replace(before.hypotheses[0], confidence=sure),)
    )
    question = make_question(reading, {p.name: p for p in given.inputs}, workspace.knowledge)
    account = {"verdict": "fault", "category": "checkpoint", "cause": "The resumed part repeats what was trained.", "lines": ["F1:3"]}  # fmt: skip
    script = in_order(reply(answer=[], explanations=[account]))
    after = enrich(question, ScriptedModel(script), earned=True).diagnosis
    assert (after.verdict, after.disputed) == (Verdict.FAULT, True)
    assert after.confidence is Confidence.POSSIBLE
    unearned = enrich(question, ScriptedModel(script)).diagnosis
    assert unearned.verdict is Verdict.HEALTHY


SEATS = [
    # case, host, GPU as a model writes it -> rank
    ("s5-gpu-4c-00-of-dgx-a15-rank-26-fell-off-the", "dgx-a15", "2", 26),
    ("s5-gpu-4c-00-of-dgx-a15-rank-26-fell-off-the", "dgx-a15", "0000:4c:00", 26),
    ("s5-gpu-4c-00-of-dgx-a15-rank-26-fell-off-the", "dgx-a15", "", None),
    ("b3-hardware-local-nvme-dropped", "10.3.0.13", "", 2),
    ("b3-performance-gpu-clocks-left-locked", "dg-33", "", None),
    ("b3-performance-gpu-clocks-left-locked", "dg-33", "GPU 3", 19),
]


@each_row(("case", "host", "gpu", "rank"), SEATS)
def test_the_placement_says_which_rank_sits_on_a_named_host_and_gpu(
    case: str, host: str, gpu: str, rank: int | None, workspace: Workspace
) -> None:
    """One that sits there alone; a host with several ranks is named without a rank."""
    given = load_case(find_case(case))
    diagnosis = workspace.diagnose_paths(given.inputs, given.question)
    question = make_question(diagnosis, {p.name: p for p in given.inputs}, workspace.knowledge)
    context = open_context(question, Endpoint("m", "http://127.0.0.1:9/v1"), lambda _q, _n: ())
    named = Explanation(LedBy.MODEL, Verdict.FAULT, Category.HARDWARE, "x", host=host, gpu=gpu)
    assert with_rank(context, named).rank == rank


def test_what_is_left_open_has_no_rank(workspace: Workspace, tmp_path: Path) -> None:
    account = {"verdict": "unknown", "rank": 0, "cause": "The lines do not decide it.", "lines": [f"F1:{AT}"]}  # fmt: skip
    after = ask(workspace, tmp_path, account).diagnosis
    assert (after.verdict, after.first_failing_rank) == (Verdict.UNKNOWN, None)
