"""Ports, link counters, nccl-tests and DCGM: planted faults, the odd node out, damage."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.rows import each_row

from firstfault_tools.errors import ToolError, UnreadableArtefact
from firstfault_tools.findings import Category, Level
from firstfault_tools.hardware.excerpt import number_lines
from firstfault_tools.hardware.gpu import dcgm
from firstfault_tools.hardware.network import infiniband, link_counters, nccl_tests
from firstfault_tools.hardware.outliers import find_low
from firstfault_tools.kind_pages import named_fixes
from firstfault_tools.registry import Artefact

ROOT = Path(__file__).parents[3]
IBSTAT = """CA 'mlx5_0'
	Port 1:
		State: {one}
		Physical state: {physical}
		Rate: {rate}
		Link layer: InfiniBand
CA 'mlx5_1'
	Port 1:
		State: Active
		Physical state: LinkUp
		Rate: 400
CA 'mlx5_2'
	Port 1:
		State: Active
		Physical state: LinkUp
		Rate: 400
"""
DEVINFO = """hca_id:	mlx5_0
	phys_port_cnt:			1
		port:	1
			state:			PORT_{state} (4)
			link_layer:		Ethernet
			phys_state:		LINK_UP (5)
			active_width: 4X (2)
			active_speed: 25.0 Gbps (32)
