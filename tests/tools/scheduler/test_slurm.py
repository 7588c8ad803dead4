"""Slurm output, saved and pasted: job ends, node states, both table forms, damage."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.rows import each_row

from firstfault_tools.findings import Finding, Level
from firstfault_tools.hardware.excerpt import number_lines
from firstfault_tools.log.scan import build_set, scan_file
from firstfault_tools.registry import Artefact
from firstfault_tools.scheduler import slurm
from firstfault_tools.scheduler.slurm_states import explain_job, explain_node, read_exit_code

COLUMNS = """JobID           JobName      State ExitCode     MaxRSS   NodeList
------------ ---------- ---------- -------- ---------- ----------
12345             train OUT_OF_ME+    0:125               gpu-[01-04]
12345.batch       batch OUT_OF_ME+    0:125   510000000K   gpu-01
12346             train  COMPLETED      0:0              gpu-01
"""
PIPES = """JobID|JobName|State|ExitCode|Elapsed|Timelimit|NodeList
777|train|TIMEOUT|0:0|1-00:00:10|1-00:00:00|gpu-07
777.batch|batch|CANCELLED|0:15|1-00:00:12||gpu-07
779|train|FAILED|1:0|00:10:00|01:00:00|gpu-09
"""
REQUEUED = """JobID|State|ExitCode|Restarts|NodeList
55|REQUEUED|0:0|0|c1
55.0|CANCELLED|0:15|0|c1
55|RUNNING|0:0|1|c2
"""
SCONTROL = """JobId=4242 JobName=pretrain
   UserId=ml(1001) GroupId=ml(1001) MCS_label=N/A
   JobState={state} Reason={reason} Dependency=(null)
   RunTime=2-00:00:17 TimeLimit=2-00:00:00 TimeMin=N/A
   NodeList=gpu-07
   ExitCode=0:15 DerivedExitCode=0:0
"""
NODE = """NodeName=gpu-07 Arch=x86_64 CoresPerSocket=48
   State={state} ThreadsPerCore=2
   Reason=Not responding [slurm@2025-02-27T15:21:33]
"""
SINFO = """PARTITION AVAIL  TIMELIMIT  NODES  STATE NODELIST
gpu*         up   infinite      1  down* gpu-07
gpu*         up   infinite      2  drain gpu-[03,05]
gpu*         up   infinite     13  alloc gpu-[01-02]

