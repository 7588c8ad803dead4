"""Is the next action one thing that can be done as it is written: what, where, and how its output is read?"""

from __future__ import annotations

import json
import re
from dataclasses import replace

import jsonschema
import pytest
from evals.cases import find_case
from tests.rows import each_row

from firstfault.grounding.advice import objections
from firstfault.investigation.blanks import fill_command
from firstfault.investigation.diagnosis import Diagnosis, Fix, NextArtefact
from firstfault.investigation.next_action import (
    ActionKind,
    choose_action,
    describe_answer,
    take_first,
    write_action,
)
from firstfault.investigation.run_place import find_fix_place, find_run_place, kinds
from firstfault.investigation.scheduler import advised_for
from firstfault.paths import knowledge_folder
from firstfault.workspace import Workspace
from firstfault_tools.findings import Category, Confidence, Verdict
from firstfault_tools.kind_pages import named_fixes
from firstfault_tools.knowledge.page import FixKind

WORKSPACE = Workspace()
PAGES = WORKSPACE.knowledge.pages


@pytest.fixture(scope="module")
def fault() -> Diagnosis:
    case = find_case("public-comm-27-per-rank-continue-skips-backward")
    return WORKSPACE.diagnose_paths([case / "log.txt"])


@pytest.mark.parametrize(
    ("command", "host", "rank", "said"),
    [
        ("dmesg -T | grep -i xid", "gpu-a17", 11, "On gpu-a17"),
        ("dmesg -T | grep -i xid", None, 11, "On the node of rank 11"),
        ("dmesg -T | grep -i xid", None, None, "On each node of the job"),
        ("dmesg -T | grep -i xid", "localhost", None, "On each node of the job"),
        ("lfs df -h /scratch", None, None, "On any node that mounts the file system"),
        ("python -c 'import torch'", "gpu-a17", 3, "On gpu-a17, in the environment of the job"),
        ("sacct -j 1 --format=State", "gpu-a17", 3, "On a login node of the cluster"),
        ("kubectl describe pod x-0", "gpu-a17", 3, "Where kubectl reaches the cluster"),
        ("ipmitool -H 10.0.0.1 -U admin sel elist", "gpu-a17", 3, "From any machine on the management network"),
        ("export NCCL_DEBUG=INFO", "gpu-a17", 3, "In the job script, for the next start"),
        ("CUDA_LAUNCH_BLOCKING=1 torchrun train.py", "gpu-a17", 3, "In the job script, for the next start"),
        ("# Megatron: stays as it is\n--micro-batch-size 1", "gpu-a17", 3, "In the settings of the run"),
        ("torch.autograd.set_detect_anomaly(True)", "gpu-a17", 3, "In the training script"),
        ("gc.disable()", "gpu-a17", 3, "In the training script"),
        ("loader = DataLoader(data, num_workers=4)", "gpu-a17", 3, "In the training script"),
        ("actor_rollout_ref.actor.optim.lr=5e-7", "gpu-a17", 3, "In the settings of the run"),
        ("# DeepSpeed\n\"gradient_clipping\": 1.0", "gpu-a17", 3, "In the settings of the run"),
        ("grep -nE nan train.log | head", "gpu-a17", 3, "Where these logs lie"),
    ],
)  # fmt: skip
def test_a_command_says_where_it_runs(
    fault: Diagnosis, command: str, host: str | None, rank: int | None, said: str
) -> None:
    told = replace(fault, host=host, first_failing_rank=rank)
    assert find_run_place(told, command).said == said


def test_data_may_name_the_place_by_kind_or_in_words(fault: Diagnosis) -> None:
    assert find_run_place(fault, "dmesg", "scheduler").said == "On a login node of the cluster"
    assert find_run_place(fault, "ls /sys/class/infiniband").kind == "node"
    assert find_run_place(fault, "dmesg", "on the file server").said == "On the file server"


def test_a_pod_stands_for_its_node(fault: Diagnosis) -> None:
    told = replace(fault, host="llm-worker-3", root_cause="pod llm-worker-3 was evicted")
    told = replace(told, first_line=None, citations=())
    assert find_run_place(told, "df -h /dev/shm").said == "In pod llm-worker-3"
    assert find_run_place(told, "dmesg | tail").said == "On the node of pod llm-worker-3"


