"""Hosts from file names, and the rank of a GPU that a straggler's times name."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from tests.rows import each_row

from firstfault_tools.finding_roles import FindingRole
from firstfault_tools.findings import Category, Evidence, Finding, Level
from firstfault_tools.hardware.gpu.placement import join_storage, join_stragglers
from firstfault_tools.hardware.host.dmesg import READER
from firstfault_tools.hardware.host_name import name_host
from firstfault_tools.registry import Artefact

SLOW = Finding(
    "metrics.rank_straggler",
    "Rank 13 is slow",
    Level.FAILURE,
    Category.PERFORMANCE,
    evidence=(Evidence("t.log", 2, "rank 13 gx-22 gpu 5: compute 1655.8"),),
    rank=13,
    host="gx-22",
    gpu="GPU 5",
    facts={"gpu_index": 5},
)
HOT = Finding(
    "hardware.throttled",
    "GPU 5: HW thermal slowdown",
    Level.CAUSE,
    Category.PERFORMANCE,
    evidence=(Evidence("smi.csv", 5, "5, 91"),),
    gpu="GPU 5",
    facts={"gpu_index": 5},
)


@each_row(
    ("file", "host"),
    [
        ("dmesg.txt", None),
        ("dmesg.node7.txt", "node7"),
        ("node7/dmesg.txt", "node7"),
        ("gx-22_nvidia-smi-q.txt", "gx-22"),
        ("nvidia-smi.gx-22.dmon.txt", "gx-22"),
        ("nvidia-smi-q.xml", None),
        ("ip-10-0-3-4/dmesg", "ip-10-0-3-4"),
        ("node-09.dmesg", "node-09"),
        ("kern.log.1", None),
        ("run12/dmesg.txt", None),
        ("rank13/dmesg.txt", None),
        ("dmesg_2026-03-10.txt", None),
        ("train.log", None),
    ],
)
def test_host_of_a_file(file: str, host: str | None) -> None:
    assert name_host(file) == host


@given(st.text(max_size=80))
def test_any_name_is_answered(file: str) -> None:
    assert name_host(file) is None or name_host(file)


def test_a_kernel_log_gets_the_host_of_its_file(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_text("[  12.000000] NVRM: Xid (PCI:0000:9a:00): 79, GPU has fallen off the bus.\n")
    (found,) = READER.read((Artefact("node7/dmesg.txt", path),)).findings
    assert found.host == "node7"
    assert found.evidence[0].host == "node7"


def test_a_hot_gpu_gets_the_rank_and_the_slow_rank_becomes_its_sign() -> None:
    slow, hot = join_stragglers([SLOW, HOT])
    assert slow.level is Level.SYMPTOM
    assert (hot.rank, hot.host, hot.level) == (13, "gx-22", Level.CAUSE)
    assert "rank 13" in hot.title
    assert [e.file for e in hot.evidence] == ["smi.csv", "t.log"]


@each_row(
    "other",
    [
        replace(HOT, facts={"gpu_index": 4}),
        replace(HOT, host="gx-23"),
        replace(HOT, kind="hardware.gpu_idle", level=Level.CONTEXT),
        replace(HOT, rank=3),
    ],
)
def test_another_gpu_is_left_alone(other: Finding) -> None:
    assert join_stragglers([SLOW, other]) == [SLOW, other]


def test_a_disk_that_failed_comes_before_the_read_only_file_system() -> None:
    disk = Finding(
        "kernel.nvme",
        "NVMe drive nvme1 failed",
        Level.CAUSE,
        Category.HARDWARE,
        evidence=(Evidence("log.txt", 3, "nvme nvme1: controller is down"),),
        host="node-2",
    )
    refused = Finding(
        "signature.read-only-file-system",
        "file system is read-only: /scratch/a",
        Level.CAUSE,
        Category.ENVIRONMENT,
        evidence=(Evidence("log.txt", 1, "OSError: [Errno 30] Read-only file system: '/scratch/a'"),),
        host="node-2",
        roles=frozenset({FindingRole.READ_ERROR}),
    )  # fmt: skip
    first, second = join_storage([disk, refused])
    assert "remounted it read-only" in first.title
    assert second.level is Level.SYMPTOM
    alone = join_storage([refused])
    assert alone == [refused]


def test_a_report_of_a_straggler_follows_the_gpu_that_throttles() -> None:
    told = replace(SLOW, kind="signature.reported", category=Category.HARDWARE, facts={}, roles=(FindingRole.STRAGGLER,))  # fmt: skip
    hot = replace(HOT, rank=13, host="gx-22")
    slow, twice, once = join_stragglers([told, SLOW, hot])
    assert (slow.level, slow.category) == (Level.SYMPTOM, Category.PERFORMANCE)
    assert twice.level is Level.SYMPTOM
    assert once.title.count("for which all ranks wait") == 1


def test_a_process_of_another_job_on_the_gpu_of_the_straggler_is_the_cause() -> None:
    guest = replace(HOT, kind="hardware.gpu_shared", level=Level.CONTEXT, host="gx-22")
    slow, shared = join_stragglers([SLOW, guest])
    assert (shared.level, shared.rank, slow.level) == (Level.CAUSE, 13, Level.SYMPTOM)
