from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.rows import each_row

from firstfault_tools.errors import HostileArtefact, ToolError, UnreadableArtefact
from firstfault_tools.findings import Category, Finding, Level
from firstfault_tools.profile.intervals import gaps, length, merge_intervals, subtract
from firstfault_tools.profile.profiler import READER
from firstfault_tools.profile.trace import Kernel, classify_kernel, read_trace, unpack
from firstfault_tools.registry import Artefact

DATA = Path(__file__).parents[2] / "data/profile"
POINTS = st.integers(0, 60)
SETS = st.lists(
    st.tuples(POINTS, POINTS).map(lambda p: (float(min(p)), float(max(p)))), max_size=12
)


def kernel(name: str, start: float, duration: float, category: str = "kernel") -> dict[str, Any]:
    return {"ph": "X", "cat": category, "name": name, "ts": start, "dur": duration, "args": {}}


def trace(events: list[dict[str, Any]], rank: int = 0, world: int = 2) -> bytes:
    content = {
        "schemaVersion": 1,
        "deviceProperties": [],
        "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": world},
        "traceEvents": events,
    }
    return json.dumps(content).encode()


def step(nccl: float, gemm: float = 100.0) -> list[dict[str, Any]]:
    return [
        kernel("nvjet_tst_128x256_64x4", 0, gemm),
        kernel("ncclDevKernel_AllReduce_Sum_bf16_RING_LL", gemm, nccl),
        kernel("Memcpy DtoD (Device -> Device)", gemm + nccl, 5, "gpu_memcpy"),
    ]


def findings(folder: Path, *bodies: bytes) -> list[Finding]:
    artefacts = []
    for rank, body in enumerate(bodies):
        path = folder / f"trace_{rank}.json.gz"
        path.write_bytes(gzip.compress(body))
        assert READER.recognise(path.name, path.read_bytes()[: 64 * 1024])
        artefacts.append(Artefact(path.name, path))
    return list(READER.read(tuple(artefacts)).findings)


def covered(intervals: list[tuple[float, float]]) -> set[int]:
    return {n for a, b in intervals for n in range(int(a), int(b))}


@settings(deadline=None)
@given(SETS, SETS)
def test_interval_arithmetic_agrees_with_sets_of_points(
    first: list[tuple[float, float]], second: list[tuple[float, float]]
) -> None:
    a, b = merge_intervals(first), merge_intervals(second)
    assert covered(a) == covered(first)
    assert length(a) == len(covered(first))
    assert covered(subtract(a, b)) == covered(first) - covered(second)
    if a:
        span = set(range(int(a[0][0]), int(a[-1][1])))
        assert covered(gaps(a)) == span - covered(first)


@each_row(
    ("name", "category", "expected"),
    [
        (
            "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
            "kernel",
            Kernel.NCCL,
        ),
        ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n", "kernel", Kernel.GEMM),
        ("void cutlass::Kernel2<cutlass_80_wmma_tensorop_bf16_s161616gemm>", "kernel", Kernel.GEMM),
        ("flash_fwd_kernel", "kernel", Kernel.ATTENTION),
        ("void at::native::vectorized_elementwise_kernel<4, ...>", "kernel", Kernel.OTHER),
        ("Memset (Device)", "gpu_memset", Kernel.MEMORY),
    ],
)
def test_kernel_classes(name: str, category: str, expected: Kernel) -> None:
    assert classify_kernel(name, category) is expected


def test_breakdown_adds_up() -> None:
    events = [
        kernel("gemm", 0, 100),
        kernel("ncclDevKernel_AllReduce", 50, 100),
        kernel("flash_fwd_kernel", 180, 20),
    ]
    result = read_trace(trace(events, rank=3), "t.json")
    assert (result.rank, result.world, result.window_us) == (3, 2, 200)
    assert result.busy_us[Kernel.GEMM] == 100
    assert result.exposed_us == 50
    assert result.idle_us == 30


def test_exposed_communication_is_warned_of(tmp_path: Path) -> None:
    finding = findings(tmp_path, trace(step(nccl=100)))[0]
    assert finding.kind == "profile.exposed_communication"
    assert "49%" in finding.title


def test_idle_gpu_and_data_loader(tmp_path: Path) -> None:
    events = [kernel("gemm", 0, 100), kernel("gemm", 300, 100)]
    idle = findings(tmp_path, trace(events))[0]
    assert (idle.kind, idle.category) == ("profile.idle_gpu", Category.PERFORMANCE)
    loading = kernel(
        "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", 105, 190, "user_annotation"
    )
    starved = findings(tmp_path, trace([*events, loading]))[0]
    assert (starved.kind, starved.category) == ("profile.data_starved", Category.DATA)
    assert "DataLoader" in starved.title


def test_straggler_is_the_rank_with_short_collectives(tmp_path: Path) -> None:
    bodies = [trace(step(nccl=80), r) for r in range(3)]
    bodies.append(trace(step(nccl=5, gemm=175), 3))
    finding = findings(tmp_path, *bodies)[0]
    assert (finding.kind, finding.rank) == ("profile.straggler", 3)


def test_even_ranks_have_no_straggler(tmp_path: Path) -> None:
    found = findings(tmp_path, *[trace(step(nccl=20 + r), r) for r in range(4)])
    assert {f.level for f in found} == {Level.CONTEXT}


def test_gzip_bomb_is_refused() -> None:
    bomb = gzip.compress(b"0" * 5_000_000)
    with pytest.raises(HostileArtefact):
        unpack(bomb, "x", limit=1_000_000)


@each_row("body", [b"", b"{", b"[]", b'{"traceEvents": 3}', trace([]), b"\x1f\x8bxx"])
def test_no_trace_is_unreadable(body: bytes) -> None:
    with pytest.raises(UnreadableArtefact):
        read_trace(body, "x")


ODD = st.none() | st.booleans() | st.floats() | st.text(max_size=5) | st.lists(st.integers())


@settings(deadline=None, max_examples=200)
@given(data=st.data())
def test_odd_events_raise_tool_errors_only(data: st.DataObject) -> None:
    events = step(nccl=10)
    event = data.draw(st.sampled_from(events))
    event[data.draw(st.sampled_from(sorted(event)))] = data.draw(ODD)
    body = trace(events)
    if data.draw(st.booleans()):
        body = body[: data.draw(st.integers(0, len(body)))]
    READER.recognise("t.json", body)
    try:
        read_trace(body, "t.json")
    except ToolError:
        return


def test_real_traces_of_two_gpus() -> None:
    paths = sorted(DATA.glob("trace_rank_*.json.gz"))
    traces = [read_trace(p.read_bytes(), p.name) for p in paths]
    assert [(t.rank, t.world) for t in traces] == [(0, 2), (1, 2)]
    for found in traces:
        assert found.busy_us[Kernel.NCCL] > 0
        assert found.busy_us[Kernel.GEMM] > 0
        assert 0 <= found.exposed_us <= found.busy_us[Kernel.NCCL]
        assert found.idle_us < found.window_us