REASON               USER      TIMESTAMP           NODELIST
Xid 79 on GPU 3      root      2025-02-27T15:21:33 gpu-07
"""


def find(text: str) -> tuple[Finding, ...]:
    return slurm.find_in_lines(number_lines(text), "log")


def test_steps_of_an_attempt_that_was_requeued_are_context() -> None:
    jobs = slurm.read_sacct(number_lines(REQUEUED))
    assert [f.level for f in slurm.check_jobs(jobs, "sacct.txt")] == [Level.CONTEXT]
    ended = slurm.read_sacct(number_lines(REQUEUED.rsplit("55|", 1)[0].replace("REQUEUED", "CANCELLED")))  # fmt: skip
    assert Level.CONTEXT not in [f.level for f in slurm.check_jobs(ended, "sacct.txt")]


def test_sacct_in_columns_and_with_bars() -> None:
    assert slurm.recognise_slurm("x", COLUMNS.encode())
    (oom,) = find("some log\n\n" + COLUMNS)
    assert (oom.kind, oom.level, oom.facts["job_id"]) == ("slurm.oom", Level.CAUSE, "12345")
    assert slurm.recognise_slurm("x", PIPES.encode())
    assert [(f.kind, f.facts["job_id"], f.host) for f in find(PIPES)] == [
        ("slurm.time_limit", "777", "gpu-07"),
        ("slurm.failed", "779", "gpu-09"),
    ]


@each_row(
    ("state", "reason", "kind"),
    [
        ("TIMEOUT", "TimeLimit", "slurm.time_limit"),
        ("OUT_OF_MEMORY", "OutOfMemory", "slurm.oom"),
        ("NODE_FAIL", "NodeDown", "slurm.node_fail"),
        ("PREEMPTED", "None", "slurm.preempted"),
        ("CANCELLED", "None", "slurm.cancelled"),
        ("FAILED", "NonZeroExitCode", "slurm.failed"),
        ("FAILED", "JobLaunchFailure", "slurm.failed"),
        ("COMPLETED", "None", None),
        ("RUNNING", "None", None),
        ("PENDING", "Priority", None),
        ("PENDING", "ReqNodeNotAvail,_UnavailableNodes:gpu-07", "slurm.unschedulable"),
    ],
)
def test_scontrol_show_job(state: str, reason: str, kind: str | None) -> None:
    found = find("$ scontrol show job 4242\n" + SCONTROL.format(state=state, reason=reason))
    assert [f.kind for f in found] == ([kind] if kind else [])
    assert all(f.host == "gpu-07" and "JobState" in f.evidence[0].text for f in found)


@each_row(
    ("state", "level"),
    [
        ("DOWN*+DRAIN", Level.FAILURE),
        ("IDLE+DRAIN", Level.CONTEXT),
        ("MIXED", None),
        ("ALLOCATED", None),
    ],
)
def test_nodes(state: str, level: Level | None) -> None:
    found = find(NODE.format(state=state))
    assert [f.level for f in found] == ([level] if level else [])
    assert all("Not responding" in f.title for f in found)


def test_sinfo_and_reasons() -> None:
    assert slurm.recognise_slurm("x", SINFO.encode())
    found = find(SINFO)
    assert [(f.host, f.level) for f in found] == [
        ("gpu-07", Level.FAILURE),
        (None, Level.CONTEXT),
        ("gpu-07", Level.FAILURE),
    ]
    assert "Xid 79 on GPU 3" in found[2].title


@each_row(
    ("text", "pair"),
    [("0:9", (0, 9)), ("137:0", (137, 0)), ("", (None, None)), ("x:1", (None, None))],
)
def test_exit_codes(text: str, pair: tuple[int | None, int | None]) -> None:
    assert read_exit_code(text) == pair


def test_a_signal_nine_is_not_called_a_memory_kill() -> None:
    meaning = explain_job("FAILED", "", 0, 9)
    assert meaning is not None
    assert meaning.kind == "sigkill"
    assert explain_node("idle") is None


@settings(max_examples=120, deadline=None)
@given(data=st.data())
def test_no_damage_breaks_it(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    samples = [
        COLUMNS,
        PIPES,
        SCONTROL.format(state="TIMEOUT", reason="x"),
        NODE.format(state="DOWN"),
        SINFO,
    ]
    base = data.draw(st.sampled_from(samples))
    cut = data.draw(st.integers(0, len(base)))
    end = data.draw(st.integers(cut, len(base)))
    text = base[:cut] + data.draw(st.text(max_size=12)) + base[end:]
    path = tmp_path_factory.mktemp("slurm") / "x"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    artefact = Artefact("x", path)
    assert slurm.READER.recognise("x", artefact.head()) in (True, False)
    for finding in slurm.READER.read((artefact,)).findings:
        assert finding.evidence


def test_nodes_of_other_jobs_are_no_cause(tmp_path: Path) -> None:
    def levels(words: str) -> list[Level]:
        path = tmp_path / "log.txt"
        path.write_text(SINFO + words, encoding="utf-8")
        digest = scan_file(path, "log.txt", build_set(()))
        found = slurm.find_in_lines(list(digest.kept), "log.txt")
        return [f.level for f in slurm.weigh_nodes(found, [digest])]

    assert set(levels("")) == {Level.CONTEXT}
    assert Level.FAILURE in levels("srun: error: gpu-07: task 3: Killed\n")


@each_row(
    ("last", "level"),
    [
        ("88  prep  PENDING   0:0  Unknown", Level.CAUSE),
        ("88  prep  RUNNING   0:0  2025-01-02T05:10:00", Level.CONTEXT),
        ("88  prep  PENDING   0:0  2025-01-02T05:10:00", Level.CONTEXT),
    ],
)
def test_a_job_that_waits_again_ended_as_its_attempt_did(last: str, level: Level) -> None:
    head = "JobID JobName State ExitCode Start\n--- ----- ---------- ---- -------------------\n"
    columns = ("88", "prep", "PREEMPTED", "0:0", "2025-01-02T01:10:00")
    rows = ["|".join(head.split()[:5]), "|".join(columns), "|".join(last.split())]
    assert [f.level for f in find("\n".join(rows) + "\n")] == [level]