@pytest.mark.parametrize(
    ("cause", "text", "said"),
    [
        ("it failed, called from main (/home/kim/llm/train.py:188)", "Divide it.", "In /home/kim/llm/train.py:188"),
        ("raised in f (/opt/site-packages/x/y.py:3)", "Divide it.", None),
        ("it failed", "Set `NCCL_IB_GID_INDEX` to the row of RoCE v2.", "In the settings of the run"),
    ],
)  # fmt: skip
def test_a_fix_in_words_says_where_it_is_applied(
    fault: Diagnosis, cause: str, text: str, said: str | None
) -> None:
    told = replace(fault, root_cause=cause, category=Category.CODE_BUG)
    place = find_fix_place(told, text, "")
    assert (place.said if place is not None else None) == said


def test_the_fix_of_the_mechanism_comes_before_a_check_and_that_of_a_class_after(
    fault: Diagnosis,
) -> None:
    likely = replace(fault, confidence=Confidence.LIKELY, category=Category.COMMUNICATION)
    fix = Fix("Use the right row.", "immediate", False, (1, 2))
    check = NextArtefact("the rows", "why", "show_gids", True, "", "row 3 empty", "row 3 filled")
    of_class = replace(likely, fixes=(fix,), next_artefacts=(check,))
    own = replace(of_class, fixes=(replace(fix, own=True),))
    doubtful = replace(own, confidence=Confidence.POSSIBLE)
    first, second, third = (choose_action(d, {}) for d in (of_class, own, doubtful))
    assert first is not None
    assert second is not None
    assert third is not None
    assert first.kind is ActionKind.CHECK
    assert first.reading == (
        ("If it shows row 3 empty", "Use the right row."),
        ("If row 3 filled", "next suspect: rank 5 took another code path than ranks 0-4, 6 …"),
    )
    assert second.kind is ActionKind.FIX
    assert (third.kind, third.then) == (ActionKind.CHECK, "")
    assert write_action(first).endswith("The rows: why.")


def test_what_is_collected_of_an_open_verdict_says_what_follows() -> None:
    diagnosis = WORKSPACE.diagnose_paths([find_case("abstain-sigkill-no-host-log") / "log.txt"])
    action = choose_action(diagnosis, PAGES)
    assert action is not None
    assert action.kind is ActionKind.CHECK
    assert [follows for _, follows in action.reading] == [
        "raise the memory limit, or lower what the host holds",
        "ask the scheduler who ended it",
    ]


@pytest.mark.parametrize(
    ("rank", "category", "asked"),
    [
        (11, Category.HARDWARE, "NODE, the node of rank 11"),
        (None, Category.HARDWARE, "NODE, the node that log.txt comes from"),
        (None, Category.COMMUNICATION, "NODE, the name of the node"),
    ],
)
def test_a_node_without_a_name_is_named_in_words(
    fault: Diagnosis, rank: int | None, category: Category, asked: str
) -> None:
    told = replace(fault, host=None, first_failing_rank=rank, category=category)
    assert fill_command("kubectl cordon NODE", told) == ("kubectl cordon NODE", (asked,))


def test_every_door_for_machines_gives_it_by_the_schema(fault: Diagnosis) -> None:
    path = knowledge_folder().parent / "app/firstfault/investigation/diagnosis.schema.json"
    answer = describe_answer(fault, PAGES)
    jsonschema.validate(json.loads(json.dumps(answer)), json.loads(path.read_text("utf-8")))
    assert answer["next_action"]["where"]["said"]
    healthy = replace(fault, verdict=Verdict.HEALTHY)
    assert describe_answer(healthy, PAGES)["next_action"] is None


def test_a_check_names_a_place_that_is_known_and_says_both_or_neither() -> None:
    for page in PAGES.values():
        for check in page.checks:
            assert not check.run_on or check.run_on in kinds() or " " in check.run_on, page.id
            assert not check.refutes_if or check.supports_if, f"{page.id}: {check.text}"


def test_an_artefact_says_how_it_is_read() -> None:
    for rule in WORKSPACE.knowledge.artefacts:
        assert rule.get("supports_if"), rule["what"]
        assert rule.get("refutes_if"), rule["what"]


def test_no_fix_of_a_page_is_held_back() -> None:
    known = WORKSPACE.knowledge.variables
    for page in PAGES.values():
        for fix in page.fixes:
            assert not objections(fix.text, fix.command, known), f"{page.id}: {fix.text}"