"""


@each_row(
    ("one", "physical", "rate", "kind", "level"),
    [
        ("Active", "LinkUp", 400, None, None),
        ("Down", "Polling", 10, "network.port_down", Level.FAILURE),
        ("Down", "Disabled", 10, "network.port_down", Level.CONTEXT),
        ("Active", "LinkUp", 200, "network.port_slow", Level.CAUSE),
    ],
)
def test_ibstat(one: str, physical: str, rate: int, kind: str | None, level: Level | None) -> None:
    text = IBSTAT.format(one=one, physical=physical, rate=rate)
    assert infiniband.recognise_infiniband("x", text.encode())
    found = infiniband.find_in_lines(number_lines("noise\n" + text), "log")
    odd = [(f.kind, f.level) for f in found if f.kind != "network.ports"]
    assert odd == ([(kind, level)] if kind else [])


def test_ibv_devinfo_gives_the_whole_rate() -> None:
    found = infiniband.find_in_lines(number_lines(DEVINFO.format(state="ACTIVE")), "x")
    assert [f.title for f in found] == ["1 of 1 RDMA ports active, 100 Gb/s"]
    down = infiniband.find_in_lines(number_lines(DEVINFO.format(state="DOWN")), "x")
    assert down[0].facts["state"] == "PORT_DOWN"


def test_the_worked_incident_names_the_port_that_damages_packets() -> None:
    text = (
        "switch-04 port 17: CRC errors 14,302 (rising)\n"
        "switch-04 port 17: link flaps: 3 in last hour\n"
        "switch-04 temperature: 72 C (normal)\n"
    )
    (found,) = link_counters.find_in_lines(number_lines(text), "switch.txt")
    assert found.level is Level.CAUSE
    assert found.facts["link"] == "switch-04 port 17"
    assert found.facts["counters"] == {"crc error": 14302, "link flap": 3}


@each_row(
    ("counter", "kind", "level"),
    [
        ("rx_crc_errors_phy: 5123", "network.link_errors", Level.CAUSE),
        ("rx_crc_errors_phy: 3", "network.link_errors", Level.CONTEXT),
        ("rx_discards_phy: 900", "network.congestion", Level.CONTEXT),
        ("rx_crc_errors_phy: 0", None, None),
        ("rx_packets: 900", None, None),
    ],
)
def test_ethtool(counter: str, kind: str | None, level: Level | None) -> None:
    text = f"$ ethtool -S ens1f0np0\nNIC statistics:\n     tx_packets: 1\n     {counter}\n"
    found = link_counters.find_in_lines(number_lines(text), "x")
    assert [(f.kind, f.level) for f in found] == ([(kind, level)] if kind else [])
    assert all(f.facts["link"] == "ens1f0np0" for f in found)


def nccl_run(host: str, bus: float, wrong: int = 0, prefix: str = "") -> str:
    rows = [
        "# nThread 1 nGpus 1 minBytes 8 maxBytes 1073741824 step: 2(factor) warmup iters: 1",
        "# Using devices",
        f"#  Rank  0 Group  0 Pid 2028 on  {host} device  0 [0009:01:00] NVIDIA H100",
        "#       size         count      type   redop    root     time   algbw   busbw #wrong",
        f"        1024           256     float     sum      -1    20.5    0.05    0.09      {wrong}",
        f"  1073741824     268435456     float     sum      -1   6426.3  167.09  {bus}      0   6426.1  167.0  {bus}      0",
        f"# Out of bounds values : {wrong} {'FAILED' if wrong else 'OK'}",
        f"# Avg bus bandwidth    : {bus / 2}",
    ]
    return "".join(f"{prefix}{row}\n" for row in rows)


def test_an_nccl_tests_run_without_rows_is_quoted_by_its_average() -> None:
    text = (
        "#  Rank  0 Group  0 Pid   4221 on    node-a device  0 [0x18] NVIDIA H100 80GB HBM3\n"
        "# Avg bus bandwidth    : 231.4\n"
    )
    found = nccl_tests.find_in_lines(number_lines(text), "nccl.log")
    assert found
    assert all(e.line == 2 and e.text for f in found for e in f.evidence)


@pytest.mark.parametrize("prefix", ["", "[1,0]<stdout>:"])
def test_nccl_tests_odd_node_out(prefix: str, tmp_path: Path) -> None:
    artefacts = []
    for number in range(8):
        path = tmp_path / f"n{number}.txt"
        path.write_text(nccl_run(f"node-{number}", 150 if number == 3 else 300 + number, 0, prefix))
        artefacts.append(Artefact(path.name, path))
    assert nccl_tests.recognise_nccl_tests("x", artefacts[0].head())
    reading = nccl_tests.read_nccl_tests(tuple(artefacts))
    slow = [f for f in reading.findings if f.kind == "network.nccl_slow_node"]
    assert [f.host for f in slow] == ["node-3"]
    assert slow[0].evidence[0].file == "n3.txt"
    assert slow[0].facts["busbw_gbs"] == 150.0


def test_equal_nodes_have_no_odd_one_and_wrong_values_are_a_cause() -> None:
    text = "".join(nccl_run(f"node-{n}", 300 + n) for n in range(6))
    found = nccl_tests.find_in_lines(number_lines(text), "x")
    assert [f.kind for f in found] == ["network.nccl_tests", "network.nccl_passed"]
    bad = nccl_tests.find_in_lines(number_lines(nccl_run("node-1", 300, wrong=7)), "x")
    assert (bad[0].kind, bad[0].level, bad[0].host) == ("network.nccl_wrong", Level.CAUSE, "node-1")


def test_the_short_form_of_the_worked_incident() -> None:
    text = (
        "# Unaffected nodes (node-00 to node-07):\nall_reduce_perf -b 1G -e 1G -g 8: busbw = 42.3 GB/s\n"
        "# Affected nodes (node-09, node-25):\nall_reduce_perf -b 1G -e 1G -g 8: busbw = 17.1 GB/s\n"
    )
    slow = nccl_tests.find_in_lines(number_lines(text), "x")[0]
    assert slow.title.startswith("Affected nodes (node-09, node-25)")
    assert slow.facts["below_percent"] == 59.6


DCGM_TABLE = """Successfully ran diagnostic for group.
+---------------------------+------------------------------------------------+
| Diagnostic                | Result                                         |
+===========================+================================================+
|-----  Deployment  --------+------------------------------------------------|
| Denylist                  | Pass                                           |
| Persistence Mode          | Fail                                           |
| Error                     | Persistence mode for GPU 0 is off              |
|-----  Hardware  ----------+------------------------------------------------|
| GPU Memory                | Fail - GPU: 3                                  |
| Warning                   | GPU 3: 12 uncorrectable errors                 |
| Diagnostic                | Pass - GPUs: 0, 1                              |
| PCIe                      | Skip - All                                     |
"""


def dcgm_json(top: str, result: dict[str, object]) -> str:
    test = {"name": "memory", "results": [{"gpu_id": "0", "status": "Pass"}, result]}
    whole = {top: {"test_categories": [{"category": "Hardware", "tests": [test]}]}}
    return "Successfully ran diagnostic for group.\n" + json.dumps(whole, indent=1)


def test_dcgm_table() -> None:
    found = {f.facts.get("test"): f for f in dcgm.find_in_lines(number_lines(DCGM_TABLE), "x")}
    assert found["GPU Memory"].gpu == "GPU 3"
    assert found["GPU Memory"].category is Category.HARDWARE
    assert found["Persistence Mode"].category is Category.ENVIRONMENT
    assert "Diagnostic" not in found
    assert "PCIe" not in found


@pytest.mark.parametrize(
    ("top", "result", "level"),
    [
        (
            "DCGM GPU Diagnostic",
            {"gpu_id": "3", "status": "Fail", "warnings": ["bad row"]},
            Level.CAUSE,
        ),
        (
            "DCGM GPU Diagnostic",
            {"gpu_ids": "3", "status": "FAIL", "warnings": ["bad row"]},
            Level.CAUSE,
        ),
        (
            "DCGM Diagnostic",
            {
                "entity_group": "GPU",
                "entity_id": 3,
                "status": "Fail",
                "warnings": [{"warning": "bad row", "error_severity": 2}],
            },
            Level.CAUSE,
        ),
        (
            "DCGM Diagnostic",
            {
                "entity_group": "GPU",
                "entity_id": 3,
                "status": "Fail",
                "warnings": [{"warning": "bad row", "error_severity": 5}],
            },
            Level.FAILURE,
        ),
    ],
)
def test_dcgm_json(top: str, result: dict[str, object], level: Level, tmp_path: Path) -> None:
    path = tmp_path / "diag.json"
    path.write_text(dcgm_json(top, result))
    artefact = Artefact("diag.json", path)
    assert dcgm.recognise_dcgm("diag.json", artefact.head())
    bad = [f for f in dcgm.read_dcgm((artefact,)).findings if f.kind == "hardware.dcgm"]
    assert [(f.gpu, f.level) for f in bad] == [("GPU 3", level)]
    assert "bad row" in bad[0].title
    assert "bad row" in bad[0].evidence[0].text


def test_dcgm_json_that_is_cut_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_text('{"DCGM Diagnostic": {"test_categories": [')
    with pytest.raises(UnreadableArtefact, match="--json"):
        dcgm.read_dcgm((Artefact("x", path),))


@each_row(
    ("values", "odd"),
    [
        ([100, 100.5, 99.8, 100.2, 60], [4]),
        ([100, 100.5, 99.8, 100.2, 96], []),
        ([100, 60], [1]),
        ([100, 97], []),
        ([100], []),
        ([100, 100, 100, 100, 300], []),
        ([0, 0, 0, 0], []),
        ([50, 100, 60, 90, 70, 80, 95, 55], []),
    ],
)
def test_outliers(values: list[float], odd: list[int]) -> None:
    assert [o.key for o in find_low(dict(enumerate(values)), 0.1)] == odd


def test_every_page_exists() -> None:
    ids = {path.stem for path in (ROOT / "knowledge" / "pages").rglob("*.md")}
    assert not {row["page"] for row in named_fixes().values() if "page" in row} - ids


SAMPLES = [
    IBSTAT.format(one="Down", physical="Polling", rate=10),
    DEVINFO.format(state="DOWN"),
    "$ ethtool -S e0\nNIC statistics:\n  rx_crc_errors: 5\n",
    "sw1 port 3: CRC errors 99\n",
    nccl_run("n1", 300),
    DCGM_TABLE,
    dcgm_json("DCGM Diagnostic", {"entity_id": 1, "status": "Fail"}),
]


@settings(max_examples=120, deadline=None)
@given(data=st.data())
def test_no_damage_breaks_them(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    base = data.draw(st.sampled_from(SAMPLES))
    cut = data.draw(st.integers(0, len(base)))
    end = data.draw(st.integers(cut, len(base)))
    text = base[:cut] + data.draw(st.text(max_size=12)) + base[end:]
    path = tmp_path_factory.mktemp("net") / "x"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    artefact = Artefact("x", path)
    for module in (infiniband, link_counters, nccl_tests, dcgm):
        with contextlib.suppress(ToolError):
            module.find_in_lines(number_lines(text), "x")
        assert module.READER.recognise("x", artefact.head()) in (True, False)
        with contextlib.suppress(ToolError):
            module.READER.read((artefact,))
