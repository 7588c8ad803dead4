"""nvidia-smi in every form: the real captures, planted faults, pasted output, hostile XML."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.rows import each_row

from firstfault_tools.errors import HostileArtefact, ToolError, UnreadableArtefact
from firstfault_tools.findings import Complaint, Finding, Level
from firstfault_tools.hardware.excerpt import number_lines
from firstfault_tools.hardware.gpu import nvidia_smi
from firstfault_tools.hardware.gpu.smi_formats import read_xml
from firstfault_tools.registry import Artefact

CAPTURES = Path("/work/shared/cases/captures")
needs_captures = pytest.mark.skipif(not CAPTURES.is_dir(), reason="captures are not here")
QUERY = """==============NVSMI LOG==============
Driver Version                                         : 580.159.04
Attached GPUs                                          : 1
GPU 00000000:00:06.0
    Product Name                                       : NVIDIA H200
    GPU Recovery Action                                : {recovery}
    PCI
        GPU Link Info
            PCIe Generation
                Max                                    : 5
                Current                                : 5
            Link Width
                Max                                    : 16x
                Current                                : {width}
    Clocks Event Reasons
        Idle                                           : Not Active
        SW Power Cap                                   : Not Active
        HW Slowdown                                    : {slow}
            HW Thermal Slowdown                        : {slow}
    ECC Errors
        Volatile
            SRAM Correctable                           : 0
            DRAM Uncorrectable                         : {ecc}
    Remapped Rows
        Pending                                        : {pending}
        Remapping Failure Occurred                     : No
    Temperature
        GPU Current Temp                               : 88 C
        GPU T.Limit Temp                               : {margin}
        GPU Slowdown T.Limit Temp                      : -2 C
    Fabric
        State                                          : {fabric}
        Status                                         : Success