def test_a_fix_that_data_name_stands_on_a_page_once() -> None:
    named = {s.id: s.fix for s in WORKSPACE.knowledge.signatures.signatures if s.fix}
    rows = {kind: row["fix"] for kind, row in named_fixes().items() if "fix" in row}
    for name, begins in {**named, **rows}.items():
        found = [
            [f.text for f in p.fixes if f.kind is FixKind.IMMEDIATE and f.text.startswith(begins)]
            for p in PAGES.values()
        ]
        assert any(found), f"{name}: {begins}"
        for texts in found:
            # of one label only one is shown: that of the scheduler, with the values that are known
            alike = [(advised_for(text), "{" in text) for text in texts]
            assert len(set(alike)) == len(alike), f"{name}: {begins}"


def test_no_command_of_a_fault_says_its_host_in_a_comment() -> None:
    for rule in WORKSPACE.knowledge.artefacts:
        assert not re.search(r"# on \{", str(rule["command"])), rule["what"]


@pytest.mark.parametrize(
    ("runs_on", "command", "said"),
    [
        (("slurm",), 'scontrol update NodeName=n1 State=DRAIN Reason="x"\nsbatch --exclude=n1 train.sbatch', "On a login node of the cluster"),
        (("kubernetes",), "kubectl cordon n1\nkubectl delete pod POD", "Where kubectl reaches the cluster"),
    ],
)  # fmt: skip
def test_a_job_is_moved_with_the_commands_of_its_scheduler(
    fault: Diagnosis, runs_on: tuple[str, ...], command: str, said: str
) -> None:
    page = PAGES["nvlink-errors"]
    written = next(f.command for f in page.fixes if f.command and "cordon" in f.command)
    told = replace(fault, host="n1", schedulers=runs_on, first_line=None, citations=())
    filled, _ = fill_command(written, told)
    assert filled.replace("NVLink errors", "x") == command
    assert find_run_place(told, filled).said == said


def test_moving_a_job_off_a_node_is_never_words_alone() -> None:
    moved = re.compile(
        r"(?i)\b(?:drain|cordon|exclude|take) the (?:node|host)|restart elsewhere|on other nodes"
        r"|\b(?:without|off) (?:the|that) node"
    )
    for page in PAGES.values():
        for fix in page.fixes:
            if fix.kind is FixKind.IMMEDIATE and moved.search(fix.text):
                assert fix.command, f"{page.id}: {fix.text}"


@pytest.mark.parametrize(
    ("text", "command", "said"),
    [
        ("Load the module on all nodes.", "lsmod | grep peermem", "On every node of the job"),
        ("Load the module.", "lsmod | grep peermem", "On gpu-a17"),
        ("Take it out of `LD_LIBRARY_PATH` on that node.", "", "On gpu-a17"),
        ("Reboot every host: on each node.", "", "On every node of the job"),
    ],
)
def test_place_and_words_agree(fault: Diagnosis, text: str, command: str, said: str) -> None:
    told = replace(fault, host="gpu-a17", category=Category.HARDWARE)
    place = find_fix_place(told, text, command)
    assert place is not None
    assert place.said == said


@pytest.mark.parametrize(
    ("cause", "category", "worked", "said"),
    [
        ("it failed at step 120", Category.DATA, "", "the next attempt passes step 120"),
        ("STEP 66.0 was cancelled", Category.DATA, "", ""),
        ("it failed", Category.CHECKPOINT, "", "the next checkpoint is written, and read, to its end"),
        ("it failed", Category.CHECKPOINT, "`ls` lists it", "`ls` lists it"),
    ],
)  # fmt: skip
def test_a_fix_says_how_to_see_that_it_helped(
    fault: Diagnosis, cause: str, category: Category, worked: str, said: str
) -> None:
    fix = Fix("Do it.", "immediate", False, (1, 2), own=True, worked_if=worked)
    told = replace(fault, root_cause=cause, category=category, fixes=(fix,), first_line=None, confidence=Confidence.LIKELY)  # fmt: skip
    action = choose_action(told, {})
    assert action is not None
    assert action.reading == ((("Worked if", said),) if said else ())


