"""Does the first screen answer the question that came with the evidence, and only where it can?"""

from __future__ import annotations

from dataclasses import replace

import pytest
from evals.cases import find_case

from firstfault.conversation.first_answer import answer_briefly
from firstfault.investigation.diagnosis import Diagnosis
from firstfault.workspace import Workspace
from firstfault_tools.findings import Category, Verdict

WORKSPACE = Workspace()


@pytest.fixture(scope="module")
def fault() -> Diagnosis:
    case = find_case("public-comm-27-per-rank-continue-skips-backward")
    return WORKSPACE.diagnose_paths([case / "log.txt"])


@pytest.mark.parametrize(
    ("question", "category", "cause", "told"),
    [
        ("All ranks time out. Network?", Category.DATA, "a shard is missing", "Not the Network, by this evidence: it is the data."),
        ("Is it the network or the disk?", Category.COMMUNICATION, "the port is down", "By this evidence it is the network, not the disk."),
        ("torchrun blames rank 9. Which cable do I look at?", Category.HARDWARE, "Xid 79", "Rank 5 on n7."),
        ("torchrun says rank 9 failed first. What went wrong?", Category.HARDWARE, "Xid 79", "Not rank 9: it began at rank 5 on n7."),
        ("Which rank is it?", Category.CODE_BUG, "a bug", "Rank 5 on n7."),
        ("Do we need a longer NCCL timeout?", Category.CODE_BUG, "rank 5 left", "No: a longer timeout would only make it wait longer."),
        ("Should we RMA the node?", Category.ENVIRONMENT, "a driver", "No: by this evidence the hardware is not at fault."),
        ("Should I replace the GPU?", Category.HARDWARE, "Xid 48", "Not as a first step: take it out, reboot and test it."),
        ("Drain n7?", Category.HARDWARE, "Xid 48", "Yes: take n7 out."),
        ("Disk full?", Category.ENVIRONMENT, "the file system /scratch is 100% full", "Yes: a file system is full."),
        ("Memory leak?", Category.OOM, "too large a batch", "No leak is shown: memory ran out."),
        ("PyTorch bug?", Category.ENVIRONMENT, "an old driver", "No bug of a library is shown: it is the environment (image, packages, settings)."),
        ("Is the checkpoint damaged?", Category.CHECKPOINT, "sizes differ", "No damaged file is shown: it is how the checkpoint was saved or loaded."),
        ("Loss NaN. Learning rate?", Category.NUMERICAL, "learning rate 0.02 is too high", "The learning rate is part of it."),
        ("What happened?", Category.DATA, "a shard", ""),
        ("It died.", Category.DATA, "a shard", ""),
        ("8 GPUs on two nodes, what is the root cause?", Category.DATA, "a shard", ""),
    ],
)  # fmt: skip
def test_a_question_gets_a_sentence(
    fault: Diagnosis, question: str, category: Category, cause: str, told: str
) -> None:
    found = replace(fault, category=category, root_cause=cause, host="n7", first_failing_rank=5)
    found = replace(found, hypotheses=(), signature=None, fixes=())
    assert answer_briefly(question, found, "rank 5 on n7 (local rank 5)").lower() == told.lower()


@pytest.mark.parametrize(
    ("verdict", "question", "told"),
    [
        (Verdict.HEALTHY, "Is this run broken?", "No: nothing is wrong in what was read."),
        (Verdict.HEALTHY, "All good?", "Yes, by what was read."),
        (
            Verdict.HEALTHY,
            "NCCL error in the log, can I trust the checkpoint?",
            "Yes, by what was read.",
        ),
        (Verdict.HEALTHY, "Is it broken or is that fine?", ""),
        (Verdict.HEALTHY, "Which rank failed?", "None: nothing is wrong in what was read."),
        (Verdict.HEALTHY, "Who killed it?", "Nothing failed in what was read."),
        (Verdict.HEALTHY, "What does the warning mean?", ""),
        (Verdict.UNKNOWN, "Which rank is it?", "What was read does not decide it yet."),
        (Verdict.UNKNOWN, "What does it mean?", ""),
    ],
)
def test_a_run_without_a_fault_or_a_verdict_is_answered_too(
    fault: Diagnosis, verdict: Verdict, question: str, told: str
) -> None:
    assert answer_briefly(question, replace(fault, verdict=verdict), "") == told


def test_a_place_that_is_the_whole_job_names_no_rank(fault: Diagnosis) -> None:
    nowhere = replace(fault, first_failing_rank=None, host=None, gpu=None)
    where = "the whole job (the checkpoint is that of all ranks)"
    assert answer_briefly("Which host is slow?", nowhere, where).startswith("No single one")