"""
FINE = {
    "recovery": "None", "width": "16x", "slow": "Not Active", "ecc": "0", "pending": "No",
    "margin": "20 C", "fabric": "Completed",
}  # fmt: skip


def find(text: str) -> tuple[Finding, ...]:
    return nvidia_smi.find_in_lines(number_lines(text), "log")


def serious(found: tuple[Finding, ...]) -> list[str]:
    return [f.kind for f in found if f.level in (Level.CAUSE, Level.FAILURE)]


@needs_captures
@pytest.mark.parametrize("name", ["nvidia-smi-q.txt", "nvidia-smi-q.xml", "nvidia-smi.txt"])
def test_the_healthy_captures_are_called_healthy(name: str) -> None:
    path = CAPTURES / name
    assert nvidia_smi.recognise_nvidia_smi(name, path.read_bytes()[:65536])
    reading = nvidia_smi.read_nvidia_smi((Artefact(name, path),))
    assert serious(reading.findings) == []
    assert "2 x NVIDIA H200: no error" in next(
        f.title for f in reading.findings if "inventory" in f.kind
    )
    gpus = reading.data["gpus"][name]  # type: ignore[index,call-overload]
    assert [(g["index"], g["pci_address"]) for g in gpus] == [
        (0, "0000:00:06.0"),
        (1, "0000:00:07.0"),
    ]


@needs_captures
def test_the_dmon_capture_shows_a_wait() -> None:
    reading = nvidia_smi.read_nvidia_smi((Artefact("dmon.txt", CAPTURES / "dmon.txt"),))
    spin = next(f for f in reading.findings if f.kind == "hardware.gpu_spinning")
    assert spin.level is Level.SYMPTOM
    assert spin.facts["gpus"] == [0, 1]
    assert spin.facts["samples"] == 56
    assert all("100" in e.text for e in spin.evidence)


@each_row(
    ("change", "kind"),
    [
        ({}, None),
        ({"recovery": "GPU Reset"}, "hardware.recovery_action"),
        ({"width": "8x"}, "hardware.pcie_width"),
        ({"slow": "Active"}, "hardware.throttled"),
        ({"ecc": "12"}, "hardware.ecc_uncorrectable"),
        ({"pending": "Yes"}, "hardware.row_remap_pending"),
        ({"margin": "-3 C"}, "hardware.too_hot"),
        ({"fabric": "In Progress"}, "hardware.fabric_state"),
    ],
)
def test_a_planted_fault_is_found_in_pasted_text(change: dict[str, str], kind: str | None) -> None:
    text = "loss 2.3\n$ nvidia-smi -q\n" + QUERY.format(**{**FINE, **change}) + "\nloss 2.2\n"
    found = find(text)
    assert serious(found) == ([kind] if kind else [])
    if kind:
        bad = next(f for f in found if f.kind == kind)
        assert bad.gpu == "GPU 0 (PCI 0000:00:06.0)"
        assert bad.page
        line = text.split("\n")[bad.evidence[0].line - 1]
        assert bad.evidence[0].text == line.strip()


def test_no_temperature_is_hard_coded() -> None:
    # 88 C is above what some boards allow, and this one reports 20 C of margin.
    assert serious(find(QUERY.format(**FINE))) == []


@each_row(
    ("line", "kind"),
    [
        (
            "Unable to determine the device handle for GPU0000:9A:00.0: Unknown Error",
            "hardware.gpu_lost",
        ),
        ("Failed to initialize NVML: Driver/library version mismatch", "hardware.driver_mismatch"),
        ("Failed to initialize NVML: Unknown Error", "hardware.devices_taken"),
        (
            "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure",
            "hardware.driver_absent",
        ),
        ("No devices were found", "hardware.no_devices"),
    ],
)
def test_its_own_failures(line: str, kind: str) -> None:
    assert [f.kind for f in find(f"rank 3 started\n{line}")] == [kind]


TABLE = """| NVIDIA-SMI 580.159.04             Driver Version: 580.159.04     CUDA Version: 13.0     |
|=========================================+========================+======================|
|   0  NVIDIA H200                    On  |   00000000:00:06.0 Off |                    {ecc} |
| N/A   30C    P0             79W /  700W |  14000MiB / 143771MiB |    {one}%      Default |
|   1  NVIDIA H200                    On  |   00000000:00:07.0 Off |                    0 |
| {fan}   28C    P0             85W /  700W |  14000MiB / 143771MiB |    {two}%      Default |
"""


def test_table() -> None:
    assert serious(find(TABLE.format(ecc=3, one=100, two=100, fan="N/A"))) == [
        "hardware.ecc_uncorrectable"
    ]
    assert serious(find(TABLE.format(ecc=0, one=100, two=100, fan="ERR!"))) == [
        "hardware.gpu_unreadable"
    ]
    odd = next(
        f
        for f in find(TABLE.format(ecc=0, one=100, two=0, fan="N/A"))
        if f.kind == "hardware.idle_odd"
    )
    assert odd.gpu == "GPU 1 (PCI 0000:00:07.0)"


def test_query_csv() -> None:
    text = (
        "index, name, pci.bus_id, temperature.gpu, clocks_event_reasons.active, "
        "ecc.errors.uncorrected.volatile.total\n"
        "0, NVIDIA H200, 00000000:00:06.0, 36, 0x0000000000000000, 0\n"
        "1, NVIDIA H200, 00000000:00:07.0, 38, 0x0000000000000040, 2\n"
    )
    assert nvidia_smi.recognise_nvidia_smi("x.csv", text.encode())
    found = find(text)
    assert sorted(serious(found)) == ["hardware.ecc_uncorrectable", "hardware.throttled"]
    assert {f.gpu for f in found if f.level is Level.CAUSE} == {"GPU 1 (PCI 0000:00:07.0)"}


def test_topology_names_the_gpu_without_nvlink() -> None:
    names = ["GPU0", "GPU1", "GPU2", "GPU3"]

    def cell(a: int, b: int) -> str:
        return "X" if a == b else "SYS" if 2 in (a, b) else "NV18"

    rows = ["\t" + "\t".join([*names, "CPU Affinity"])]
    rows += [
        f"{n}\t" + "\t".join(cell(a, b) for b in range(4)) + "\t0-31" for a, n in enumerate(names)
    ]
    found = find("\n".join(rows))
    assert [f.gpu for f in found if f.kind == "hardware.nvlink_missing"] == ["GPU 2"]


def test_dmon_of_a_working_gpu_is_no_wait_and_a_slow_clock_is_odd() -> None:
    head = "# gpu    pwr  gtemp     sm    mem   pclk\n"
    rows = "".join(
        f"    0    650     60    99     45   1980\n    1    500     60    99     45   {c}\n"
        for c in [1200] * 12
    )
    found = find(head + rows)
    assert [f.kind for f in found] == ["hardware.clock_odd", "hardware.gpu_activity"]
    assert found[0].gpu == "GPU 1"


def test_one_command_for_several_hosts_and_the_limit_of_one() -> None:
    rows = [
        "$ pdsh -w n1,n2 nvidia-smi --query-gpu=index,power.limit,clocks.sm --format=csv,noheader"
    ]
    rows += [
        f"{host}: {gpu}, {watt}.00 W, {clock} MHz"
        for host, watt, clock in (("n1", 700, 1800), ("n2", 400, 1100))
        for gpu in range(4)
    ]
    (odd,) = [f for f in find("\n".join(rows)) if f.kind == "hardware.power_limit_odd"]
    assert odd.host == "n2"
    assert "400 W, the others run with 700 W: it holds the SM clock at 1100 MHz" in odd.title


def test_clocks_without_loads_are_told_but_no_fault() -> None:
    head = "# gpu    pwr  gtemp   pclk\n"
    rows = "".join(
        f"    {g}    300     50   {345 if g == 2 else 1980}\n" for _ in range(4) for g in range(4)
    )
    odd = [f for f in find(head + rows) if f.kind == "hardware.clock_odd"]
    assert [(f.gpu, f.level.value, f.explains(Complaint.SLOW)) for f in odd] == [
        ("GPU 2", "context", 0.8)
    ]


def test_one_half_idle_gpu_among_spinning_ones() -> None:
    rows = ["index, utilization.gpu [%], memory.used [MiB]"]
    rows += [f"{g}, {12 if g == 2 else 97} %, 7911 MiB" for g in range(4)]
    kinds = {f.kind: f for f in find("\n".join(rows))}
    assert kinds["hardware.half_idle"].gpu == "GPU 2"
    even = "\n".join([rows[0], *(f"{g}, 60 %, 7911 MiB" for g in range(4))])
    assert not [f for f in find(even) if f.kind == "hardware.half_idle"]


def test_entities_in_xml_are_refused() -> None:
    bomb = (
        '<?xml version="1.0"?><!DOCTYPE nvidia_smi_log [<!ENTITY a "ha"><!ENTITY b "&a;&a;">]>'
        '<nvidia_smi_log><gpu id="00000000:00:06.0"><product_name>&b;</product_name></gpu></nvidia_smi_log>'
    )
    with pytest.raises(HostileArtefact, match="entities"):
        read_xml(bomb, "bomb.xml")
    with pytest.raises(HostileArtefact, match="nested"):
        read_xml("<a>" * 100, "deep.xml")
    with pytest.raises(UnreadableArtefact, match="nvidia-smi -q -x"):
        read_xml("<nvidia_smi_log><gpu", "cut.xml")


@settings(max_examples=120, deadline=None)
@given(data=st.data())
def test_no_damage_breaks_it(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    xml = (
        '<nvidia_smi_log><gpu id="00000000:00:06.0"><ecc_errors><volatile><dram_uncorrectable>1'
        "</dram_uncorrectable></volatile></ecc_errors></gpu></nvidia_smi_log>"
    )
    base = data.draw(
        st.sampled_from(
            [
                QUERY.format(**FINE),
                TABLE.format(ecc=0, one=9, two=9, fan="N/A"),
                xml,
                "# gpu pwr sm\n 0 1 2\n",
                "\tGPU0\tGPU1\nGPU0\tX\tNV1\n",
                "index, name, pci.bus_id\n0, x, y\n",
            ]
        )
    )
    cut = data.draw(st.integers(0, len(base)))
    end = data.draw(st.integers(cut, len(base)))
    text = base[:cut] + data.draw(st.text(max_size=12)) + base[end:]
    path = tmp_path_factory.mktemp("smi") / "x"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    for act in (
        lambda: nvidia_smi.find_in_lines(number_lines(text), "x"),
        lambda: nvidia_smi.read_nvidia_smi((Artefact("x", path),)),
    ):
        with contextlib.suppress(ToolError):
            act()


HOST_COLUMN = """gpu-w07, 0, NVIDIA H100 80GB HBM3, 00000000:07:00.0, 45, Not Active
gpu-w07, 1, NVIDIA H100 80GB HBM3, 00000000:0F:00.0, 91, Active
gpu-w08, 0, NVIDIA H100 80GB HBM3, 00000000:07:00.0, 44, Not Active
gpu-w08, 1, NVIDIA H100 80GB HBM3, 00000000:0F:00.0, 45, Not Active
"""
COLUMNS = "index, name, pci.bus_id, temperature.gpu, clocks_throttle_reasons.hw_thermal_slowdown"


@each_row(
    "head", [f"host, {COLUMNS}", f"nvidia-smi --query-gpu={COLUMNS.replace(' ', '')} --format=csv"]
)
def test_a_column_of_hosts_before_the_rows(head: str) -> None:
    found = [f for f in find(f"{head}\n{HOST_COLUMN}") if f.level is Level.CAUSE]
    assert {(f.host, f.facts["gpu_index"]) for f in found} == {("gpu-w07", 1)}


def test_a_column_of_hosts_anywhere_before_the_rows() -> None:
    """A collector writes the time first; GPU 2 of one host is not that of the next, and the row stays as printed."""
    heading = "timestamp, host, index, temperature.gpu, clocks.sm [MHz], clocks_event_reasons.hw_thermal_slowdown"
    rows = [
        f"2026-06-11 13:05:0{minute}, n{host}, {gpu}, {90 if hot else 70}, {800 if hot else 1750}, {'Active' if hot else 'Not Active'}"
        for minute in range(2)
        for host in (1, 2, 3)
        for gpu in range(4)
        for hot in [(host, gpu) == (2, 1) and minute == 1]
    ]
    text = "\n".join([heading, *rows])
    assert nvidia_smi.recognise_nvidia_smi("gpu.csv", text.encode())
    hot = next(f for f in find(text) if f.kind == "hardware.throttled")
    assert (hot.host, hot.facts["gpu_index"]) == ("n2", 1)
    assert hot.evidence[0].text in text.split("\n")