@pytest.mark.parametrize(
    ("cause", "kind"),
    [
        ("a compiled program went wrong, or a chip is faulty", ActionKind.CHECK),
        ("a faulty program or a faulty chip", ActionKind.CHECK),
        ("the loss is inf or NaN", ActionKind.FIX),
        ("the chip is faulty (a program or a chip)", ActionKind.FIX),
    ],
)
def test_a_cause_of_two_mechanisms_is_checked_before_a_change(
    fault: Diagnosis, cause: str, kind: ActionKind
) -> None:
    fix = Fix("Do it.", "immediate", True, (1, 2), own=True)
    check = NextArtefact("the rows", "why", "show_gids", True, "", "row 3 empty", "row 3 filled")
    told = replace(fault, root_cause=cause, fixes=(fix,), next_artefacts=(check,), confidence=Confidence.LIKELY)  # fmt: skip
    action = choose_action(told, {})
    assert action is not None
    assert action.kind is kind
    single = choose_action(replace(told, next_artefacts=()), {})
    assert single is not None
    assert single.kind is ActionKind.FIX


def test_a_limit_that_was_met_is_raised_to_a_value() -> None:
    log = b"""srun: launching StepId=17.0
[Thu Apr  2 01:09:56 2026] python invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0
[Thu Apr  2 01:09:56 2026] memory: usage 104857600kB, limit 104857600kB, failcnt 9
[Thu Apr  2 01:09:56 2026] oom-kill:constraint=CONSTRAINT_MEMCG,oom_memcg=/slurmstepd.scope/job_17,task_memcg=/slurmstepd.scope/job_17/step_0,task=python,pid=2210,uid=1
[Thu Apr  2 01:09:56 2026] Memory cgroup out of memory: Killed process 2210 (python) total-vm:99kB, anon-rss:94371840kB, file-rss:8kB, shmem-rss:1kB, UID:1
"""
    action = choose_action(WORKSPACE.diagnose_text("dmesg.txt", log), PAGES)
    assert action is not None
    assert action.command == "#SBATCH --mem=125G"
    assert action.where is not None
    assert action.where.said == "In the job script"
    assert "pod" not in write_action(action)


@each_row(
    ("text", "said"),
    [
        ("Lower `a`, or raise tensor parallelism.", "Lower `a`."),
        ("Reboot the node; or, with no process on it, reset the GPUs.", "Reboot the node."),
        ("Run it on one node, two, or three.", "Run it on one node, two."),
        # within brackets it is not another way
        ("Take an image (of the same version, or newer) everywhere.", "Take an image (of the same version, or newer) everywhere."),
        ("Set `x` to 1 or 2.", "Set `x` to 1 or 2."),
    ],
)  # fmt: skip
def test_of_two_ways_the_first_is_the_action(text: str, said: str) -> None:
    assert take_first(text) == said


_KILL = b"""[Thu Apr  2 01:09:56 2026] memory: usage 104857600kB, limit 104857600kB, failcnt 9
[Thu Apr  2 01:09:56 2026] oom-kill:constraint=CONSTRAINT_MEMCG,oom_memcg=/slurmstepd.scope/job_17,task_memcg=/slurmstepd.scope/job_17/step_0,task=python,pid=2210,uid=1
[Thu Apr  2 01:09:56 2026] Memory cgroup out of memory: Killed process 2210 (python) total-vm:99kB, anon-rss:%dkB, file-rss:8kB, shmem-rss:1kB, UID:1
"""


@each_row(("held", "kind"), [(94371840, ActionKind.FIX), (9437184, ActionKind.CHECK)])
def test_who_held_the_memory_is_seen_before_a_limit_is_raised(held: int, kind: ActionKind) -> None:
    action = choose_action(WORKSPACE.diagnose_text("dmesg.txt", _KILL % held), PAGES)
    assert action is not None
    assert action.kind is kind
    assert "--mem" in f"{action.command}" or "125" in action.then


def test_nobody_is_told_to_end_a_rank_of_the_job() -> None:
    log = (
        b"[rank6]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 512.00 MiB. GPU 3 has a total capacity of "
        b"79.15 GiB of which 120.00 MiB is free. Including non-PyTorch memory, this process has 18.60 GiB memory in use. "
        b"Process 991 has 60.25 GiB memory in use. pid 4411 is this one.\n"
    )
    action = choose_action(WORKSPACE.diagnose_text("train.log", log), PAGES)
    assert action is not None
    assert action.kind is ActionKind.CHECK
    assert "-p 991" in action.command
    assert "4411" not in action.command


def test_checks_of_kinds_stand_on_their_pages() -> None:
    for kind, row in named_fixes().items():
        if "check" in row:
            pages = [PAGES[row["page"]]] if "page" in row else PAGES.values()
            assert any(c.text.startswith(row["check"]) for p in pages for c in p.checks), kind
