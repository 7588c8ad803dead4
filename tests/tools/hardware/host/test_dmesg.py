"""Kernel logs: every kind of line, the real capture, locales, joins between codes, hostile input."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.growth import count_calls
from tests.rows import each_row

from firstfault_tools.findings import Category, Finding, Level
from firstfault_tools.hardware.bus import find_slot, name_gpu, normalise_address, number_gpus
from firstfault_tools.hardware.excerpt import number_lines
from firstfault_tools.hardware.gpu import xid_catalogue
from firstfault_tools.hardware.host import dmesg, stamps
from firstfault_tools.hardware.host.kernel_events import load_events
from firstfault_tools.knowledge.pack import read_yaml
from firstfault_tools.registry import Artefact

ROWS = read_yaml(Path(__file__).with_name("kernel_lines.yaml").read_text(encoding="utf-8"))
CAPTURE = Path("/work/shared/cases/captures/dmesg.txt")


def find(text: str) -> tuple[Finding, ...]:
    return dmesg.find_in_lines(number_lines(text), "log")


@each_row(("line", "kind", "level"), ROWS)
def test_each_line_gives_its_finding(line: str, kind: str | None, level: str | None) -> None:
    found = find(line)
    if kind is None:
        assert found == ()
        return
    assert [(f.kind, f.level.value) for f in found] == [(kind, level)]
    assert found[0].evidence[0].line == 1
    assert "?" not in found[0].title
    assert found[0].page, "no page with fixes"


def test_every_row_of_the_table_has_a_sample() -> None:
    sampled = {kind for _, kind, _ in ROWS}
    rare = {
        "kernel.memory_failure", "kernel.aer_nonfatal", "kernel.pcie_link_down",
        "kernel.driver_no_device", "kernel.multicast_team", "kernel.peermem_context",
        "kernel.nic_link_up", "kernel.nic_command", "kernel.nic_watchdog", "kernel.eth_link_down",
        "kernel.eth_link_up", "kernel.ena_reset", "kernel.nfs_ok", "kernel.lustre_ok", "kernel.ceph_ok", "kernel.no_space", "kernel.panic",
        "kernel.cpu_throttled",
    }  # fmt: skip
    assert {event.kind for event in load_events()} - sampled == rare


@pytest.mark.skipif(not CAPTURE.is_file(), reason="captures are not here")
def test_the_real_capture_is_explained() -> None:
    found = {
        f.facts["xid"]: f for f in dmesg.read_dmesg((Artefact("dmesg.txt", CAPTURE),)).findings
    }
    assert set(found) == {43, 13, 31}
    assert all(
        f.gpu == "PCI 0000:00:07.0" and f.category is Category.CODE_BUG for f in found.values()
    )
    assert all(f.level is Level.FAILURE for f in found.values())
    assert "device-side assert" in found[43].title
    for code in (13, 31):
        assert "application bug first" in found[code].title
        assert found[code].facts["pid"] == 1218
        assert 43 not in found[code].facts["beside"]  # another process, 40 s earlier
    assert found[43].facts["gpu_uuid"] == "GPU-00000000-1111-2222-3333-444444444444"


ECC = """[四 2月 27 15:21:33 2025] NVRM: Xid (PCI:0000:9a:00): 48, pid=31879, name=ray::WorkerDict, An uncorrectable double bit error (DBE) has been detected
[四 2月 27 15:21:33 2025] NVRM: Xid (PCI:0000:9a:00): 63, pid=31879, name=ray::WorkerDict, Row Remapper: New row marked for remapping, reset gpu to activate.
[四 2月 27 15:21:33 2025] NVRM: Xid (PCI:0000:9a:00): 45, pid=31879, name=ray::WorkerDict, Ch 00000008"""


def test_consequences_of_an_ecc_error_are_told_from_it() -> None:
    pasted = "step:12 timing 211\n$ dmesg -T | grep -i xid\n" + ECC
    by_code = {f.facts["xid"]: f for f in find(pasted)}
    assert by_code[48].level is Level.CAUSE
    assert by_code[63].level is Level.SYMPTOM
    assert by_code[45].level is Level.SYMPTOM
    assert "consequence of Xid 48" in by_code[45].title
    assert by_code[48].time == 1740669693.0
    assert by_code[48].facts["process"] == "ray::WorkerDict"
    assert by_code[48].evidence[0].line == 3


def test_the_same_code_on_one_gpu_is_one_finding_with_a_count() -> None:
    lines = [
        f"[{n}.000000] NVRM: Xid (PCI:0000:9b:00): 119, pid=7, name=a, Timeout" for n in range(9)
    ]
    found = find("\n".join(lines))
    assert len(found) == 1
    assert found[0].facts["count"] == 9
    assert len(found[0].evidence) == 5


def test_hosts_keep_their_gpus_apart() -> None:
    text = "\n".join(
        f"Feb 27 15:21:33 gpu-node-{n} kernel: [12.678901] NVRM: Xid (PCI:0000:9a:00): 79, GPU has fallen off the bus."
        for n in (7, 8)
    )
    assert [f.host for f in find(text)] == ["gpu-node-7", "gpu-node-8"]


@each_row(
    ("line", "host", "epoch", "boot"),
    [
        ("[  144.987966] NVRM: x", None, None, 144.987966),
        ("[Thu Feb 27 15:21:33 2025] NVRM: x", None, 1740669693.0, None),
        ("[木  2月 27 15:21:33 2025] NVRM: x", None, 1740669693.0, None),
        ("[목  2월 27 15:21:33 2025] NVRM: x", None, 1740669693.0, None),
        ("[Do Feb 27 15:21:33 2025] NVRM: x", None, 1740669693.0, None),
        ("[jeu. févr. 27 15:21:33 2025] NVRM: x", None, 1740669693.0, None),
        ("[чт фев 27 15:21:33 2025] NVRM: x", None, 1740669693.0, None),
        ("2025-02-27T15:21:33,5+01:00 NVRM: x", None, 1740666093.5, None),
        ("2025-02-27T15:21:33.5+00:00 n7 kernel: NVRM: x", "n7", 1740669693.5, None),
        ("Feb 27 15:21:33 n7 kernel: [ 12.678901] NVRM: x", "n7", None, 12.678901),
        ("node12: [Thu Feb 27 15:21:33 2025] NVRM: x", "node12", 1740669693.0, None),
        ("kern  :err   : [  144.987966] NVRM: x", None, None, 144.987966),
        (
            json.dumps(
                {
                    "MESSAGE": "NVRM: x",
                    "__REALTIME_TIMESTAMP": "1740669693000000",
                    "_HOSTNAME": "n7",
                }
            ),
            "n7",
            1740669693.0,
            None,
        ),
    ],
)
def test_stamps_of_every_form(
    line: str, host: str | None, epoch: float | None, boot: float | None
) -> None:
    read = stamps.read_stamp(line)
    assert (read.message, read.host, read.time, read.boot_s) == ("NVRM: x", host, epoch, boot)


def test_a_driver_name_is_no_host() -> None:
    read = stamps.read_stamp("[12.000000] nvme nvme0: I/O 512 QID 3 timeout, aborting")
    assert read.host is None
    assert read.message.startswith("nvme nvme0:")


@each_row(
    ("text", "address"),
    [
        ("PCI:0000:9a:00", "0000:9a:00.0"),
        ("00000000:9A:00.0", "0000:9a:00.0"),
        ("0008:01:00.1", "0008:01:00.1"),
        ("9a:00", "0000:9a:00.0"),
        ("9a00", None),
        ("", None),
    ],
)
def test_one_spelling_of_an_address(text: str, address: str | None) -> None:
    assert normalise_address(text) == address


@each_row(
    ("text", "slot"),
    [
        ("PCI:0000:9A:00", "9a:00"),
        ("00000000:9B:00.0", "9b:00"),
        ("9b000", "9b:00"),
        ("gpu0", "gpu0"),
    ],
)
def test_one_slot_for_an_address_and_for_the_number_of_nccl(text: str, slot: str) -> None:
    assert find_slot(text) == slot


def test_indices_of_nvidia_smi_are_put_in() -> None:
    numbered = number_gpus(find(ECC), {"0000:9a:00.0": 5})
    assert {f.gpu for f in numbered} == {name_gpu("0000:9a:00.0", 5)}


def test_every_code_of_the_knowledge_table_is_known() -> None:
    assert xid_catalogue.find_knowledge_table() is not None
    meanings = xid_catalogue.load_meanings()
    for code in (13, 31, 43, 45, 48, 63, 64, 74, 79, 94, 95, 119, 154):
        assert meanings[code].name
        assert meanings[code].page


def test_recognised_by_what_it_looks_like() -> None:
    assert dmesg.recognise_dmesg(
        "x", b"[    0.297086] Linux version\n[    0.297090] Command line\n"
    )
    assert dmesg.recognise_dmesg("gpu7-dmesg.txt", b"[Thu Feb 27 15:21:33 2025] NVRM: Xid (PCI\n")
    assert not dmesg.recognise_dmesg("train.log", b"[2025-02-27 15:21:33] step 1 NVRM: \n" * 50)
    assert not dmesg.recognise_dmesg("x", b"\x80\x02}q\x00.")


def test_a_long_log_without_markers_costs_little() -> None:
    lines = number_lines("iteration 100/1000 | loss 3.4 | grad norm 1.0 | python\n" * 10_000)
    assert dmesg.find_in_lines(lines, "log") == ()
    assert count_calls(lambda: dmesg.find_in_lines(lines, "log")) < 6 * len(lines)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.one_of(st.text(max_size=80), st.sampled_from([row[0] for row in ROWS])), max_size=12
    ),
    st.data(),
)
def test_no_text_breaks_it(lines: list[str], data: st.DataObject) -> None:
    text = "\n".join(lines)
    if text:
        cut = data.draw(st.integers(0, len(text)))
        text = text[:cut] + data.draw(st.text(max_size=5)) + text[cut:]
    for finding in find(text):
        assert finding.evidence


OOM = """[90.1] oom-kill:constraint={constraint},nodemask=(null),cpuset=/,mems_allowed=0-1,oom_memcg={group},task_memcg={group},task={process},pid=77,uid=0
[90.1] {says}: Killed process 77 ({process}) total-vm:9kB, anon-rss:241kB, file-rss:0kB"""


@each_row(
    ("constraint", "group", "process", "level"),
    [
        ("CONSTRAINT_MEMCG", "/system.slice/telegraf.service", "telegraf", Level.CONTEXT),
        ("CONSTRAINT_MEMCG", "/system.slice/telegraf.service", "pt_data_worker", Level.CAUSE),
        ("CONSTRAINT_MEMCG", "/system.slice/pbs_mom.service/jobid/7", "a.out", Level.CAUSE),
        ("CONSTRAINT_MEMCG", "/system.slice/slurmstepd.scope/job_9", "bash", Level.CAUSE),
        ("CONSTRAINT_NONE", "/system.slice/telegraf.service", "telegraf", Level.CAUSE),
    ],
)
def test_a_full_group_of_another_program_is_no_fault_of_the_job(
    constraint: str, group: str, process: str, level: Level
) -> None:
    says = "Memory cgroup out of memory" if "MEMCG" in constraint else "Out of memory"
    text = OOM.format(constraint=constraint, group=group, process=process, says=says)
    kill = next(f for f in find(text) if f.kind == "kernel.oom_kill")
    assert kill.level is level
    assert ("another program's" in kill.title) is (level is Level.CONTEXT)
