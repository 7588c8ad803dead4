"""Many nodes' records: the odd one out, card floors, busy GPUs, states, damage."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.rows import each_row

from firstfault_tools.errors import ToolError, UnreadableArtefact
from firstfault_tools.findings import Finding, Level
from firstfault_tools.hardware.excerpt import number_lines
from firstfault_tools.probe.cards import find_card, find_floor
from firstfault_tools.probe.merge import compare_nodes
from firstfault_tools.probe.readings import READER, find_in_lines, read_probes
from firstfault_tools.probe.records import parse_records
from firstfault_tools.registry import Artefact

CAPTURES = Path(__file__).with_name("captures")


def row(
    host: str,
    test: str,
    gpu: int | None = None,
    status: str = "ok",
    reason: str | None = None,
    **values: Any,
) -> str:
    record = {
        "schema": "firstfault.probe/1", "kind": "result", "host": host, "test": test, "status": status,
        "at_unix_s": 1.0, "gpu_index": gpu, "reason": reason, "values": values,
    }  # fmt: skip
    return json.dumps({k: v for k, v in record.items() if v is not None})


def gemm(host: str, gpu: int, rate: float) -> str:
    return row(host, "gemm", gpu, dtype="bf16", size=8192, rate_tflops=rate, spread_percent=0.2)


def compare(*lines: str) -> tuple[Finding, ...]:
    return compare_nodes(parse_records(enumerate(lines, start=1), "p.jsonl")).findings


def serious(found: tuple[Finding, ...]) -> list[tuple[str, str | None, str | None]]:
    return [(f.kind, f.host, f.gpu) for f in found if f.level in (Level.CAUSE, Level.FAILURE)]


def test_the_odd_gpu_of_many_nodes() -> None:
    lines = [gemm(f"n{n}", g, 780 + n) for n in range(4) for g in range(8)]
    lines[13] = gemm("n1", 5, 610)
    found = compare(*lines)
    assert serious(found) == [("probe.odd_one_out", "n1", "GPU 5")]
    odd = found[0]
    assert odd.facts["below_percent"] == pytest.approx(21.9, abs=0.2)
    assert odd.evidence[0].line == 14
    assert odd.page


def test_equal_nodes_have_none() -> None:
    lines = [gemm(f"n{n}", g, 780 + n + g) for n in range(4) for g in range(8)]
    assert serious(compare(*lines)) == []


def test_of_two_the_slower_is_named_as_likely_only() -> None:
    (odd, _) = compare(gemm("n0", 0, 790), gemm("n0", 1, 400))
    assert (odd.gpu, odd.confidence.value) == ("GPU 1", "likely")


def test_a_node_that_is_slow_as_a_whole_is_seen_by_its_card() -> None:
    health = row("n0", "health", 0, name="NVIDIA H200")
    found = compare(health, gemm("n0", 0, 400))
    assert serious(found) == [("probe.below_published", "n0", "GPU 0")]
    assert "published 989.4" in found[0].title
    assert serious(compare(health, gemm("n0", 0, 788))) == []


def test_use_by_another_process_explains_the_slow_rate() -> None:
    busy = row(
        "n0", "busy", 1, reason="GPU 1 is busy: utilisation 100 %", utilisation_percent=100.0
    )
    found = compare(busy, gemm("n0", 0, 790), gemm("n0", 1, 400))
    assert serious(found) == [("probe.busy", "n0", "GPU 1")]
    assert "explains its rate" in found[0].title
    assert serious(compare(busy, gemm("n0", 0, 790))) == []


@each_row(
    ("line", "kind", "level"),
    [
        (
            row("n", "copy", 1, "timeout", "no answer within the time limit"),
            "probe.timeout",
            Level.CAUSE,
        ),
        (
            row("n", "gemm", 1, "failed", "RuntimeError: CUDA error: uncorrectable ECC"),
            "probe.failed",
            Level.CAUSE,
        ),
        (
            row("n", "memory", 1, "failed", "ended after it missed its time limit"),
            "probe.failed",
            Level.SYMPTOM,
        ),
        (row("n", "memory", 1, wrong_words=3), "probe.wrong_words", Level.CAUSE),
        (row("n", "health", 1, ecc_uncorrected=2.0), "probe.ecc_uncorrected", Level.CAUSE),
        (row("n", "health", 1, row_remap_pending="Yes"), "probe.row_remap_pending", Level.CAUSE),
        (row("n", "health", 1, recovery_action="GPU Reset"), "probe.recovery_action", Level.CAUSE),
        (
            row("n", "health", 1, pcie_width=8.0, pcie_width_max=16.0),
            "probe.pcie_width",
            Level.FAILURE,
        ),
        (
            row("n", "health", 1, active_reasons=["gpu_idle", "hw_thermal_slowdown"]),
            "probe.throttled",
            Level.CAUSE,
        ),
        (row("n", "port", device="mlx5_0", state="1: DOWN"), "probe.state", Level.FAILURE),
        (row("n", "skew", 1, offset_to_rank0_ms=4000.0), "probe.clock_skew", Level.CONTEXT),
        (row("n", "health", 1, active_reasons=["gpu_idle"], row_remap_pending="No"), None, None),
        (row("n", "gemm", 1, "unavailable", "not available here: no GPU"), None, None),
        (row("n", "port", device="mlx5_0", state="4: ACTIVE"), None, None),
    ],
)
def test_states_and_failures(line: str, kind: str | None, level: Level | None) -> None:
    found = [f for f in compare(line) if f.kind != "probe.summary"]
    assert [(f.kind, f.level) for f in found] == ([(kind, level)] if kind else [])


def test_past_kernel_events_weigh_less_than_measurements() -> None:
    lines = [
        "[12.000000] NVRM: Xid (PCI:0000:00:07): 79, GPU has fallen off the bus.",
        "[13.000000] NVRM: Xid (PCI:0000:00:06): 31, pid=7, name=python, MMU Fault",
    ]
    found = [f for f in compare(row("n1", "kernel_log", lines=lines)) if f.kind == "hardware.xid"]
    assert [(f.facts["xid"], f.level, f.host) for f in found] == [
        (79, Level.FAILURE, "n1"),
        (31, Level.CONTEXT, "n1"),
    ]
    assert found[0].evidence[0].line == 1
    assert "since it was started" in found[0].title


def test_a_partial_mesh_is_no_fault_and_one_bad_pair_is() -> None:
    def peer(a: int, b: int, rate: float) -> str:
        return row("n", "peer", a, from_gpu=a, to_gpu=b, rate_gbs=rate, peer_access=True)

    mesh = [peer(a, b, 45.0 if (a + b) % 2 else 10.0) for a in range(4) for b in range(4) if a != b]
    assert serious(compare(*mesh)) == []
    one = [
        peer(a, b, 100.0 if (a, b) == (0, 3) else 370.0)
        for a in range(4)
        for b in range(4)
        if a != b
    ]
    assert serious(compare(*one)) == [("probe.odd_one_out", "n", "GPU 0")]


def test_all_reduce_names_the_slow_node() -> None:
    lines = [
        row(
            f"n{n}",
            "all_reduce",
            g,
            size_mib=1024,
            ranks=8,
            bus_bandwidth_gbs=200.0 if n == 2 else 330.0,
        )
        for n in range(5)
        for g in range(8)
    ]
    assert serious(compare(*lines)) == [("probe.odd_one_out", "n2", "GPU 0")]


def test_records_are_found_between_other_lines() -> None:
    text = f"srun: job 12 queued\n0: {gemm('n0', 0, 790)}\nn1: {gemm('n1', 0, 390)}\nbye"
    found = find_in_lines(number_lines(text), "log")
    assert found[0].host == "n1"
    assert found[0].evidence[0].line == 3


def test_a_file_without_records_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_text("hello")
    with pytest.raises(UnreadableArtefact, match="firstfault probe"):
        read_probes((Artefact("x", path),))


def test_cards_have_sane_floors() -> None:
    card = find_card("NVIDIA H200")
    assert card is not None
    floor = find_floor(card, "copy_read_write_gbs")
    # Measured on this card: 4,290 GB/s.
    assert floor is not None
    assert floor[0] < 4290 < floor[1]
    assert find_card("NVIDIA Unheard Of") is None


@pytest.mark.skipif(not CAPTURES.is_dir(), reason="no captured run in the tree")
def test_the_captured_runs_of_a_real_machine() -> None:
    plain = read_probes((Artefact("plain.jsonl", CAPTURES / "plain.jsonl"),))
    assert [f for f in plain.findings if f.level is Level.CAUSE] == []
    planted = read_probes((Artefact("planted.jsonl", CAPTURES / "planted.jsonl"),))
    first = next(f for f in planted.findings if f.level is Level.CAUSE)
    assert first.gpu == "GPU 1"


@settings(max_examples=120, deadline=None)
@given(data=st.data())
def test_no_damage_breaks_it(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    json_value = st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
        ),
        max_leaves=6,
    )
    names = st.sampled_from(
        ["gemm", "health", "busy", "peer", "all_reduce", "port", "skew", "memory"]
    )
    keys = st.sampled_from(
        [
            *("rate_tflops", "rate_gbs", "to_gpu", "name", "state", "active_reasons", "dtype"),
            *("pcie_width", "pcie_width_max", "bus_bandwidth_gbs", "recovery_action"),
        ]
    )
    record = st.fixed_dictionaries(
        {"schema": st.just("firstfault.probe/1"), "test": names | json_value, "host": json_value},
        optional={
            "status": st.sampled_from(["ok", "failed", "timeout"]) | json_value,
            "gpu_index": json_value,
            "reason": json_value,
            "values": st.dictionaries(keys, json_value, max_size=5) | json_value,
        },
    )
    lines = data.draw(st.lists(record.map(json.dumps) | st.text(max_size=30), max_size=6))
    path = tmp_path_factory.mktemp("probe") / "x"
    path.write_bytes("\n".join(lines).encode("utf-8", "surrogatepass"))
    artefact = Artefact("x", path)
    assert READER.recognise("x", artefact.head()) in (True, False)
    with contextlib.suppress(ToolError):
        READER.read((artefact,))
